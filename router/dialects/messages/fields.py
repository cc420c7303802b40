"""Reading the fields of a request of Anthropic's API; its words for what is wrong with one.

A path is written as that API writes it: ``messages.0.content.1.type``. ``null`` counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from router.errors import InvalidRequest

__all__ = ["bad", "given", "need", "number", "objects", "one_of", "refused", "required", "typed"]

T = TypeVar("T")

_SHOWN: Final = 64
"""Characters of a client's value that an error repeats."""

_WORDS: Final[Mapping[type, str]] = {
    str: "a valid string",
    bool: "a valid boolean",
    int: "a valid integer",
    list: "a valid array",
    dict: "an object",
}


def bad(path: str, message: str, code: str = "invalid_value") -> InvalidRequest:
    """The error for the field at this path."""
    return InvalidRequest(f"{path}: {message}", code=code, param=path)


def required(path: str) -> InvalidRequest:
    """The error for a field that is not there."""
    return bad(path, "Field required", "missing_required_parameter")


def refused(path: str, what: str, instead: str) -> InvalidRequest:
    """The error for what is well in that API, and cannot be had here."""
    return bad(path, f"{what} cannot be served here. {instead}", "unsupported_value")


def typed(value: Any, kind: type[T], path: str) -> T:
    """The value, which has to be of this type."""
    if type(value) is not kind:
        raise bad(path, f"Input should be {_WORDS[kind]}", "invalid_type")
    return value


def need(holder: Mapping[str, Any], name: str, kind: type[T], where: str) -> T:
    """A required field of the object at the path ``where``."""
    value = holder.get(name)
    path = f"{where}.{name}" if where else name
    if value is None:
        raise required(path)
    return typed(value, kind, path)


def given(holder: Mapping[str, Any], name: str, kind: type[T], where: str) -> T | None:
    """A field that may be absent."""
    value = holder.get(name)
    if value is None:
        return None
    return typed(value, kind, f"{where}.{name}" if where else name)


def objects(value: list[Any], where: str) -> Iterable[tuple[str, dict[str, Any]]]:
    """Each entry of a list, which has to be an object, with its path."""
    for index, entry in enumerate(value):
        path = f"{where}.{index}"
        yield path, typed(entry, dict, path)


def one_of(value: str, names: Iterable[str], path: str) -> str:
    """The value, which has to be one of ``names``."""
    names = tuple(names)
    if value not in names:
        known = ", ".join(f"'{name}'" for name in names)
        shown = value if len(value) <= _SHOWN else value[:_SHOWN] + "…"
        raise bad(path, f"Input should be one of {known}, not '{shown}'")
    return value


def number(holder: Mapping[str, Any], name: str, maximum: float) -> float | None:
    """A number from 0 to ``maximum`` that may be absent."""
    value = holder.get(name)
    if value is None:
        return None
    if type(value) is not int and type(value) is not float:
        raise bad(name, "Input should be a valid number", "invalid_type")
    if not 0 <= value <= maximum:
        raise bad(name, f"Input should be from 0 to {maximum:g}")
    return value
