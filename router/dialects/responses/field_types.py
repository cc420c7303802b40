"""The types of a create request's fields: each as a check of a value and as a JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from router.dialects import json_schema
from router.dialects.json_schema import Schema, ref
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
from router.dialects.responses.input_items import check_items
from router.dialects.responses.message_history import check_messages
from router.dialects.responses.prompt_reference import check_prompt
from router.dialects.responses.tools import check_tool_choice, check_tools
from router.errors import InvalidRequest

__all__ = [
    "ANYTHING",
    "CACHE",
    "CONVERSATION",
    "EFFORTS",
    "FLAG",
    "INPUT",
    "MESSAGES",
    "METADATA",
    "PROMPT",
    "REASONING",
    "RESPONSE_ID",
    "STREAM_OPTIONS",
    "STRING",
    "STRINGS",
    "TEXT",
    "TOOLS",
    "TOOL_CHOICE",
    "FieldType",
    "RequestField",
    "bounded_text",
    "check_metadata",
    "count",
    "flag",
    "number",
    "word",
]

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""How much a model may reason, least first."""

_MAX_METADATA: Final = 16
_MAX_METADATA_KEY: Final = 64
_MAX_METADATA_VALUE: Final = 512


@dataclass(frozen=True, slots=True)
class FieldType:
    """The values that a field takes. Without a ``check`` the endpoint judges them. ``plain`` is a
    type of which every value passes the check.
    """

    check: Check | None
    schema: Schema
    plain: type | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestField:
    """One field of a create request.

    ``default`` is what leaving the field out means. ``echo``: a Response repeats it, ``always`` or
    only where the request ``given`` it; ``shown`` makes what is repeated of the request's value,
    which may be None. ``origin`` is whether OpenAI has the field, other servers of the Responses
    API have it (``extension``), or it is for this router alone (``router``) and never sent on.

    ``owner`` is who acts on it. What the ``router`` acts on is never reported as dropped, whatever
    the endpoint speaks. Of the others ``idle`` are the values, beside null, that ask for nothing.

    ``in_chat``: Chat Completions has a field of this name and meaning. ``to_chat`` is what becomes
    of it in a chat request: the ``same`` field, a ``translated`` one, or nothing.

    ``cached``: it may change the answer, so it is part of the cache's key. ``per_response``: in a
    Response it belongs to that one, and another with the same answer has its own. ``per_request``:
    a stored prompt cannot set it.
    """

    name: str
    type: FieldType
    description: str = ""
    default: Any = None
    echo: Literal["always", "given", "never"] = "never"
    shown: Callable[[Any], Any] | None = None
    origin: Literal["openai", "extension", "router"] = "openai"
    owner: Literal["endpoint", "router"] = "endpoint"
    idle: tuple[Any, ...] = ()
    in_chat: bool = False
    to_chat: Literal["same", "translated"] | None = None
    cached: bool = True
    per_response: bool = False
    per_request: bool = False

    @property
    def schema(self) -> Schema:
        """The JSON Schema of the field, with its description."""
        if not self.description:
            return self.type.schema
        return {**self.type.schema, "description": self.description}


def count(minimum: int, maximum: int | None = None) -> FieldType:
    """A whole number in these bounds."""
    return FieldType(integer(minimum, maximum), json_schema.integer(minimum, maximum))


def number(minimum: float, maximum: float) -> FieldType:
    """Any number in these bounds."""
    return FieldType(decimal(minimum, maximum), json_schema.number(minimum, maximum))


def word(*values: str) -> FieldType:
    """One of these strings."""
    return FieldType(one_of(*values), json_schema.enum(*values))


def flag(*, default: bool | None = None) -> FieldType:
    """true or false."""
    return FieldType(boolean, json_schema.boolean(default=default), bool)


def bounded_text(maximum: int) -> FieldType:
    """A string of at most so many characters."""
    return FieldType(bounded_string(maximum), json_schema.string(maxLength=maximum))


def _members(**members: FieldType) -> FieldType:
    """An object in which these members are checked; others pass."""
    checks = {name: member.check for name, member in members.items() if member.check is not None}

    def check(value: Any, param: str) -> None:
        object_(value, param)
        _check_members(value, param, checks)

    schemas = {name: member.schema for name, member in members.items()}
    return FieldType(check, json_schema.asked({}, schemas))


def _check_members(value: Mapping[str, Any], param: str, checks: Mapping[str, Check]) -> None:
    for name, check in checks.items():
        entry = value.get(name)
        if entry is not None:
            check(entry, f"{param}.{name}")


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
    _check_members(value, param, _JSON_SCHEMA)


_format_type = one_of("text", "json_object", "json_schema")

_JSON_SCHEMA: Final[Mapping[str, Check]] = {
    "name": string,
    "schema": object_,
    "strict": boolean,
    "description": string,
}
_CONVERSATION_ID: Final = json_schema.string(pattern="^conv_")
_SUMMARY: Final = word("auto", "concise", "detailed")

ANYTHING: Final = FieldType(None, json_schema.ANYTHING)
FLAG: Final = flag()
STRING: Final = FieldType(string, json_schema.string(), str)
STRINGS: Final = FieldType(strings, json_schema.array(json_schema.string()))
INPUT: Final = FieldType(_check_input, ref("Input"), str)
RESPONSE_ID: Final = FieldType(_check_id, json_schema.string(minLength=1))
CONVERSATION: Final = FieldType(
    _check_conversation,
    json_schema.any_of(_CONVERSATION_ID, json_schema.asked({"id": _CONVERSATION_ID})),
)
MESSAGES: Final = FieldType(check_messages, json_schema.array(ref("PreviousMessage")))
PROMPT: Final = FieldType(check_prompt, ref("PromptReference"))
METADATA: Final = FieldType(check_metadata, ref("Metadata"))
TOOLS: Final = FieldType(check_tools, json_schema.array(ref("Tool")))
TOOL_CHOICE: Final = FieldType(check_tool_choice, ref("ToolChoice"))
TEXT: Final = _members(
    format=FieldType(_check_format, ref("Format")), verbosity=word("low", "medium", "high")
)
REASONING: Final = _members(effort=word(*EFFORTS), summary=_SUMMARY, generate_summary=_SUMMARY)
STREAM_OPTIONS: Final = _members(durable=FLAG, include_obfuscation=FLAG)
CACHE: Final = FieldType(
    None,
    json_schema.asked(
        {},
        {
            "use": json_schema.boolean("Whether the cache has anything to do with the request."),
            "store": json_schema.boolean("Whether the answer may be kept."),
            "max_age": json_schema.number(0, description="How old an entry may be, in seconds."),
            "ttl": json_schema.number(
                0, description="How long the answer may be kept, in seconds."
            ),
            "threshold": json_schema.number(0, 1, "The least similarity of a stored question."),
            "semantic": json_schema.boolean("Whether a similar question's answer will do."),
            "only_if_cached": json_schema.boolean(
                "Whether no endpoint may be asked; 504 where there is no hit."
            ),
            "tags": json_schema.array(
                json_schema.string(), "Names by which to invalidate the answer.", maxItems=8
            ),
        },
        description="What the response cache may do. It is not sent to an endpoint.",
    ),
)
"""Controls of the cache, which ``cache.controls`` checks."""
