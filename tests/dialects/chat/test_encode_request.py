"""Requests of the Responses API as Chat Completions."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.chat.encode_request import custom_tool_names, encode_for_chat
from router.dialects.responses.fields import PRIVATE_FIELDS, RESPONSES_FIELDS
from router.dialects.responses.schema import validate_create
from router.errors import InvalidRequest
from router.settings.schema import EndpointSettings
from tests.support.chat import encoded

PARAMETERS = {
    "type": "object",
    "properties": {"location": {"type": "string"}},
    "required": ["location"],
}
WEATHER = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}
PING = {"type": "function", "name": "ping"}
SEARCH = {"type": "web_search"}

CHAT_WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": PARAMETERS, "strict": True},
}
CHAT_PING = {
    "type": "function",
    "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}},
}


def translate(
    *, model: str = "served", stream: bool = False, **fields: Any
) -> tuple[dict[str, Any], tuple[str, ...]]:
    body = {"model": "asked", "input": "hi", **fields}
    validate_create(body)
    before = copy.deepcopy(body)
    chat, dropped = encoded(body, model=model, stream=stream)
    assert body == before
    orjson.dumps(chat)
    return chat, dropped


def extra(**fields: Any) -> dict[str, Any]:
    """What the chat body has beside the model and the one message."""
    chat, _ = translate(**fields)
    assert chat.pop("model") == "served"
    assert chat.pop("messages") == [{"role": "user", "content": "hi"}]
    return chat


def test_the_least() -> None:
    assert extra() == {}


def test_a_stream_asks_for_its_usage() -> None:
    assert extra(stream=True, stream_options={"include_obfuscation": False}) == {
        "stream": True,
        "stream_options": {"include_usage": True},
    }


SCHEMA = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({"temperature": 0, "top_p": 0.5}, {"temperature": 0, "top_p": 0.5}),
        ({"max_output_tokens": 16}, {"max_tokens": 16}),
        ({"max_output_tokens": 16, "max_tokens": 99}, {"max_tokens": 16}),
        ({"max_output_tokens": 16, "max_completion_tokens": 99}, {"max_tokens": 16}),
        ({"max_tokens": 99}, {"max_tokens": 99}),
        ({"max_output_tokens": None, "max_tokens": 99}, {"max_tokens": 99}),
        (
            {"user": "u", "service_tier": "flex", "prompt_cache_key": "k"},
            {"user": "u", "service_tier": "flex", "prompt_cache_key": "k"},
        ),
        ({"safety_identifier": "s"}, {"safety_identifier": "s"}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
        ({"reasoning": {"effort": None}}, {}),
        ({"switch_thinking": False}, {}),
        ({"text": {"verbosity": "low"}}, {"verbosity": "low"}),
        ({"text": {"format": {"type": "text"}}}, {}),
        (
            {"text": {"format": {"type": "json_object"}}},
            {"response_format": {"type": "json_object"}},
        ),
        (
            {"text": {"format": SCHEMA}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {"type": "object"}},
                }
            },
        ),
        (
            {"text": {"format": {**SCHEMA, "strict": True, "description": "d"}}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "n",
                        "description": "d",
                        "schema": {"type": "object"},
                        "strict": True,
                    },
                }
            },
        ),
        ({"top_logprobs": 0}, {}),
        ({"top_logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
        ({"include": ["message.output_text.logprobs"]}, {"logprobs": True}),
        ({"include": ["reasoning.encrypted_content"]}, {}),
        (
            {"seed": 1, "top_k": 5, "stop": ["x"], "chat_template_kwargs": {"a": 1}},
            {"seed": 1, "top_k": 5, "stop": ["x"], "chat_template_kwargs": {"a": 1}},
        ),
        ({"seed": None}, {}),
        ({"cache": {"ttl": 5}, "nomyo": {"cache": True}}, {}),
        ({"messages": [], "n": 4, "functions": [], "function_call": "auto"}, {}),
        (
            {
                "store": True,
                "background": False,
                "previous_response_id": "resp_1",
                "prompt": {"id": "p"},
                "include": [],
                "truncation": "auto",
                "context_management": [],
                "moderation": {},
                "metadata": {"a": "b"},
                "max_tool_calls": 3,
            },
            {},
        ),
        ({"parallel_tool_calls": False}, {}),
        ({"tools": []}, {}),
    ],
)
def test_fields(fields: dict[str, Any], sent: dict[str, Any]) -> None:
    assert extra(**fields) == sent


@pytest.mark.parametrize(
    ("model", "field"),
    [
        ("gpt-4o-mini", "max_tokens"),
        ("gpt-oss-120b", "max_tokens"),
        ("openai/gpt-oss-20b", "max_tokens"),
        ("mistral-large", "max_tokens"),
        ("olmo-2", "max_tokens"),
        ("o3-mini", "max_completion_tokens"),
        ("openai/gpt-5-mini", "max_completion_tokens"),
    ],
)
def test_the_limit_has_the_name_the_model_knows(model: str, field: str) -> None:
    chat, _ = translate(model=model, max_output_tokens=16)
    assert chat[field] == 16
    assert ("max_tokens" in chat) != ("max_completion_tokens" in chat)


def test_tools() -> None:
    chat, dropped = translate(
        tools=[WEATHER, SEARCH, PING, {"type": "mcp", "server_label": "s"}, SEARCH],
        parallel_tool_calls=False,
    )
    assert chat["tools"] == [CHAT_WEATHER, CHAT_PING]
    assert chat["parallel_tool_calls"] is False
    assert "tool_choice" not in chat
    assert dropped == ("web_search", "mcp")


def test_custom_tools_are_functions_with_one_string() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: NUMBER"}
    tools = [{"type": "custom", "name": "sum", "description": "Adds.", "format": grammar}, PING]
    chat, _ = translate(tools=tools, tool_choice={"type": "custom", "name": "sum"})
    function = chat["tools"][0]["function"]
    assert function["description"].startswith("Adds.")
    assert "start: NUMBER" in function["description"]
    assert function["parameters"]["required"] == ["input"]
    assert chat["tool_choice"] == {"type": "function", "function": {"name": "sum"}}
    assert custom_tool_names({"tools": tools}) == {"sum"}
    assert custom_tool_names({"tools": None}) == frozenset()


BOTH = [CHAT_WEATHER, CHAT_PING]


@pytest.mark.parametrize(
    ("choice", "tools", "sent"),
    [
        (None, BOTH, None),
        ("auto", BOTH, None),
        ("none", BOTH, "none"),
        ("required", BOTH, "required"),
        (
            {"type": "function", "name": "ping"},
            BOTH,
            {"type": "function", "function": {"name": "ping"}},
        ),
        ({"type": "web_search_preview"}, BOTH, None),
        ({"type": "mcp", "server_label": "s"}, BOTH, None),
        ({"type": "allowed_tools", "mode": "auto", "tools": [PING]}, [CHAT_PING], None),
        ({"type": "allowed_tools", "mode": "required", "tools": [PING]}, [CHAT_PING], "required"),
    ],
)
def test_tool_choice(choice: Any, tools: list[dict[str, Any]], sent: Any) -> None:
    chat, _ = translate(tools=[WEATHER, PING], tool_choice=choice)
    assert chat["tools"] == tools
    assert chat.get("tool_choice") == sent


@pytest.mark.parametrize(
    ("choice", "dropped"),
    [
        ("required", ("web_search",)),
        ({"type": "allowed_tools", "mode": "required", "tools": [SEARCH]}, ("web_search",)),
        ({"type": "allowed_tools", "mode": "required", "tools": []}, ()),
    ],
)
def test_nothing_is_required_where_no_tool_is_sent(choice: Any, dropped: tuple[str, ...]) -> None:
    chat, named = translate(tools=[SEARCH], tool_choice=choice)
    assert "tools" not in chat
    assert "tool_choice" not in chat
    assert named == dropped


@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        ([PING], {"type": "function", "name": "pong"}, "tool_choice"),
        ([], {"type": "function", "name": "ping"}, "tool_choice"),
        (None, {"type": "custom", "name": "ping"}, "tool_choice"),
        (
            [PING],
            {"type": "allowed_tools", "mode": "auto", "tools": [PING, WEATHER]},
            "tool_choice.tools[1]",
        ),
    ],
)
def test_a_choice_of_no_tool_is_refused(tools: Any, choice: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        translate(tools=tools, tool_choice=choice)
    assert caught.value.param == param


EXTRAS = st.dictionaries(
    st.sampled_from(sorted(PRIVATE_FIELDS | {"seed", "top_k", "model_extra", "stop", "n"})),
    st.integers(-9, 9) | st.none() | st.lists(st.text("ab"), max_size=2),
)


@given(EXTRAS)
def test_fields_of_the_router_never_leave(fields: dict[str, Any]) -> None:
    # Whatever they are, and whether they are valid or not.
    chat, _ = encoded({"model": "m", "input": "hi", **fields}, model="m", stream=False)
    assert not PRIVATE_FIELDS & chat.keys()
    assert chat.keys() & RESPONSES_FIELDS <= {"model"}
    for name in ("seed", "top_k", "model_extra", "stop"):
        assert chat.get(name) == fields.get(name)


@pytest.mark.parametrize("switch", ["enable_thinking", "thinking"])
@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, None),
        ({"switch_thinking": False}, False),
        ({"switch_thinking": True}, True),
        ({"reasoning": {"effort": "none"}}, False),
        ({"reasoning": {"effort": "low"}}, True),
        ({"reasoning": {"summary": "auto"}}, None),
        ({"switch_thinking": False, "reasoning": {"effort": "low"}}, False),
    ],
)
def test_thinking_is_switched_where_the_template_can(
    switch: str, fields: dict[str, Any], wanted: bool | None
) -> None:
    settings = EndpointSettings.model_validate(
        {"name": "one", "url": "http://a/v1", "dialect": "chat", "thinking_switch": switch}
    )
    body = {"model": "m", "input": "Hi", **fields}
    made = encode_for_chat(body, model="m", stream=False, usage=True, settings=settings, images={})
    assert made.body.get("chat_template_kwargs") == (None if wanted is None else {switch: wanted})
    assert made.dropped == ()
    body["chat_template_kwargs"] = {switch: "theirs", "a": 1}
    made = encode_for_chat(body, model="m", stream=False, usage=True, settings=settings, images={})
    assert made.body["chat_template_kwargs"] == {switch: "theirs", "a": 1}
