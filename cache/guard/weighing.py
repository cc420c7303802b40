"""Whether two texts that differ in a doubtful way ask the same all the same.

A trap is a question with one word changed: hardly anything else differs. Where most of the words
do, and the texts are near all the same, a word that is missing or another is likelier a way of
putting it. How much each sign of that counts was fitted to labelled pairs (a logistic regression,
``tests/cache/quality/fit.py``), on others than those it is tested on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from cache.guard.align import Pairs
from cache.guard.facts import Veto
from cache.guard.profile import ContentWord, Profile
from cache.guard.reading import read
from cache.guard.words import word_set

__all__ = ["SIGNS", "doubtful", "outweighed", "signs"]

_DOUBTS: Final = frozenset({"scope", "content", "question", "quantifier"})
_DOUBTS_OF_ONE: Final = frozenset({"entity", "unit"})
"""The reasons that can be outweighed; the latter where only one of the texts names anything."""

SIGNS: Final = (
    "similarity", "rephrased", "alone", "narrowing", "contrasting", "verbs", "shared", "told",
    "swapped", "named",
)  # fmt: skip
_WEIGHTS: Final = (
    16.554, 3.706, 0.510, -0.465, -0.791, 0.363, 0.536, 1.220, -1.766, -2.423,
)  # fmt: skip
_BIAS: Final = -17.939

_APART: Final = 5
"""Where fewer words than these differ, only one has been changed."""

_CONTRASTING: Final = word_set(
    """avoid difference differ compare cost price fee fast cheap child expert beginner best worst
    first last build built start begin end finish stop cause prevent buy sell without instead"""
)
"""Words that make a question another one, wherever they stand."""

_NARROWING: Final = word_set(
    "in for with at on without from by during near against under over within of"
)


class _Alone(NamedTuple):
    """An item that only one text has; ``narrows``: it says which one, or where, of what both
    speak of.
    """

    item: ContentWord
    narrows: bool


class _Apart(NamedTuple):
    """What sets two texts apart: the items of each that are alone, how many words only one of them
    has, and how many words both have together.
    """

    mine: list[_Alone]
    yours: list[_Alone]
    words: int
    all_words: int


def doubtful(veto: Veto) -> bool:
    """Whether it can be outweighed."""
    return veto.reason in _DOUBTS or (veto.one_sided and veto.reason in _DOUBTS_OF_ONE)


def outweighed(
    asked: Profile, stored: Profile, pairs: Pairs, similarity: float, doubts: Sequence[Veto]
) -> bool:
    """Whether all these doubts are."""
    apart = _apart(asked, stored, pairs)
    one_sided = bool(apart.mine) != bool(apart.yours)
    if one_sided and all(one.narrows for one in apart.mine + apart.yours):
        return False
    if apart.words < _APART:
        return False
    found = _signs(asked, stored, pairs, apart, similarity, doubts)
    return sum(map(float.__mul__, _WEIGHTS, found)) + _BIAS > 0.0


def signs(
    asked: Profile, stored: Profile, pairs: Pairs, similarity: float, doubts: Sequence[Veto]
) -> tuple[float, ...]:
    """What speaks for and against, in the order of ``SIGNS``; mostly counts of items."""
    return _signs(asked, stored, pairs, _apart(asked, stored, pairs), similarity, doubts)


def _apart(asked: Profile, stored: Profile, pairs: Pairs) -> _Apart:
    mine, yours = _alone(asked, {i for i, _ in pairs}), _alone(stored, {j for _, j in pairs})
    return _Apart(mine, yours, *_distance(asked.text, stored.text))


def _signs(
    asked: Profile,
    stored: Profile,
    pairs: Pairs,
    apart: _Apart,
    similarity: float,
    doubts: Sequence[Veto],
) -> tuple[float, ...]:
    mine, yours, words, all_words = apart
    swapped = bool(mine and yours) and words <= 2 * max(len(mine), len(yours))
    shared = [i for i, _ in pairs if asked.items[i].kind == "word" and not asked.items[i].light]
    return (
        similarity,
        similarity * words / max(all_words, 1),
        float(len(mine) + len(yours)),
        float(sum(one.narrows for one in mine + yours)),
        float(sum(not one.item.keys.isdisjoint(_CONTRASTING) for one in mine + yours)),
        float(sum(one.item.verb or one.item.mild for one in mine + yours)),
        float(len(shared)),
        float("other" in (asked.frame.kind, stored.frame.kind)),
        float(swapped),
        float(any(doubt.reason in _DOUBTS_OF_ONE for doubt in doubts)),
    )


def _alone(text: Profile, paired: set[int]) -> list[_Alone]:
    """The items that the other text has not."""
    return [
        _Alone(item, _narrows(text, i, paired))
        for i, item in enumerate(text.items)
        if i not in paired and not item.light
    ]


def _narrows(text: Profile, i: int, paired: set[int]) -> bool:
    item = text.items[i]
    after = text.items[i + 1] if i + 1 in paired else None
    if after is not None and (after.prep == "of" or not (after.link or item.verb)):
        return True
    return item.prep in _NARROWING


def _distance(one: str, other: str) -> tuple[int, int]:
    """How many words only one of the texts has, in their order; and how many both have together."""
    a, b = ([word.text for word in read(text).words] for text in (one, other))
    row = [0] * (len(b) + 1)
    for word in a:
        before = row
        row = [0]
        for j, mate in enumerate(b):
            row.append(before[j] + 1 if word == mate else max(before[j + 1], row[j]))
    return len(a) + len(b) - 2 * row[-1], len(a) + len(b)
