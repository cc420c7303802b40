"""Names of models: to Ollama, and so to clients of any API, ``x`` and ``x:latest`` are one."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final, TypeVar

__all__ = ["LATEST", "by_either_name", "fits"]

T = TypeVar("T")

LATEST: Final = ":latest"
"""The tag that may be left out."""


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
