"""The very same words in another order: who does what to whom is told by nothing but that."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from cache.guard.facts import Veto
from cache.guard.lemmas import lemmas
from cache.guard.reading import read
from cache.guard.words import AUXILIARIES, PREPOSITIONS, word_set

__all__ = ["permuted"]

_IDLE: Final = AUXILIARIES | word_set("a an the please s")
_PERSONS: Final = {
    "me": "i", "my": "i", "mine": "i", "myself": "i", "us": "we", "our": "we", "ours": "we",
    "your": "you", "yours": "you", "him": "he", "his": "he", "her": "she", "hers": "she",
    "them": "they", "their": "they", "theirs": "they", "whom": "who", "whose": "who",
}  # fmt: skip
_MUTUAL: Final = word_set("and or versus nor plus times")

Words = tuple[tuple[str, frozenset[str]], ...]


def permuted(asked: str, stored: str) -> Veto | None:
    """Why not, where both are made of the same words in different places: "Who taught Plato" and
    "Who did Plato teach". A phrase moved to the front is no difference, nor is "b and a".
    """
    one, other = _words(asked), _words(stored)
    if len(one) != len(other):
        return None
    places = _places(one, other)
    if places is None or places == list(range(len(one))) or _fronted(one, places):
        return None
    moved = [i for i, place in enumerate(places) if i != place]
    first, last = moved[0], moved[-1]
    between = {word for word, _ in one[first : last + 1]}
    if len(moved) == 2 and last == first + 2 and between & _MUTUAL:
        return None
    return Veto("order", f"{one[first][0]} {one[last][0]}")


@lru_cache(maxsize=2048)
def _words(text: str) -> Words:
    found = []
    for word in read(text).words:
        if word.text in _IDLE:
            continue
        name = _PERSONS.get(word.text, word.text)
        found.append((name, frozenset(lemmas(name)) | {name}))
    return tuple(found)


def _places(one: Words, other: Words) -> list[int] | None:
    """Where each word of the one stands in the other; None where one has no place."""
    free = list(range(len(other)))
    places = []
    for _, forms in one:
        place = next((i for i in free if not forms.isdisjoint(other[i][1])), None)
        if place is None:
            return None
        free.remove(place)
        places.append(place)
    return places


def _fronted(one: Words, places: list[int]) -> bool:
    """Whether a phrase with a preposition has only been moved to the other end."""
    count = len(places)
    shift = places[0]
    if any(place != (i + shift) % count for i, place in enumerate(places)):
        return False
    return one[0][0] in PREPOSITIONS or one[count - shift][0] in PREPOSITIONS
