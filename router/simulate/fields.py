"""Reading a request's JSON field by field, with an error that names the field at fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

__all__ = ["BadRequest", "Fields", "parse_object"]


class BadRequest(Exception):
    """The request cannot be answered.

    ``status`` is the HTTP status, ``param`` the path of the field at fault, if it is one's.
    """

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        status: int = 400,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status


def parse_object(body: bytes) -> Fields:
    """The fields of a JSON body; raises BadRequest where it is no JSON object."""
    try:
        raw = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"The body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(raw, dict):
        raise BadRequest("The body must be a JSON object.", code="invalid_json")
    return Fields(raw)


class Fields:
    """A JSON object whose fields are asked for by type; ``null`` counts as absent.

    Every reader raises BadRequest, naming the field, where the value is of another type.
    """

    def __init__(self, raw: Mapping[str, Any], path: str = "") -> None:
        self.raw = raw
        self.path = path

    def name(self, key: str) -> str:
        """The full path of a field, as errors show it: ``messages[0].role``."""
        return f"{self.path}.{key}" if self.path else key

    def has(self, key: str) -> bool:
        """Whether the field is there and not ``null``."""
        return self.raw.get(key) is not None

    def wrong(self, key: str, wanted: str) -> BadRequest:
        """The error for a field that is not what it must be."""
        path = self.name(key)
        return BadRequest(f"'{path}' must be {wanted}.", param=path, code="invalid_type")

    def missing(self, key: str) -> BadRequest:
        """The error for a field that must be there."""
        path = self.name(key)
        return BadRequest(
            f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter"
        )

    def string(self, key: str) -> str | None:
        """A string, or None."""
        value = self.raw.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, "a string")
        return value

    def need_string(self, key: str) -> str:
        """A string that is not empty."""
        value = self.string(key)
        if not value:
            raise self.missing(key)
        return value

    def choice(self, key: str, allowed: tuple[str, ...]) -> str | None:
        """One of a few strings, or None."""
        value = self.string(key)
        if value is not None and value not in allowed:
            raise self.invalid(key, f"one of {', '.join(allowed)}")
        return value

    def invalid(self, key: str, wanted: str) -> BadRequest:
        """The error for a value of the right type that is not allowed."""
        path = self.name(key)
        return BadRequest(f"'{path}' must be {wanted}.", param=path, code="invalid_value")

    def boolean(self, key: str, default: bool = False) -> bool:
        """True or false."""
        value = self.raw.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(key, "a boolean")
        return value

    def integer(self, key: str, least: int) -> int | None:
        """A whole number of at least ``least``, or None."""
        value = self.raw.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, "an integer")
        if value < least:
            raise self.invalid(key, f"at least {least}")
        return value

    def number(self, key: str, low: float, high: float) -> float | None:
        """A number between the two bounds, or None."""
        value = self.raw.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, "a number")
        if not low <= value <= high:
            raise self.invalid(key, f"between {low:g} and {high:g}")
        return value

    def object(self, key: str) -> Fields | None:
        """An object, or None."""
        value = self.raw.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return Fields(value, self.name(key))

    def need_object(self, key: str) -> Fields:
        """An object that must be there."""
        value = self.object(key)
        if value is None:
            raise self.missing(key)
        return value

    def objects(self, key: str) -> Iterator[Fields]:
        """The objects of a list; none where the field is absent."""
        for place, value in enumerate(self.items(key)):
            path = f"{self.name(key)}[{place}]"
            if not isinstance(value, dict):
                raise BadRequest(f"'{path}' must be an object.", param=path, code="invalid_type")
            yield Fields(value, path)

    def strings(self, key: str) -> tuple[str, ...]:
        """A string or a list of strings."""
        value = self.raw.get(key)
        if isinstance(value, str):
            return (value,)
        values = self.items(key)
        if not all(isinstance(one, str) for one in values):
            raise self.wrong(key, "a string or a list of strings")
        return tuple(values)

    def items(self, key: str) -> list[Any]:
        """A list; empty where the field is absent."""
        value = self.raw.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        return value
