"""Which parameters of a request are dropped: what an endpoint's dialect cannot carry.

A parameter is *dropped* where the client asked for something by it. It is not dropped where nothing
was asked for: a field that is null, or at its default. Nor is it where the router acts on the field
itself, whatever the endpoint speaks: it keeps the state, cuts the history, writes the stream and
accounts for who asks (``RequestField.owner``).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from router.dialects.responses.fields import IDLE_VALUES, ROUTERS
from router.errors import InvalidRequest

__all__ = [
    "DROPPED_PARAMETERS",
    "dropped_fields",
    "dropped_header",
    "is_default",
    "refuse_dropped",
]

DROPPED_PARAMETERS: Final = "X-Pointsman-Dropped-Parameters"
"""The header that names what of the request the endpoint was not sent."""

_IDLE: Final[Mapping[str, tuple[Any, ...]]] = {
    **IDLE_VALUES,
    # Of Chat Completions.
    "function_call": ("auto", "none"),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "messages": ([],),
    "modalities": (["text"], []),
    "n": (1,),
    "stop": ([], ""),
    "verbosity": ("medium",),
    # Members of fields.
    "text.verbosity": ("medium",),
}

_SHOWN: Final = 200
"""Characters of a client's value that an error repeats."""

_MOST_NAMES: Final = 32
_NAME: Final = 64
_UNFIT: Final = re.compile(r"[^\w.\[\]:-]", re.ASCII)
"""What of a client's field name does not belong into a header."""


def is_default(name: str, value: Any) -> bool:
    """Whether a field with this value asks for nothing."""
    return value is None or value in _IDLE.get(name, ())


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
