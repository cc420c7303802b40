"""The tools that can be searched, and the search by words."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, ParamSpec, Protocol, TypeVar

__all__ = ["FOUND_AT_MOST", "Compute", "ToolCatalogue", "ToolText"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

FOUND_AT_MOST: Final = 5
"""So many tools are the result of a search, as Anthropic documents it."""

_DEEPEST: Final = 4
"""Levels of nested arguments that are searched."""

_MOST_CHARACTERS: Final = 20_000
"""Of one tool."""

_WORD: Final = re.compile(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]*|\d+|[^\W\d_a-zA-Z]+")
_K1: Final = 1.2
_B: Final = 0.75
_NAME_COUNTS: Final = 3
"""A word of a tool's name counts like so many of its description."""


class Compute(Protocol):
    """See ``Exchange.compute``: a search of many tools takes long."""

    async def __call__(
        self, work: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T: ...


class ToolText:
    """What can be searched of a tool: its ``name``, its ``description``, and the names and
    descriptions of its ``arguments``.
    """

    __slots__ = ("arguments", "description", "name")

    def __init__(self, name: str, description: str, arguments: str) -> None:
        self.name = name
        self.description = description
        self.arguments = arguments

    @classmethod
    def of(cls, function: Mapping[str, Any]) -> ToolText:
        """That of a function tool of the Responses API, or of anything with these fields."""
        description = function.get("description")
        text = description if isinstance(description, str) else ""
        arguments = "\n".join(_arguments(function.get("parameters"), _DEEPEST))
        return cls(str(function["name"]), text[:_MOST_CHARACTERS], arguments[:_MOST_CHARACTERS])

    def words(self) -> Counter[str]:
        """How often it has which words."""
        found = Counter(_words(self.description))
        found.update(_words(self.arguments))
        for word in _words(self.name):
            found[word] += _NAME_COUNTS
        return found


class ToolCatalogue:
    """Some function tools, by their names."""

    def __init__(self, functions: Sequence[Mapping[str, Any]]) -> None:
        self.functions = {str(function["name"]): function for function in functions}
        self.texts = [ToolText.of(function) for function in functions]

    def by_words(self, query: str, most: int = FOUND_AT_MOST) -> list[str]:
        """The names of the tools that fit the words of a query best, ranked by BM25."""
        asked = set(_words(query))
        counts = [text.words() for text in self.texts]
        total = sum(sum(one.values()) for one in counts)
        if not asked or not total:
            return []
        average = total / len(counts)
        weights = {word: _rarity(word, counts) for word in asked}
        scored = [
            (-_score(one, weights, average), place)
            for place, one in enumerate(counts)
            if not asked.isdisjoint(one)
        ]
        return [self.texts[place].name for _, place in sorted(scored)[:most]]


def _rarity(word: str, counts: Sequence[Counter[str]]) -> float:
    having = sum(word in one for one in counts)
    return math.log(1 + (len(counts) - having + 0.5) / (having + 0.5))


def _score(words: Counter[str], weights: Mapping[str, float], average: float) -> float:
    length = _K1 * (1 - _B + _B * sum(words.values()) / average)
    return sum(
        weight * words[word] * (_K1 + 1) / (words[word] + length)
        for word, weight in weights.items()
        if word in words
    )


def _words(text: str) -> list[str]:
    """The words of a text or a name (``get_weather``, ``getWeather``); plurals are as one."""
    return [_stem(word.lower()) for word in _WORD.findall(text)]


def _stem(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and word[-2] not in "su" else word


def _arguments(schema: Any, depth: int) -> Iterator[str]:
    """The names and descriptions of what a JSON schema describes."""
    if not isinstance(schema, dict) or not depth:
        return
    properties = schema.get("properties")
    for name, described in properties.items() if isinstance(properties, dict) else ():
        yield str(name)
        if isinstance(described, dict):
            if isinstance(text := described.get("description"), str):
                yield text
            yield from _arguments(described, depth - 1)
    yield from _arguments(schema.get("items"), depth - 1)
