"""Names of models: to Ollama, and so to clients of any API, ``x`` and ``x:latest`` are one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final, Generic, TypeVar

__all__ = ["LATEST", "Patterns", "by_either_name", "fits", "is_pattern"]

T = TypeVar("T")

LATEST: Final = ":latest"
"""The tag that may be left out."""


_WILDCARD: Final = re.compile(r"\*|\?|\[[^\]]*\]")


def is_pattern(name: str) -> bool:
    """Whether this stands for several names, as the shell has it (``*``, ``?`` and ``[…]``)."""
    return any(sign in name for sign in "*?[")


def fits(model: str, pattern: str) -> bool:
    """Whether a model is meant by a name, or a pattern of names."""
    if fnmatchcase(model, pattern) or model + LATEST == pattern:
        return True
    return model.endswith(LATEST) and fnmatchcase(model.removesuffix(LATEST), pattern)


def by_either_name(given: Mapping[str, T]) -> dict[str, T]:
    """What is given by a model's name, by its other name too."""
    return {other: value for name, value in given.items() if (other := _other(name))} | {**given}


def _other(name: str) -> str | None:
    if name.endswith(LATEST):
        return name.removesuffix(LATEST)
    return None if ":" in name.rpartition("/")[2] else name + LATEST


class Patterns(Generic[T]):
    """What is given by patterns of names; names that are none are left out.

    Of several patterns that fit, the one counts that says the most: that has the most characters
    beside its wildcards, then the fewest ``*``, then the first.
    """

    __slots__ = ("_given",)

    def __init__(self, given: Mapping[str, T]) -> None:
        patterns = [(name, value) for name, value in given.items() if is_pattern(name)]
        self._given = tuple(sorted(patterns, key=lambda one: _specificity(one[0])))

    def __bool__(self) -> bool:
        return bool(self._given)

    def find(self, model: str) -> tuple[str, T] | None:
        """The pattern that fits a model, and what is given by it."""
        return next((one for one in self._given if fits(model, one[0])), None)


def _specificity(pattern: str) -> tuple[int, int]:
    return -len(_WILDCARD.sub("", pattern)), pattern.count("*")
