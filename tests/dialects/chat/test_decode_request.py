"""A request of Chat Completions as one of the Responses API."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest

from router.dialects.chat.decode_request import DecodedChat, check_translatable, decode_chat
from router.dialects.responses.schema import validate_create
from router.errors import InvalidRequest
from tests.support.schema import faults

PNG = "data:image/png;base64,iVBORw0KGgo="
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
GRAMMAR = {"definition": "start: NUMBER", "syntax": "lark"}
SUM = {
    "type": "custom",
    "custom": {
        "name": "sum",
        "description": "Adds.",
        "format": {"type": "grammar", "grammar": GRAMMAR},
    },
}
USER = {"role": "user", "content": "hi"}


def translate(*messages: Any, reasoning: bool = True, **fields: Any) -> DecodedChat:
    """A request whose translation is a valid one of the Responses API."""
    chat = {"model": "asked", "messages": list(messages) or [USER], **fields}
    before = copy.deepcopy(chat)
    check_translatable(chat)
    made = decode_chat(chat)
    if not reasoning:
        made = made.without_reasoning()
    assert chat == before
    validate_create(orjson.loads(orjson.dumps(made.body)))
    assert len(made.places) == len(made.body["input"])
    return made


def extra(**fields: Any) -> dict[str, Any]:
    """What the body has beside the model and the input."""
    body = dict(translate(**fields).body)
    assert body.pop("model") == "asked"
    assert body.pop("input") == [{"type": "message", "role": "user", "content": "hi"}]
    return body


def refused(*messages: Any, **fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        translate(*messages, **fields)
    return caught.value


SCHEMA = {"name": "n", "schema": {"type": "object"}, "strict": True}


@pytest.mark.parametrize(
    ("fields", "made"),
    [
        ({}, {}),
        ({"stream": True, "stream_options": {"include_usage": True}}, {}),
        ({"temperature": 0, "top_p": 0.5}, {"temperature": 0, "top_p": 0.5}),
        ({"temperature": None, "n": None, "tools": None, "tool_choice": None}, {}),
        ({"max_tokens": 9}, {"max_output_tokens": 9}),
        ({"max_completion_tokens": 9}, {"max_output_tokens": 9}),
        ({"max_completion_tokens": 9, "max_tokens": 5}, {"max_output_tokens": 9}),
        ({"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}),
        ({"verbosity": "low"}, {"text": {"verbosity": "low"}}),
        ({"response_format": {"type": "text"}}, {"text": {"format": {"type": "text"}}}),
        (
            {"response_format": {"type": "json_object"}},
            {"text": {"format": {"type": "json_object"}}},
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
            {"text": {"format": {"type": "json_schema", **SCHEMA}}},
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
            {
                "text": {
                    "format": {
                        "type": "json_schema",
                        "name": "n",
                        "schema": {"type": "object"},
                        "strict": False,
                    }
                }
            },
        ),
        ({"logprobs": True}, {"include": ["message.output_text.logprobs"]}),
        (
            {"logprobs": True, "top_logprobs": 2},
            {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
        ),
        ({"logprobs": False, "top_logprobs": 2}, {}),
        (
            {"user": "u", "metadata": {"a": "b"}, "service_tier": "flex"},
            {"user": "u", "metadata": {"a": "b"}, "service_tier": "flex"},
        ),
        (
            {"prompt_cache_key": "k", "safety_identifier": "s", "parallel_tool_calls": False},
            {"prompt_cache_key": "k", "safety_identifier": "s", "parallel_tool_calls": False},
        ),
        # What Responses have no field for is left to the endpoint's translation.
        (
            {"stop": ["x"], "seed": 1, "n": 2, "logit_bias": {"1": 2}, "top_k": 3},
            {"stop": ["x"], "seed": 1, "n": 2, "logit_bias": {"1": 2}, "top_k": 3},
        ),
        ({"functions": [], "function_call": "auto", "store": False}, {}),
    ],
)
def test_fields(fields: dict[str, Any], made: dict[str, Any]) -> None:
    assert extra(**fields) == made
    assert translate(**fields).dropped == ()


@pytest.mark.parametrize(
    ("fields", "dropped"),
    [
        ({"store": True}, ("store",)),
        ({"input": "x", "instructions": "y"}, ("input", "instructions")),
        ({"previous_response_id": "resp_1"}, ("previous_response_id",)),
        ({"text": {"verbosity": "low"}, "include": None}, ("text",)),
    ],
)
def test_what_a_chat_has_no_field_for_is_named(
    fields: dict[str, Any], dropped: tuple[str, ...]
) -> None:
    assert extra(**fields) == {}
    assert translate(**fields).dropped == dropped


def test_a_name_is_named_once() -> None:
    made = translate(USER, {**USER, "name": "ann"}, {**USER, "name": "bob"})
    assert made.dropped == ("messages[1].name",)


def test_tools() -> None:
    plain = {"type": "function", "function": {"name": "ping"}}
    assert extra(tools=[WEATHER, SUM, plain])["tools"] == [
        {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": False},
        {
            "type": "custom",
            "name": "sum",
            "description": "Adds.",
            "format": {"type": "grammar", **GRAMMAR},
        },
        {"type": "function", "name": "ping", "parameters": None, "strict": False},
    ]


NAMED = {"type": "function", "name": "weather"}


@pytest.mark.parametrize(
    ("choice", "made"),
    [
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "function": {"name": "weather"}}, NAMED),
        ({"type": "custom", "custom": {"name": "sum"}}, {"type": "custom", "name": "sum"}),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "weather"}}],
                },
            },
            {"type": "allowed_tools", "mode": "required", "tools": [NAMED]},
        ),
    ],
)
def test_tool_choice(choice: Any, made: Any) -> None:
    assert extra(tools=[WEATHER, SUM], tool_choice=choice)["tool_choice"] == made


def call(ident: str, name: str = "weather", arguments: str = "{}") -> dict[str, Any]:
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Look"},
            {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
            {"type": "image_url", "image_url": {"url": PNG}},
            {"type": "file", "file": {"file_data": "data:text/plain,x", "filename": "a.txt"}},
        ],
    },
    {
        "role": "assistant",
        "content": "Well.",
        "reasoning_content": "Hm.",
        "tool_calls": [
            call("a"),
            {"id": "b", "type": "custom", "custom": {"name": "sum", "input": "1+1"}},
        ],
    },
    {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "2"}]},
    {"role": "tool", "tool_call_id": "a", "content": "sunny"},
    {"role": "assistant", "content": None, "refusal": "No."},
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}],
    },
    {"role": "assistant", "content": None},
]
ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "system", "content": "Be brief."},
    {
        "type": "message",
        "role": "developer",
        "content": [{"type": "input_text", "text": "Be kind."}],
    },
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_text", "text": "Look"},
            {"type": "input_image", "image_url": PNG, "detail": "low"},
            {"type": "input_image", "image_url": PNG, "detail": "auto"},
            {"type": "input_file", "file_data": "data:text/plain,x", "filename": "a.txt"},
        ],
    },
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
    {"type": "message", "role": "assistant", "content": "Well."},
    {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"},
    {"type": "custom_tool_call", "call_id": "b", "name": "sum", "input": "1+1"},
    {
        "type": "custom_tool_call_output",
        "call_id": "b",
        "output": [{"type": "input_text", "text": "2"}],
    },
    {"type": "function_call_output", "call_id": "a", "output": "sunny"},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "refusal", "refusal": "No."}],
    },
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "A"}, {"type": "output_text", "text": "B"}],
    },
    {"type": "message", "role": "assistant", "content": ""},
]
PLACES = [
    "messages[0]",
    "messages[1]",
    "messages[2]",
    "messages[3]",
    "messages[3]",
    "messages[3].tool_calls[0]",
    "messages[3].tool_calls[1]",
    "messages[4]",
    "messages[5]",
    "messages[6]",
    "messages[7]",
    "messages[8]",
]


def test_a_conversation() -> None:
    made = translate(*CONVERSATION)
    assert made.body["input"] == ITEMS
    assert [made.named(f"input[{index}]") for index in range(len(ITEMS))] == PLACES
    silent = translate(*CONVERSATION, reasoning=False)
    assert silent.body["input"] == [item for item in ITEMS if item["type"] != "reasoning"]


def test_what_is_made_is_as_the_published_description_has_it() -> None:
    made = translate(USER, tools=[WEATHER, SUM], max_tokens=20, verbosity="low", logprobs=True)
    assert faults("CreateResponse", made.body) == []


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ("input", "messages"),
        ("input[2].content[1].image_url", "messages[2].content[1].image_url.url"),
        ("input[2].content[3].file_data", "messages[2].content[3].file.file_data"),
        ("input[6].name", "messages[3].tool_calls[1].name"),
        ("input[8].output", "messages[5].content"),
        ("input[99]", "messages"),
        ("max_output_tokens", "max_completion_tokens"),
        ("text.format", "response_format"),
        ("text.format.schema", "response_format.schema"),
        ("text.verbosity", "verbosity"),
        ("reasoning", "reasoning_effort"),
        ("reasoning.effort", "reasoning_effort"),
        ("tools[1].parameters.type", "tools[1].function.parameters.type"),
        ("temperature", "temperature"),
    ],
)
def test_an_endpoints_complaint_is_told_in_the_chats_words(field: str, named: str) -> None:
    assert translate(*CONVERSATION, max_completion_tokens=9).named(field) == named


@pytest.mark.parametrize(
    ("message", "param", "code"),
    [
        ({}, "role", "missing_required_parameter"),
        ({"role": 5, "content": "x"}, "role", "invalid_type"),
        ({"role": "robot", "content": "x"}, "role", "invalid_value"),
        ({"role": "function", "name": "f", "content": "x"}, "role", "unsupported_value"),
        ({"role": "user"}, "content", "missing_required_parameter"),
        ({"role": "user", "content": 5}, "content", "invalid_type"),
        ({"role": "user", "content": ["x"]}, "content[0]", "invalid_type"),
        ({"role": "user", "content": [{}]}, "content[0].type", "missing_required_parameter"),
        ({"role": "user", "content": [{"type": "video"}]}, "content[0].type", "invalid_value"),
        (
            {"role": "user", "content": [{"type": "text"}]},
            "content[0].text",
            "missing_required_parameter",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": "x"}]},
            "content[0].image_url",
            "invalid_type",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
            "content[0].image_url.url",
            "missing_required_parameter",
        ),
        (
            {"role": "user", "content": [{"type": "file", "file": {"filename": "a"}}]},
            "content[0].file.file_data",
            "missing_required_parameter",
        ),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]},
            "content[0]",
            "unsupported_value",
        ),
        (
            {"role": "system", "content": [{"type": "image_url"}]},
            "content[0].type",
            "invalid_value",
        ),
        ({"role": "tool", "content": "x"}, "tool_call_id", "missing_required_parameter"),
        ({"role": "assistant", "tool_calls": {}}, "tool_calls", "invalid_type"),
        ({"role": "assistant", "tool_calls": ["x"]}, "tool_calls[0]", "invalid_type"),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "type": "magic"}]},
            "tool_calls[0].type",
            "invalid_value",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}]},
            "tool_calls[0].function.arguments",
            "missing_required_parameter",
        ),
        (
            {"role": "assistant", "function_call": {"name": "f", "arguments": ""}},
            "function_call",
            "unsupported_value",
        ),
        ({"role": "assistant", "audio": {"id": "a"}}, "audio", "unsupported_value"),
        ({"role": "assistant", "refusal": 5}, "refusal", "invalid_type"),
    ],
)
def test_a_message_at_fault_is_named(message: Any, param: str, code: str) -> None:
    error = refused(USER, message)
    assert (error.param, error.code) == (f"messages[1].{param}", code)


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"messages": []}, "messages", "empty_array"),
        ({"temperature": 3}, "temperature", "decimal_above_max_value"),
        ({"max_tokens": "many"}, "max_tokens", "invalid_type"),
        ({"reasoning_effort": "huge"}, "reasoning_effort", "invalid_value"),
        ({"stop": [5]}, "stop[0]", "invalid_type"),
        ({"tools": [{"type": "magic"}]}, "tools[0].type", "invalid_value"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "missing_required_parameter"),
        (
            {"tools": [{"type": "function", "function": {"name": ""}}]},
            "tools[0].function.name",
            "invalid_value",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
            "tools[0].function.parameters",
            "invalid_type",
        ),
        (
            {"tools": [{"type": "custom", "custom": {"name": "c", "format": {"type": "grammar"}}}]},
            "tools[0].custom.format.grammar",
            "missing_required_parameter",
        ),
        ({"tool_choice": "maybe"}, "tool_choice", "invalid_value"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function", None),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "x"}}},
            "tool_choice.allowed_tools.mode",
            "invalid_value",
        ),
        ({"response_format": {"type": "grammar"}}, "response_format.type", "invalid_value"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            "response_format.json_schema.name",
            "missing_required_parameter",
        ),
        ({"functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
        ({"function_call": {"name": "f"}}, "function_call", "unsupported_parameter"),
        ({"modalities": ["text", "audio"]}, "modalities", "unsupported_parameter"),
        ({"audio": {"voice": "x"}}, "audio", "unsupported_parameter"),
    ],
)
def test_a_field_at_fault_is_named(fields: dict[str, Any], param: str, code: str | None) -> None:
    error = refused(**fields)
    assert (error.param, error.code) == (param, code or "missing_required_parameter")
