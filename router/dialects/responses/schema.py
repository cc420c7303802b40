"""The body of ``POST /v1/responses``: parsing, validation, and what its answer repeats of it.

It runs for every request, so it is driven by a table and looks at the fields that are there:
``null`` counts as absent, unknown fields pass. What may be wrong with a field is in
``fields.FIELDS``, what may be wrong between fields in ``validate_create``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from router.dialects.parameters import missing
from router.dialects.responses.fields import (
    ALWAYS_ECHOED,
    CHECKS,
    ECHOED_AS,
    ECHOED_WHERE_GIVEN,
    PLAIN_VALUES,
)
from router.errors import InvalidRequest

__all__ = ["check_fields", "echo_fields", "parse_create", "parse_object", "validate_create"]

_MAX_DEPTH: Final = 200
_EARLIER_INPUT: Final = (
    "previous_response_id",
    "conversation",
    "prompt",
    "previous_input_messages",
)


def parse_object(raw: bytes) -> dict[str, Any]:
    """A request body as an object; raise InvalidRequest (``invalid_json``, ``invalid_type``)."""
    if not raw:
        raise InvalidRequest("Invalid body: it is empty. Send a JSON object.", code="invalid_json")
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        raise InvalidRequest(
            f"Invalid body: it is not valid JSON (line {exc.lineno}, column {exc.colno}: "
            f"{exc.msg}).",
            code="invalid_json",
        ) from None
    if type(body) is not dict:
        raise InvalidRequest(
            "Invalid body: expected a JSON object, but got another type.", code="invalid_type"
        )
    if len(raw) >= 2 * _MAX_DEPTH:
        _refuse_deep(body)
    return body


def parse_create(raw: bytes) -> dict[str, Any]:
    """``parse_object`` and ``validate_create`` in one."""
    body = parse_object(raw)
    validate_create(body)
    return body


def validate_create(body: dict[str, Any]) -> None:
    """Check a parsed body; raise InvalidRequest with the code and the path of the field.

    The model may be left out where there is a prompt, which may have one.
    """
    get = body.get
    if get("conversation") is not None and get("previous_response_id") is not None:
        raise InvalidRequest(
            "Mutually exclusive parameters: send either 'previous_response_id' or "
            "'conversation', not both.",
            code="mutually_exclusive_parameters",
        )
    if get("model") in (None, "") and get("prompt") is None:
        raise missing("model")
    check_fields(body)
    if get("input") in (None, []) and not _has_earlier_input(body):
        raise missing("input")
    if get("background") is True and get("store") is False:
        raise InvalidRequest(
            "Unsupported parameter: 'background' needs 'store' to be true, because its answer is "
            "fetched later.",
            code="unsupported_parameter",
            param="background",
        )


def check_fields(body: Mapping[str, Any]) -> None:
    """Check each field by itself; raise InvalidRequest."""
    for name, value in body.items():
        if value is not None and type(value) is not PLAIN_VALUES.get(name):
            check = CHECKS.get(name)
            if check is not None:
                check(value, name)


def echo_fields(body: Mapping[str, Any], *, model: str) -> dict[str, Any]:
    """What a Response repeats of a validated request body; nothing in ``body`` is changed.

    ``model`` is the name to show. ``conversation`` and ``prompt`` are there only when the
    request has them, the former always as ``{"id"}``. Values are shared with ``body``.
    """
    echo = dict(ALWAYS_ECHOED)
    for name, value in body.items():
        if value is not None and name in ALWAYS_ECHOED:
            echo[name] = value
    echo["model"] = model
    for name, show in ECHOED_AS:
        echo[name] = show(echo[name])
    for name, shown in ECHOED_WHERE_GIVEN:
        value = body.get(name)
        if value is not None:
            echo[name] = value if shown is None else shown(value)
    return echo


def _refuse_deep(body: dict[str, Any]) -> None:
    """orjson reads 1024 levels but writes 254; translation wraps a few around what it is given."""
    level: list[Any] = [body]
    depth = 0
    while level:
        depth += 1
        if depth > _MAX_DEPTH:
            raise InvalidRequest(
                f"Invalid body: it is nested more than {_MAX_DEPTH} levels deep.",
                code="invalid_value",
            )
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) is dict or type(child) is list
        ]


def _has_earlier_input(body: Mapping[str, Any]) -> bool:
    return any(body.get(name) not in (None, []) for name in _EARLIER_INPUT)
