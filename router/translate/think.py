"""Splits ``<think>…</think>`` at the beginning of a text from the answer that follows it.

Only a tag at the very start counts (after white space): later on it is the model quoting. The tag
may be cut between two pieces, so that as much as might still become one is held back.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ThinkSplitter"]

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


class ThinkSplitter:
    """``split(piece)`` gives ``(reasoning, text)``; ``flush()`` what was held back at the end."""

    __slots__ = ("_held", "_mode")

    def __init__(self) -> None:
        self._held = ""
        self._mode = "start"

    def split(self, piece: str) -> tuple[str, str]:
        """Both parts of this piece, each possibly empty."""
        if self._mode == "text":
            return "", piece
        if self._mode == "start":
            self._held += piece
            seen = self._held.lstrip()
            if not seen.startswith(_OPEN):
                if _OPEN.startswith(seen):
                    return "", ""
                piece, self._held, self._mode = self._held, "", "text"
                return "", piece
            self._mode, self._held, piece = "reasoning", "", seen[len(_OPEN) :].lstrip("\n")
        if self._mode == "after":
            return "", self._answer(piece)
        return self._reasoning(piece)

    def flush(self) -> tuple[str, str]:
        """What is left when the text ends."""
        held, self._held = self._held, ""
        return (held, "") if self._mode == "reasoning" else ("", held)

    def _reasoning(self, piece: str) -> tuple[str, str]:
        piece = self._held + piece
        end = piece.find(_CLOSE)
        if end >= 0:
            self._held, self._mode = "", "after"
            return piece[:end], self._answer(piece[end + len(_CLOSE) :])
        keep = _overlap(piece, _CLOSE)
        self._held = piece[len(piece) - keep :]
        return piece[: len(piece) - keep], ""

    def _answer(self, piece: str) -> str:
        """The answer's first piece, without the blank lines that templates put before it."""
        piece = piece.lstrip("\n")
        if piece:
            self._mode = "text"
        return piece


def _overlap(text: str, tag: str) -> int:
    """How many characters at the end of ``text`` could be the beginning of ``tag``."""
    for size in range(min(len(text), len(tag) - 1), 0, -1):
        if tag.startswith(text[-size:]):
            return size
    return 0
