"""Checks of a request's parameters.

Every check takes a value that is present (``null`` counts as absent and never gets here) and the
path of its field, and raises ``InvalidRequest`` with that path as ``param``. The codes are those
of OpenAI's API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from router.errors import InvalidRequest

__all__ = [
    "Check",
    "array",
    "bad_value",
    "boolean",
    "bounded_string",
    "decimal",
    "integer",
    "missing",
    "object_",
    "one_of",
    "string",
    "strings",
    "wrong_type",
]

Check = Callable[[Any, str], None]
"""Takes a value and its path; raises InvalidRequest."""

_MAX_QUOTED: Final = 64
"""Characters of a client's value that an error repeats."""

_TYPE_NAMES: Final[dict[type, str]] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def missing(param: str) -> InvalidRequest:
    """The error for a required field that is absent or null."""
    return InvalidRequest(
        f"Missing required parameter: '{param}'.",
        code="missing_required_parameter",
        param=param,
    )


def wrong_type(param: str, expected: str, value: object) -> InvalidRequest:
    """The error for a value of another JSON type; ``expected`` is like "a string"."""
    got = _TYPE_NAMES.get(type(value), "another type")
    return InvalidRequest(
        f"Invalid type for '{param}': expected {expected}, but got {got} instead.",
        code="invalid_type",
        param=param,
    )


def bad_value(param: str, value: str, supported: Iterable[str]) -> InvalidRequest:
    """The error for a string that is not one of ``supported``."""
    names = ", ".join(f"'{name}'" for name in supported)
    return InvalidRequest(
        f"Invalid value: '{_quoted(value)}'. Supported values are: {names}.",
        code="invalid_value",
        param=param,
    )


def _quoted(value: str) -> str:
    return value if len(value) <= _MAX_QUOTED else value[:_MAX_QUOTED] + "…"


def string(value: Any, param: str) -> None:
    """A string of any length."""
    if type(value) is not str:
        raise wrong_type(param, "a string", value)


def boolean(value: Any, param: str) -> None:
    """true or false."""
    if type(value) is not bool:
        raise wrong_type(param, "a boolean", value)


def object_(value: Any, param: str) -> None:
    """An object with any members."""
    if type(value) is not dict:
        raise wrong_type(param, "an object", value)


def array(value: Any, param: str) -> None:
    """An array of anything."""
    if type(value) is not list:
        raise wrong_type(param, "an array", value)


def strings(value: Any, param: str) -> None:
    """An array of strings."""
    array(value, param)
    for i, entry in enumerate(value):
        if type(entry) is not str:
            raise wrong_type(f"{param}[{i}]", "a string", entry)


def one_of(*supported: str) -> Check:
    """A check for one of these strings."""
    allowed = frozenset(supported)

    def check(value: Any, param: str) -> None:
        if type(value) is not str:
            raise wrong_type(param, "a string", value)
        if value not in allowed:
            raise bad_value(param, value, supported)

    return check


def bounded_string(maximum: int) -> Check:
    """A check for a string of at most ``maximum`` characters."""

    def check(value: Any, param: str) -> None:
        if type(value) is not str:
            raise wrong_type(param, "a string", value)
        if len(value) > maximum:
            raise InvalidRequest(
                f"Invalid '{param}': string too long. Expected a string with maximum length "
                f"{maximum}, but got a string with length {len(value)} instead.",
                code="string_above_max_length",
                param=param,
            )

    return check


def integer(minimum: int, maximum: int | None = None) -> Check:
    """A check for a whole number in these bounds; true and 1.0 are none."""

    def check(value: Any, param: str) -> None:
        if type(value) is not int:
            raise wrong_type(param, "an integer", value)
        _in_range(value, param, "integer", minimum, maximum)

    return check


def decimal(minimum: float, maximum: float) -> Check:
    """A check for a number in these bounds; true is none."""

    def check(value: Any, param: str) -> None:
        if type(value) is not int and type(value) is not float:
            raise wrong_type(param, "a decimal number", value)
        _in_range(value, param, "decimal", minimum, maximum)

    return check


def _in_range(value: float, param: str, kind: str, minimum: float, maximum: float | None) -> None:
    if value < minimum:
        raise InvalidRequest(
            f"Invalid '{param}': {kind} below minimum value. Expected a value >= {minimum}, "
            f"but got {value} instead.",
            code=f"{kind}_below_min_value",
            param=param,
        )
    if maximum is not None and value > maximum:
        raise InvalidRequest(
            f"Invalid '{param}': {kind} above maximum value. Expected a value <= {maximum}, "
            f"but got {value} instead.",
            code=f"{kind}_above_max_value",
            param=param,
        )
