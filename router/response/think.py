"""Splits ``<think>…</think>`` at the beginning of a text from the answer that follows it.

Only a tag at the very start counts (after white space): later on it is the model quoting. The tag
may be cut between two pieces, so that as much as might still become one is held back. The same
text gives the same two parts however it was cut.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ThinkSplitter"]

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"
_MAX_BLANK: Final = 256
"""So much white space at the start is no longer waiting for a tag."""


class ThinkSplitter:
    """``split(piece)`` gives ``(reasoning, text)``; ``flush()`` what was held back at the end.

    ``held`` is what waits for the next piece. ``settled`` says that only text can follow, which
    then need not pass through here any more, ``thought`` that a tag was found.
    """

    __slots__ = ("_mode", "held", "settled", "thought")

    def __init__(self) -> None:
        self._mode = "start"
        self.held = ""
        self.settled = False
        self.thought = False

    def split(self, piece: str) -> tuple[str, str]:
        """Both parts of this piece, each possibly empty."""
        if self.settled:
            return "", piece
        piece, self.held = self.held + piece, ""
        if self._mode == "start":
            return self._start(piece)
        if self._mode == "after":
            return "", self._answer(piece)
        return self._reasoning(piece)

    def flush(self) -> tuple[str, str]:
        """What is held back, when the text ends or something else comes between."""
        held, self.held = self.held, ""
        if self._mode in ("opened", "reasoning"):
            return held, ""
        self.settled = self.settled or bool(held)
        return "", held

    def _start(self, piece: str) -> tuple[str, str]:
        seen = piece.lstrip()
        if seen.startswith(_OPEN):
            self._mode, self.thought = "opened", True
            return self._reasoning(seen[len(_OPEN) :])
        if _OPEN.startswith(seen) and len(piece) <= _MAX_BLANK:
            self.held = piece
            return "", ""
        self.settled = True
        return "", piece

    def _reasoning(self, piece: str) -> tuple[str, str]:
        if self._mode == "opened":
            piece = piece.lstrip("\n")
            if not piece:
                return "", ""
            self._mode = "reasoning"
        end = piece.find(_CLOSE)
        if end >= 0:
            self._mode = "after"
            return piece[:end], self._answer(piece[end + len(_CLOSE) :])
        keep = _overlap(piece, _CLOSE)
        self.held = piece[len(piece) - keep :]
        return piece[: len(piece) - keep], ""

    def _answer(self, piece: str) -> str:
        """The answer's first piece, without the blank lines that templates put before it."""
        piece = piece.lstrip("\n")
        if piece:
            self.settled = True
        return piece


def _overlap(text: str, tag: str) -> int:
    """How many characters at the end of ``text`` could be the beginning of ``tag``."""
    for size in range(min(len(text), len(tag) - 1), 0, -1):
        if tag.startswith(text[-size:]):
            return size
    return 0
