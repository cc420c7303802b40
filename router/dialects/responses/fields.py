"""What the fields of a create request are, each declared once.

``FIELDS`` is the table. From it are derived: the checks of a request, its description in the
OpenAPI document, what a Response repeats of it, what the other dialects are sent and which
parameters are reported as dropped, what the cache's key leaves out, and what a stored prompt may
set. A field that is added here needs no other edit, except where an endpoint's dialect is to carry
it in another form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from cache.canonical import FieldRules
from router.dialects.json_schema import Schema
from router.dialects.parameters import Check
from router.dialects.responses import field_types as of
from router.dialects.responses.echo import (
    shown_conversation,
    shown_metadata,
    shown_reasoning,
    shown_text,
    shown_tools,
)
from router.dialects.responses.field_types import RequestField
from router.dialects.responses.response_messages import INPUT_MESSAGES, OUTPUT_MESSAGES
from router.dialects.responses.tools import hosted_tool_name

__all__ = [
    "ALWAYS_ECHOED",
    "CACHE_RULES",
    "CHAT_SAME",
    "CHAT_TRANSLATED",
    "CHECKS",
    "ECHOED_AS",
    "ECHOED_WHERE_GIVEN",
    "FIELDS",
    "IDLE_VALUES",
    "IN_CHAT",
    "OWN_FIELDS",
    "PER_REQUEST",
    "PLAIN_VALUES",
    "PRIVATE_FIELDS",
    "RESPONSES_FIELDS",
    "ROUTERS",
    "SCHEMAS",
]


FIELDS: Final = (
    RequestField(
        name="background",
        type=of.flag(default=False),
        description="Answer at once, and go on without the client.",
        default=False,
        echo="always",
        owner="router",
        per_response=True,
        per_request=True,
    ),
    # Says who asks, in OpenAI's own words.
    RequestField(name="client_metadata", type=of.ANYTHING, owner="router"),
    RequestField(name="context_management", type=of.ANYTHING, idle=([],)),
    RequestField(
        name="conversation",
        type=of.CONVERSATION,
        echo="given",
        shown=shown_conversation,
        owner="router",
        per_response=True,
        per_request=True,
    ),
    # OpenResponses requires that a Response repeats the penalties.
    RequestField(
        name="frequency_penalty",
        type=of.number(-2, 2),
        default=0,
        echo="always",
        origin="extension",
        idle=(0,),
    ),
    # What there is of it is there; what has none includes none.
    RequestField(
        name="include",
        type=of.STRINGS,
        owner="router",
    ),
    RequestField(name="input", type=of.INPUT, to_chat="translated"),
    RequestField(
        name="instructions",
        type=of.INPUT,
        echo="always",
        to_chat="translated",
        per_response=True,
    ),
    RequestField(name="max_output_tokens", type=of.count(1), echo="always", to_chat="translated"),
    # Bounds hosted tools, which are reported themselves.
    RequestField(name="max_tool_calls", type=of.count(1), echo="always", owner="router"),
    RequestField(
        name="model",
        type=of.STRING,
        description="A name from `/v1/models`. Without one it is that of `prompt`, of the response "
        "or conversation that is continued, or the default; without these, there is an error.",
        echo="always",
        in_chat=True,
        to_chat="translated",
        cached=False,  # it has a place of its own in the key
    ),
    RequestField(name="moderation", type=of.ANYTHING, in_chat=True, per_response=True),
    RequestField(
        name="parallel_tool_calls",
        type=of.FLAG,
        default=True,
        echo="always",
        idle=(True,),
        in_chat=True,
        to_chat="translated",
    ),
    RequestField(
        name="presence_penalty",
        type=of.number(-2, 2),
        default=0,
        echo="always",
        origin="extension",
        idle=(0,),
    ),
    RequestField(
        name="previous_response_id",
        type=of.RESPONSE_ID,
        description="Go on after this response.",
        echo="always",
        owner="router",
        per_response=True,
        per_request=True,
    ),
    RequestField(
        name="prompt",
        type=of.PROMPT,
        echo="given",
        owner="router",
        per_response=True,
        per_request=True,
    ),
    # A hint to where a prompt is in a cache.
    RequestField(
        name="prompt_cache_key",
        type=of.STRING,
        echo="always",
        owner="router",
        in_chat=True,
        to_chat="same",
        cached=False,
        per_response=True,
    ),
    RequestField(
        name="prompt_cache_options",
        type=of.ANYTHING,
        in_chat=True,
        cached=False,
        per_response=True,
    ),
    RequestField(
        name="prompt_cache_retention",
        type=of.ANYTHING,
        idle=("in_memory", "in-memory"),
        in_chat=True,
        cached=False,
        per_response=True,
    ),
    RequestField(
        name="reasoning",
        type=of.REASONING,
        echo="always",
        shown=shown_reasoning,
        to_chat="translated",
    ),
    RequestField(
        name="safety_identifier",
        type=of.bounded_text(64),
        echo="always",
        owner="router",
        in_chat=True,
        to_chat="same",
        cached=False,
        per_response=True,
    ),
    RequestField(
        name="service_tier",
        type=of.STRING,
        default="auto",
        echo="always",
        idle=("auto", "default"),
        in_chat=True,
        to_chat="same",
    ),
    RequestField(
        name="store",
        type=of.flag(default=True),
        description="Whether it can be retrieved later.",
        default=True,
        echo="always",
        owner="router",
        idle=(False,),
        cached=False,
        per_response=True,
        per_request=True,
    ),
    RequestField(
        name="stream", type=of.flag(default=False), owner="router", cached=False, per_request=True
    ),
    RequestField(
        name="stream_options",
        type=of.STREAM_OPTIONS,
        owner="router",
        cached=False,
        per_request=True,
    ),
    RequestField(
        name="switch_thinking",
        type=of.FLAG,
        description=(
            "Whether the model may think, for endpoints that can switch it: Ollama's, and those "
            "with `thinking_switch`. Others are not told."
        ),
        origin="router",
        owner="router",
    ),
    RequestField(
        name="temperature",
        type=of.number(0, 2),
        default=1.0,
        echo="always",
        in_chat=True,
        to_chat="same",
    ),
    RequestField(
        name="text",
        type=of.TEXT,
        echo="always",
        shown=shown_text,
        to_chat="translated",
    ),
    RequestField(
        name="tool_choice",
        type=of.TOOL_CHOICE,
        default="auto",
        echo="always",
        in_chat=True,
        to_chat="translated",
    ),
    RequestField(
        name="tools",
        type=of.TOOLS,
        echo="always",
        shown=shown_tools,
        idle=([],),
        in_chat=True,
        to_chat="translated",
    ),
    RequestField(
        name="top_logprobs",
        type=of.count(0, 20),
        default=0,
        echo="always",
        idle=(0,),
        in_chat=True,
        to_chat="translated",
    ),
    RequestField(
        name="top_p", type=of.number(0, 1), default=1.0, echo="always", in_chat=True, to_chat="same"
    ),
    # The history is cut here.
    RequestField(
        name="truncation",
        type=of.word("auto", "disabled"),
        default="disabled",
        echo="always",
        owner="router",
    ),
    RequestField(
        name="user",
        type=of.STRING,
        echo="always",
        owner="router",
        in_chat=True,
        to_chat="same",
        cached=False,
        per_response=True,
    ),
    RequestField(
        name="metadata",
        type=of.METADATA,
        echo="always",
        shown=shown_metadata,
        owner="router",
        in_chat=True,
        cached=False,
        per_response=True,
    ),
    RequestField(
        name="cache",
        type=of.CACHE,
        origin="router",
        owner="router",
        cached=False,
        per_request=True,
    ),
    # vLLM's: the history as messages, and the whole response as such. Made of items and made into
    # items here, so that every endpoint has them, whatever it speaks.
    RequestField(
        name="previous_input_messages",
        type=of.MESSAGES,
        description=(
            "The messages of earlier responses, as history. Not together with "
            "`previous_response_id` or `conversation`."
        ),
        origin="router",
        owner="router",
        cached=False,
        per_request=True,
    ),
    RequestField(
        name="enable_response_messages",
        type=of.flag(default=False),
        description="Show the input and the output as messages, too.",
        origin="router",
        owner="router",
        cached=False,
        per_request=True,
    ),
    RequestField(
        name="nomyo",
        type=of.ANYTHING,
        description='Another router\'s word for `cache`: `{"cache": true}`.',
        origin="router",
        owner="router",
        cached=False,
        per_request=True,
    ),
)
"""Every field, in the order in which a Response repeats them."""


def _named(wanted: Callable[[RequestField], object]) -> frozenset[str]:
    return frozenset(field.name for field in FIELDS if wanted(field))


RESPONSES_FIELDS: Final = _named(lambda field: field.origin == "openai")
"""The request fields of OpenAI's Responses API; any other belongs to the endpoint."""

PRIVATE_FIELDS: Final = _named(lambda field: field.origin == "router")
"""Fields for the router itself, never sent on."""

ROUTERS: Final = _named(lambda field: field.owner == "router")
"""Fields that the router acts on."""

IN_CHAT: Final = _named(lambda field: field.in_chat)
"""Fields that Chat Completions has, too, with the same meaning."""

CHAT_SAME: Final = tuple(field.name for field in FIELDS if field.to_chat == "same")
"""Fields that a chat endpoint is sent as they are."""

CHAT_TRANSLATED: Final = _named(lambda field: field.to_chat == "translated")
"""Fields that become others in a chat request."""

PER_REQUEST: Final = _named(lambda field: field.per_request and field.origin == "openai")
"""Fields that a stored prompt cannot set."""

OWN_FIELDS: Final = _named(lambda field: field.per_response) | {INPUT_MESSAGES, OUTPUT_MESSAGES}
"""Fields of a Response that another one with the same answer has for itself."""

CACHE_RULES: Final = FieldRules(
    ignored=_named(lambda field: not field.cached),
    defaults={field.name: field.default for field in FIELDS if field.default is not None},
    own=OWN_FIELDS,
    tool_name=hosted_tool_name,
)
"""What the response cache has to know of the fields."""

IDLE_VALUES: Final[Mapping[str, tuple[Any, ...]]] = {
    field.name: field.idle for field in FIELDS if field.idle
}
"""The values, beside null, by which a field asks for nothing."""

CHECKS: Final[Mapping[str, Check]] = {
    field.name: field.type.check for field in FIELDS if field.type.check is not None
}
"""What is checked of each field."""

PLAIN_VALUES: Final[Mapping[str, type]] = {
    field.name: field.type.plain for field in FIELDS if field.type.plain is not None
}
"""The fields of which every value of a type is valid, and that type: they need no check."""

SCHEMAS: Final[Mapping[str, Schema]] = {field.name: field.schema for field in FIELDS}
"""The JSON Schema of each field."""

ALWAYS_ECHOED: Final = {
    field.name: field.default if field.shown is None else field.shown(field.default)
    for field in FIELDS
    if field.echo == "always"
}
"""What a Response always repeats: its fields, with their defaults as they are shown."""

ECHOED_AS: Final = {
    field.name: field.shown
    for field in FIELDS
    if field.echo == "always" and field.shown is not None
}
"""How those of them are shown that are not repeated as they came."""

ECHOED_WHERE_GIVEN: Final = tuple(
    (field.name, field.shown) for field in FIELDS if field.echo == "given"
)
"""What a Response repeats where the request has it, and how it is shown (None: as it came)."""
