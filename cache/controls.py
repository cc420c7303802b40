"""What a request asks of the cache, within what the configuration allows.

A request says it in the header ``Cache-Control``, in the body's ``cache``, or, for those who come
from NOMYO Router, in ``nomyo: {"cache": true}``. Where the mode is ``on-request`` it may ask for
the cache; apart from that it can only be stricter than the configuration, and where it says
several things, the strictest counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

__all__ = ["CachePolicy", "Controls", "ControlsError", "read_controls"]

_MAX_TAGS: Final = 8
_MAX_TAG: Final = 64
_SHOWN: Final = 64
"""Characters of a client's value that an error repeats."""

_FOREVER: Final = 2.0**31
"""Seconds; no longer age is told from it (RFC 9111, 1.2.2)."""

_FIELDS: Final = frozenset(
    {"use", "store", "max_age", "ttl", "threshold", "semantic", "only_if_cached", "tags"}
)
_TYPE_NAMES: Final[dict[type, str]] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal number",
    list: "an array",
    dict: "an object",
}

_SECONDS: Final = re.compile(r"[0-9]+")
_DIRECTIVE: Final = re.compile(r"""(?:[^,"]++|"(?:[^"\\]|\\.)*+(?:"|\\?\Z))++""", re.DOTALL)
"""What stands between commas; within quotes, which may be left open, a comma is none."""


class ControlsError(ValueError):
    """The request's controls are wrong; ``param`` is the path of the field."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param
        self.message = message


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """What the configuration says. ``ttl`` is in seconds, ``threshold`` a cosine similarity.

    ``sampled``: requests with an explicit temperature above 0 may get a similar question's
    answer, too.
    """

    mode: Literal["on-request", "always"]
    ttl: float
    threshold: float
    semantic: bool
    sampled: bool = False


@dataclass(frozen=True, slots=True)
class Controls:
    """What is to be done for one request.

    ``asked`` is whether the cache has anything to do with it, ``lookup`` whether it may be
    answered from there, by an entry of at most ``max_age`` seconds, ``store`` whether its answer
    may be kept, for ``ttl`` seconds. ``only_if_cached``: it is answered from there or not at all.
    """

    asked: bool
    lookup: bool
    store: bool
    only_if_cached: bool
    max_age: float | None
    ttl: float
    threshold: float
    semantic: bool
    tags: tuple[str, ...]


@dataclass(slots=True)
class _RequestedControls:
    """What a request says, whatever the configuration says to it."""

    use: bool | None = None
    lookup: bool = True
    store: bool = True
    only_if_cached: bool = False
    max_age: float | None = None
    ttl: float | None = None
    threshold: float | None = None
    semantic: bool = True
    tags: tuple[str, ...] = field(default=())

    def asks(self) -> None:
        """It asks for the cache, unless it has refused it."""
        if self.use is None:
            self.use = True

    def age(self, seconds: float) -> None:
        """No entry may be older."""
        self.max_age = seconds if self.max_age is None else min(self.max_age, seconds)
        self.lookup = self.lookup and seconds > 0


def read_controls(
    policy: CachePolicy, cache_control: str | None, cache: Any, nomyo: Any
) -> Controls:
    """The controls in the header (several joined by commas), and in these two body fields.

    Raises ControlsError. What is wrong in the header is ignored.
    """
    if cache_control is None and cache is None and nomyo is None:
        return _unasked(policy, use=policy.mode == "always")
    wishes = _RequestedControls()
    if cache is not None:
        _read_cache(cache, wishes)
    if nomyo is not None:
        _read_nomyo(nomyo, wishes)
    if cache_control is not None:
        _read_header(cache_control, wishes)
    asked = policy.mode == "always" if wishes.use is None else wishes.use
    ttl = policy.ttl if wishes.ttl is None else min(policy.ttl, wishes.ttl)
    threshold = policy.threshold
    if wishes.threshold is not None:
        threshold = max(threshold, wishes.threshold)
    return Controls(
        asked=asked,
        lookup=asked and wishes.lookup,
        store=asked and wishes.store and ttl > 0,
        only_if_cached=asked and wishes.only_if_cached,
        max_age=wishes.max_age,
        ttl=ttl,
        threshold=threshold,
        semantic=policy.semantic and wishes.semantic,
        tags=wishes.tags,
    )


def _unasked(policy: CachePolicy, *, use: bool) -> Controls:
    return Controls(
        asked=use,
        lookup=use,
        store=use and policy.ttl > 0,
        only_if_cached=False,
        max_age=None,
        ttl=policy.ttl,
        threshold=policy.threshold,
        semantic=policy.semantic,
        tags=(),
    )


def _read_cache(cache: Any, wishes: _RequestedControls) -> None:
    if type(cache) is bool:
        wishes.use = cache
        return
    if type(cache) is not dict:
        raise _wrong_type("cache", "a boolean or an object", cache)
    given = {}
    for name, value in cache.items():
        if name not in _FIELDS:
            param = f"cache.{name[:_SHOWN]}"
            raise ControlsError(param, f"Unknown parameter: '{param}'.")
        if value is not None:
            given[name] = value
    wishes.use = _boolean(given, "use", default=True)
    wishes.store = _boolean(given, "store", default=True)
    wishes.semantic = _boolean(given, "semantic", default=True)
    wishes.only_if_cached = _boolean(given, "only_if_cached", default=False)
    wishes.ttl = _number(given, "ttl")
    wishes.threshold = _number(given, "threshold", maximum=1)
    age = _number(given, "max_age")
    if age is not None:
        wishes.age(age)
    if "tags" in given:
        wishes.tags = _tags(given["tags"])


def _read_nomyo(nomyo: Any, wishes: _RequestedControls) -> None:
    if type(nomyo) is not dict:
        raise _wrong_type("nomyo", "an object", nomyo)
    wanted = nomyo.get("cache")
    if wanted is None:
        return
    if type(wanted) is not bool:
        raise _wrong_type("nomyo.cache", "a boolean", wanted)
    wishes.use = wanted and wishes.use is not False


def _read_header(header: str, wishes: _RequestedControls) -> None:
    for name, argument in _directives(header):
        if name == "no-cache":
            wishes.lookup = False
        elif name == "no-store":
            wishes.store = False
        elif name == "only-if-cached":
            wishes.only_if_cached = True
            wishes.asks()
        elif name == "max-age" and _SECONDS.fullmatch(argument):
            digits = argument.lstrip("0")
            seconds = _FOREVER if len(digits) > 10 else min(float(digits or 0), _FOREVER)
            wishes.age(seconds)
            if seconds > 0:
                wishes.asks()


def _directives(header: str) -> Iterator[tuple[str, str]]:
    """Names in lower case, and arguments without their quotes."""
    for match in _DIRECTIVE.finditer(header):
        name, _, argument = match[0].partition("=")
        argument = argument.strip()
        if len(argument) > 1 and argument[0] == argument[-1] == '"':
            argument = argument[1:-1]
        yield name.strip().lower(), argument


def _boolean(given: dict[str, Any], name: str, *, default: bool) -> bool:
    value = given.get(name, default)
    if type(value) is not bool:
        raise _wrong_type(f"cache.{name}", "a boolean", value)
    return value


def _number(given: dict[str, Any], name: str, *, maximum: float | None = None) -> float | None:
    value = given.get(name)
    if value is None:
        return None
    param = f"cache.{name}"
    if type(value) is not int and type(value) is not float:
        raise _wrong_type(param, "a number", value)
    if not (type(value) is int or math.isfinite(value)):
        raise ControlsError(param, f"Invalid '{param}': expected a finite number.")
    if value < 0:
        raise _out_of_range(param, "below minimum", ">= 0", value)
    if maximum is not None and value > maximum:
        raise _out_of_range(param, "above maximum", f"<= {maximum}", value)
    return float(min(value, _FOREVER))


def _tags(value: Any) -> tuple[str, ...]:
    if type(value) is not list:
        raise _wrong_type("cache.tags", "an array", value)
    if len(value) > _MAX_TAGS:
        raise ControlsError(
            "cache.tags",
            f"Invalid 'cache.tags': array too long. Expected an array with maximum length "
            f"{_MAX_TAGS}, but got an array with length {len(value)} instead.",
        )
    for i, tag in enumerate(value):
        param = f"cache.tags[{i}]"
        if type(tag) is not str:
            raise _wrong_type(param, "a string", tag)
        if len(tag) > _MAX_TAG:
            raise ControlsError(
                param,
                f"Invalid '{param}': string too long. Expected a string with maximum length "
                f"{_MAX_TAG}, but got a string with length {len(tag)} instead.",
            )
        if not tag or not tag.isprintable():
            raise ControlsError(
                param, f"Invalid '{param}': expected at least one character, all printable."
            )
    return tuple(dict.fromkeys(value))


def _wrong_type(param: str, expected: str, value: Any) -> ControlsError:
    got = _TYPE_NAMES.get(type(value), "another type")
    return ControlsError(
        param, f"Invalid type for '{param}': expected {expected}, but got {got} instead."
    )


def _out_of_range(param: str, where: str, expected: str, value: float) -> ControlsError:
    kind = "integer" if type(value) is int else "decimal"
    return ControlsError(
        param,
        f"Invalid '{param}': {kind} {where} value. Expected a value {expected}, but got {value} "
        "instead.",
    )
