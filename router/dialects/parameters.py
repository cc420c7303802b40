"""Parameters of a request: checks of their values, and which of them are dropped.

Every check takes a value that is present (``null`` counts as absent and never gets here) and the
path of its field, and raises ``InvalidRequest`` with that path as ``param``. The codes are those
of OpenAI's API.

A parameter is *dropped* where the client asked for something by it that the endpoint's dialect
cannot carry. It is not dropped where nothing was asked for: a field that is null, or at its
default. Nor is it where the field is the router's affair, who sees to it whatever the endpoint
speaks:

=========================================  ========================================================
``store``, ``metadata``, ``background``,   the state is kept here
``previous_response_id``, ``conversation``,
``prompt``
``truncation``                             the history is cut here
``stream``, ``stream_options``             the stream is written here
``include``                                what there is of it is there; what has none includes none
``prompt_cache_key``                       a hint to where a prompt is in a cache
``client_metadata``                        says who asks, in OpenAI's own words
``user``, ``safety_identifier``            say who asks; keys and limits are kept here
``max_tool_calls``                         bounds hosted tools, which are named themselves
``reasoning.summary``                      the reasoning itself is told, where there is any
``cache``, ``nomyo``                       are for the router's cache
=========================================  ========================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from router.errors import InvalidRequest

__all__ = [
    "DROPPED_PARAMETERS",
    "ROUTERS",
    "Check",
    "array",
    "bad_value",
    "boolean",
    "bounded_string",
    "decimal",
    "dropped_fields",
    "dropped_header",
    "integer",
    "is_default",
    "missing",
    "object_",
    "one_of",
    "refuse_dropped",
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


DROPPED_PARAMETERS: Final = "X-Pointsman-Dropped-Parameters"
"""The header that names what of the request the endpoint was not sent."""

ROUTERS: Final = frozenset(
    {
        "background",
        "cache",
        "client_metadata",
        "conversation",
        "include",
        "max_tool_calls",
        "metadata",
        "nomyo",
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "safety_identifier",
        "store",
        "stream",
        "stream_options",
        "truncation",
        "user",
    }
)
"""Fields that the router sees to; see the module."""

_DEFAULTS: Final[Mapping[str, tuple[Any, ...]]] = {
    "context_management": ([],),
    "frequency_penalty": (0,),
    "function_call": ("auto", "none"),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "messages": ([],),
    "modalities": (["text"], []),
    "n": (1,),
    "parallel_tool_calls": (True,),
    "presence_penalty": (0,),
    "prompt_cache_retention": ("in_memory", "in-memory"),
    "service_tier": ("auto", "default"),
    "stop": ([], ""),
    "store": (False,),
    "text.verbosity": ("medium",),
    "tools": ([],),
    "top_logprobs": (0,),
    "verbosity": ("medium",),
}

_SHOWN: Final = 200
"""Characters of a client's value that an error repeats."""

_MOST_NAMES: Final = 32
_NAME: Final = 64
_UNFIT: Final = re.compile(r"[^\w.\[\]:-]", re.ASCII)
"""What of a client's field name does not belong into a header."""


def is_default(name: str, value: Any) -> bool:
    """Whether a field with this value asks for nothing."""
    return value is None or value in _DEFAULTS.get(name, ())


def dropped_fields(body: Mapping[str, Any], carried: Container[str]) -> Iterator[str]:
    """The fields of the body that ask for something, but for those in ``carried``."""
    for name, value in body.items():
        if name not in carried and name not in ROUTERS and not is_default(name, value):
            yield name


def dropped_header(names: Iterable[str]) -> dict[str, str]:
    """The header that names what was not sent; none where everything was."""
    fit = list(dict.fromkeys(_UNFIT.sub("?", name[:_NAME]) for name in names))
    if len(fit) > _MOST_NAMES:
        fit[_MOST_NAMES:] = ["..."]
    return {DROPPED_PARAMETERS: ", ".join(fit)} if fit else {}


def refuse_dropped(names: Sequence[str], body: Mapping[str, Any]) -> None:
    """Raise InvalidRequest for the first of the fields, or types of tools, that are not sent."""
    for name in names:
        shown = name[:_SHOWN]
        raise InvalidRequest(
            f"Unsupported parameter: '{shown}' cannot be sent to an endpoint that serves this "
            "model. Leave it out, or have it left out with server.unsupported: lenient.",
            code="unsupported_parameter",
            param=_param(shown, body),
        )


def _param(name: str, body: Mapping[str, Any]) -> str:
    tools = body.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and tool.get("type") == name:
            return f"tools[{index}]"
    return name
