"""Two texts that are near although they are worded quite differently.

A trap is a question with one word changed: hardly anything else differs. Where most of the words
do, and the texts are near all the same, one that is missing or another is likelier a way of
putting it.
"""

from __future__ import annotations

from typing import Final

from cache.guard.align import Pairs
from cache.guard.profile import Item, Profile
from cache.guard.reading import read
from cache.guard.words import word_set

__all__ = ["DOUBTS", "worded_anew"]

DOUBTS: Final = frozenset({"scope", "content", "question"})
"""The reasons that can be outweighed: what is missing, other, or asked in another way."""

_NEAR: Final = 0.8
_APART: Final = 5
_MOST: Final = 3
"""So near, and so many words apart, with so many of content that only one text has: measured, of
over 800 traps some one in two hundred passes like this, and of paraphrases one in eight more.
"""

_NARROWING: Final = word_set(
    "in for with at on without from by during near against under over within of"
)


def worded_anew(asked: Profile, stored: Profile, pairs: Pairs, similarity: float) -> bool:
    """Whether the texts are so near, and so differently worded, that a doubt is outweighed."""
    if similarity < _NEAR or _distance(asked.text, stored.text) < _APART:
        return False
    mine = _alone(asked, {i for i, _ in pairs})
    yours = _alone(stored, {j for _, j in pairs})
    return mine is not None and yours is not None and len(mine) + len(yours) <= _MOST


def _alone(text: Profile, paired: set[int]) -> list[Item] | None:
    """The items that the other text has not; None where one narrows down what it asks."""
    found = []
    for i, item in enumerate(text.items):
        if i in paired or item.light:
            continue
        after = text.items[i + 1] if i + 1 in paired else None
        describes = after is not None and not after.link and not item.verb
        if after is not None and after.prep == "of":
            return None  # a part of it
        if item.kind != "word" or item.degree or describes or item.prep in _NARROWING:
            return None
        found.append(item)
    return found


def _distance(one: str, other: str) -> int:
    """How many words only one of the texts has, in their order."""
    a, b = ([word.text for word in read(text).words] for text in (one, other))
    row = [0] * (len(b) + 1)
    for word in a:
        before = row
        row = [0]
        for j, mate in enumerate(b):
            row.append(before[j] + 1 if word == mate else max(before[j + 1], row[j]))
    return len(a) + len(b) - 2 * row[-1]
