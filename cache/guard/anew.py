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

DOUBTS: Final = frozenset({"scope", "question"})
"""The reasons that can be outweighed: what only one text has, and asking in another way."""

_NEAR: Final = 0.82
_APART: Final = 5
_MOST: Final = 2
"""So near, so many words apart, with so many of content that only one of the texts has."""

_ASKED_ALIKE: Final = (
    {"works", "what"}, {"works", "describe"}, {"describe", "what"}, {"describe", "how"},
    {"what", "who"}, {"other", "where"}, {"other", "who"},
)  # fmt: skip
_CONTRASTING: Final = word_set(
    """avoid difference differ compare cost price fee fast cheap child expert beginner best worst
    first last build built start begin end finish stop cause prevent buy sell without instead"""
)
"""Words that make a question another one, wherever they stand."""

_NARROWING: Final = word_set(
    "in for with at on without from by during near against under over within of"
)


def worded_anew(
    asked: Profile, stored: Profile, pairs: Pairs, similarity: float, reason: str
) -> bool:
    """Whether the texts are so near, and so differently worded, that a doubt is outweighed."""
    if similarity < _NEAR or _distance(asked.text, stored.text) < _APART:
        return False
    # A name is what they ask about: it takes another word to say that they ask the same of it.
    shared = [i for i, _ in pairs if asked.items[i].kind == "word" and not asked.items[i].light]
    if not shared:
        return False
    mine = _alone(asked, {i for i, _ in pairs})
    yours = _alone(stored, {j for _, j in pairs})
    if mine is None or yours is None or (mine and yours) or len(mine) + len(yours) > _MOST:
        return False
    kinds = {asked.frame.kind, stored.frame.kind}
    return len(kinds) == 1 or kinds in _ASKED_ALIKE or reason == "scope"


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
        contrasting = not item.keys.isdisjoint(_CONTRASTING)
        narrows = describes or contrasting or item.prep in _NARROWING
        if narrows or item.kind != "word" or item.degree:
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
