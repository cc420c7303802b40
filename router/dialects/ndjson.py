"""Newline-delimited JSON (Ollama's streams): bytes in, lines out."""

from __future__ import annotations

from router.response.frame import MAX_EVENT_BYTES, EventTooLarge

__all__ = ["NDJSONDecoder"]


class NDJSONDecoder:
    """Cuts a byte stream into lines; blank lines are skipped.

    ``decode(data)`` returns the lines completed by these bytes, ``flush()`` the last one, which
    needs no newline at its end.
    """

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = bytearray()

    def decode(self, data: bytes) -> list[bytes]:
        """Take the bytes of one read; raise EventTooLarge when a line never ends."""
        if self._tail:
            self._tail += data
            if b"\n" not in data:
                self._check_size()
                return []
            data = bytes(self._tail)
            self._tail.clear()
        *lines, rest = data.split(b"\n")
        if rest:
            self._tail += rest
            self._check_size()
        return [line for line in lines if line.strip()]

    def flush(self) -> list[bytes]:
        """The unfinished last line, if there is one."""
        rest = bytes(self._tail)
        self._tail.clear()
        return [rest] if rest.strip() else []

    def _check_size(self) -> None:
        if len(self._tail) > MAX_EVENT_BYTES:
            raise EventTooLarge(f"a line exceeds {MAX_EVENT_BYTES} bytes")
