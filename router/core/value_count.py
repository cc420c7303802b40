"""How much there is in a JSON text, counted before it is parsed and while it still arrives.

Parsing holds the interpreter's lock, and what comes after takes its time for every value: a body
is not too large by its bytes alone. One image of 30 MB is harmless; 700 000 messages are not.
"""

from __future__ import annotations

__all__ = ["ValueCount", "most_values"]


def most_values(piece: bytes) -> int:
    """No fewer than ``ValueCount`` adds for ``piece``, wherever in a text it is: what is inside of
    strings is counted too. It takes a quarter of the time.
    """
    strings = (piece.count(b'"') + 1) // 2
    return strings + piece.count(b"{") + piece.count(b"[") + (piece.count(b",") + 9) // 10


class ValueCount:
    """Counts strings (names of members too), objects and arrays; of commas, which are all that
    shows of numbers, ten are one. What is not JSON comes to some number, too.
    """

    __slots__ = ("_commas", "_containers", "_escape", "_quotes")

    def __init__(self) -> None:
        self._quotes = 0
        self._containers = 0
        self._commas = 0
        self._escape = b""

    @property
    def total(self) -> int:
        """What has been counted so far."""
        return self._quotes // 2 + self._containers + self._commas // 10

    def feed(self, piece: bytes) -> int:
        """Count on; returns the total. All of the work is done in C: about 1 ms for 64 KiB."""
        piece = self._escape + piece
        # Half an escape sequence stays for the next piece: an odd number of backslashes at the end.
        self._escape = b"\\" if (len(piece) - len(piece.rstrip(b"\\"))) % 2 else b""
        if self._escape:
            piece = piece[:-1]
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[self._quotes % 2 :: 2])
        self._quotes += len(parts) - 1
        self._containers += outside.count(b"{") + outside.count(b"[")
        self._commas += outside.count(b",")
        return self.total
