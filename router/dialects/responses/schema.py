"""The body of ``POST /v1/responses``: parsing and validation.

It runs for every request, so it is driven by a table and looks at the fields that are there:
``null`` counts as absent, unknown fields pass. What may be wrong with a field is in ``_FIELDS``,
what may be wrong between fields in ``validate_create``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from router.dialects.parameters import (
    Check,
    boolean,
    bounded_string,
    decimal,
    integer,
    missing,
    object_,
    one_of,
    string,
    strings,
    wrong_type,
)
from router.dialects.responses.echo import echo_fields
from router.dialects.responses.input_items import check_items
from router.dialects.responses.prompt_reference import check_prompt
from router.dialects.responses.tools import check_tool_choice, check_tools
from router.errors import InvalidRequest

__all__ = [
    "check_fields",
    "check_metadata",
    "echo_fields",
    "parse_create",
    "parse_object",
    "validate_create",
]

_MAX_METADATA: Final = 16
_MAX_METADATA_KEY: Final = 64
_MAX_METADATA_VALUE: Final = 512

_MAX_DEPTH: Final = 200

_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


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
    _refuse_deep(body, raw)
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
    fields = _FIELDS
    for name, value in body.items():
        if value is not None:
            check = fields.get(name)
            if check is not None:
                check(value, name)


def check_metadata(value: Any, param: str) -> None:
    """Up to 16 pairs of strings: keys of up to 64, values of up to 512 characters."""
    object_(value, param)
    if len(value) > _MAX_METADATA:
        raise InvalidRequest(
            f"Invalid '{param}': too many properties. Expected an object with at most "
            f"{_MAX_METADATA} properties, but got an object with {len(value)} properties instead.",
            code="object_above_max_properties",
            param=param,
        )
    for key, entry in value.items():
        if len(key) > _MAX_METADATA_KEY:
            raise InvalidRequest(
                f"Invalid property name in '{param}': '{key[:_MAX_METADATA_KEY]}…' is too long. "
                f"Expected a string with maximum length {_MAX_METADATA_KEY}, but got a string "
                f"with length {len(key)} instead.",
                code="property_name_above_max_length",
                param=param,
            )
        _metadata_value(entry, f"{param}.{key}")


_metadata_value = bounded_string(_MAX_METADATA_VALUE)


def _refuse_deep(body: dict[str, Any], raw: bytes) -> None:
    """orjson reads 1024 levels but writes 254; translation wraps a few around what it is given."""
    if len(raw) < 2 * _MAX_DEPTH:
        return
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
    return any(
        body.get(name) is not None for name in ("previous_response_id", "conversation", "prompt")
    )


def _check_input(value: Any, param: str) -> None:
    if type(value) is str:
        return
    if type(value) is not list:
        raise wrong_type(param, "a string or an array of input items", value)
    check_items(value, param)


def _check_conversation(value: Any, param: str) -> None:
    if type(value) is str:
        _check_conversation_id(value, param)
        return
    if type(value) is not dict:
        raise wrong_type(param, "a string or an object", value)
    if value.get("id") is None:
        raise missing(f"{param}.id")
    _check_conversation_id(value["id"], f"{param}.id")


def _check_id(value: Any, param: str) -> None:
    string(value, param)
    if not value:
        raise InvalidRequest(
            f"Invalid '{param}': empty string. Leave it out, or send null.",
            code="empty_string",
            param=param,
        )


def _check_conversation_id(value: Any, param: str) -> None:
    _check_id(value, param)
    if not value.startswith("conv_"):
        raise InvalidRequest(
            f"Invalid '{param}': expected an ID that begins with 'conv_'.",
            code="invalid_value",
            param=param,
        )


def _check_stream_options(value: Any, param: str) -> None:
    _check_fields(value, param, _STREAM_OPTIONS)


def _check_fields(value: Any, param: str, checks: Mapping[str, Check]) -> None:
    object_(value, param)
    for name, check in checks.items():
        entry = value.get(name)
        if entry is not None:
            check(entry, f"{param}.{name}")


def _check_reasoning(value: Any, param: str) -> None:
    _check_fields(value, param, _REASONING)


def _check_text(value: Any, param: str) -> None:
    _check_fields(value, param, _TEXT)


def _check_format(value: Any, param: str) -> None:
    object_(value, param)
    kind = value.get("type")
    if kind is None:
        raise missing(f"{param}.type")
    _format_type(kind, f"{param}.type")
    if kind != "json_schema":
        return
    for name in ("name", "schema"):
        if value.get(name) is None:
            raise missing(f"{param}.{name}")
    _check_fields(value, param, _JSON_SCHEMA)


_format_type = one_of("text", "json_object", "json_schema")
_summary = one_of("auto", "concise", "detailed")

_JSON_SCHEMA: Final[Mapping[str, Check]] = {
    "name": string,
    "schema": object_,
    "strict": boolean,
    "description": string,
}
_TEXT: Final[Mapping[str, Check]] = {
    "format": _check_format,
    "verbosity": one_of("low", "medium", "high"),
}
_REASONING: Final[Mapping[str, Check]] = {
    "effort": one_of(*_EFFORTS),
    "summary": _summary,
    "generate_summary": _summary,
}
_STREAM_OPTIONS: Final[Mapping[str, Check]] = {
    "durable": boolean,
    "include_obfuscation": boolean,
}
_FIELDS: Final[Mapping[str, Check]] = {
    "model": string,
    "input": _check_input,
    "instructions": _check_input,
    "previous_response_id": _check_id,
    "conversation": _check_conversation,
    "prompt": check_prompt,
    "store": boolean,
    "background": boolean,
    "stream": boolean,
    "stream_options": _check_stream_options,
    "tools": check_tools,
    "tool_choice": check_tool_choice,
    "parallel_tool_calls": boolean,
    "max_output_tokens": integer(1),
    "max_tool_calls": integer(1),
    "presence_penalty": decimal(-2, 2),
    "frequency_penalty": decimal(-2, 2),
    "top_logprobs": integer(0, 20),
    "temperature": decimal(0, 2),
    "top_p": decimal(0, 1),
    "text": _check_text,
    "reasoning": _check_reasoning,
    "metadata": check_metadata,
    "include": strings,
    "truncation": one_of("auto", "disabled"),
    "service_tier": string,
    "user": string,
    "safety_identifier": bounded_string(64),
    "prompt_cache_key": string,
}
