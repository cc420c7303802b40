"""A text in overlapping pieces of so many tokens. Pure.

Tokens are estimated, since every model cuts text in its own way: a word counts one for each six
letters that it has begun, a sign one, and so does each letter of a script that is written without
blanks. English text comes within a tenth of what OpenAI's tokenizers count.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

__all__ = ["AUTO", "ChunkingStrategy", "chunks", "count_tokens"]

_LETTERS: Final = 6
"""Letters of a word that are one token."""

_UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Scripts that are written without blanks: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""

_TOKENS: Final = re.compile(
    rf"[{_UNSPACED}\U00020000-\U0003ffff]|[^\W{_UNSPACED}\U00020000-\U0003ffff]+|[^\w\s]"
)
_BREAKS: Final = (
    re.compile(r"\n[ \t]*\n\s*"),  # paragraphs
    re.compile(r"\n\s*"),
    re.compile(r"[.!?。！？]['\")\]]*\s+|[。！？]"),  # noqa: RUF001  sentences
)
"""Where a piece had better end, the best places first."""

_SOUGHT: Final = 4
"""Such a part of a piece, its last, is searched for a good place to end."""


@dataclass(frozen=True, slots=True)
class ChunkingStrategy:
    """How long pieces are at most, and how much of one is in the next, in tokens."""

    size: int
    overlap: int


AUTO: Final = ChunkingStrategy(800, 400)
"""OpenAI's default."""


def count_tokens(text: str) -> int:
    """About how many tokens the text has."""
    return sum(_cost(found.end() - found.start()) for found in _TOKENS.finditer(text))


def chunks(text: str, strategy: ChunkingStrategy) -> list[str]:
    """The pieces of a text, in order; none where there is nothing but blanks.

    All of the text is in them. They end with a paragraph, a line or a sentence where there is one
    in their last quarter, and never in a word that is shorter than a piece.
    """
    starts, ends, costs = _tokens(text, strategy.size)
    if not starts:
        return []
    before = [0, *accumulate(costs)]  # the tokens before each word
    made: list[str] = []
    first = 0
    while True:
        past = bisect_right(before, before[first] + strategy.size) - 1  # the word behind the piece
        past = max(past, first + 1)
        if past < len(starts):
            past = _good_end(text, starts, ends, first, past)
        made.append(text[starts[first] : ends[past - 1]])
        if past >= len(starts):
            return made
        # At least one word on, whatever the overlap.
        first = max(bisect_left(before, before[past] - strategy.overlap), first + 1)


def _tokens(text: str, most: int) -> tuple[list[int], list[int], list[int]]:
    """Where words begin and end, and how many tokens each is; longer ones than ``most`` are cut."""
    starts: list[int] = []
    ends: list[int] = []
    longest = most * _LETTERS
    for found in _TOKENS.finditer(text):
        start, end = found.span()
        for begin in range(start, end, longest):
            starts.append(begin)
            ends.append(min(begin + longest, end))
    return starts, ends, [_cost(end - start) for start, end in zip(starts, ends, strict=True)]


def _cost(letters: int) -> int:
    return -(-letters // _LETTERS)


def _good_end(text: str, starts: list[int], ends: list[int], first: int, past: int) -> int:
    """The word behind a piece that ends well, or ``past`` where none does."""
    least = max(past - max((past - first) // _SOUGHT, 1), first + 1)
    for pattern in _BREAKS:
        place = None
        for found in pattern.finditer(text, ends[least - 1] - 1, starts[past]):
            place = found.end()
        if place is not None:
            better = bisect_left(starts, place)
            if least <= better <= past:
                return better
    return past
