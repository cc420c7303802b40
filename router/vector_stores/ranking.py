"""Two rankings become one: reciprocal rank fusion. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, TypeVar

__all__ = ["fused", "rank_score"]

_K: Final = 60
"""How little a few places at the top count; the constant of the method's authors."""

Key = TypeVar("Key", bound=Hashable)


def fused(rankings: Sequence[tuple[Sequence[Key], float]]) -> list[Key]:
    """What is in any of the rankings, the best first; each comes with its weight.

    Those that score alike are in the order of the rankings.
    """
    scores: dict[Key, float] = {}
    for ranking, weight in rankings:
        for rank, key in enumerate(ranking, 1):
            scores[key] = scores.get(key, 0.0) + weight / (_K + rank)
    return sorted(scores, key=lambda key: -scores[key])


def rank_score(places: Mapping[Key, int], key: Key) -> float:
    """A score from 0 to 1 for what has a place, counted from 0, and no similarity: 1 for the
    first; 0 for what has none.
    """
    place = places.get(key)
    return 0.0 if place is None else (_K + 1) / (_K + 1 + place)
