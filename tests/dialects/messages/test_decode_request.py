"""Requests of the Messages API as requests of the Responses API: golden cases."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson
import pytest

from router.dialects.messages.decode_request import decode_count_request, decode_messages_request
from router.dialects.messages.thinking import sign
from router.dialects.responses.schema import validate_create
from tests.support.anthropic import PDF, PNG, SAID, SCHEMA, TOOL, asked

CLOSED = {**SCHEMA, "required": ["a"], "additionalProperties": False}
FUNCTION = {
    "type": "function",
    "name": "look",
    "description": "Looks",
    "parameters": SCHEMA,
    "strict": False,
}
EPHEMERAL = {"cache_control": {"type": "ephemeral"}}
ENCRYPTED = ["reasoning.encrypted_content"]
BILLING = "x-anthropic-billing-header: cc_version=2.1.0.abc; cc_entrypoint=cli; cch=1f2e3;"


def made(**fields: Any) -> dict[str, Any]:
    """What is made of a request, less what is made of every one; it is valid."""
    before = orjson.dumps(asked(**fields))
    body = asked(**fields)
    found = decode_messages_request(body)
    assert orjson.dumps(body) == before, "the request was changed"
    validate_create(found.body)
    rest = dict(found.body)
    assert rest.pop("store") is False
    assert rest.pop("model") == "m"
    assert rest.pop("max_output_tokens") == 2000
    if rest["input"] == SAID:
        del rest["input"]
    return rest


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, {}),
        ({"system": "Be brief."}, {"instructions": "Be brief."}),
        (
            {"system": [{"type": "text", "text": "A", **EPHEMERAL}, {"type": "text", "text": "B"}]},
            {"instructions": "A\n\nB"},
        ),
        (
            {"system": [{"type": "text", "text": BILLING}, {"type": "text", "text": "A"}]},
            {"instructions": "A"},
        ),
        ({"system": [{"type": "text", "text": BILLING}]}, {}),
        ({"system": [{"type": "text", "text": f"{BILLING}\n\nA"}]}, {"instructions": "A"}),
        ({"system": f"{BILLING}\n{BILLING}\n\nA\n"}, {"instructions": "A\n"}),
        ({"system": f"A\n{BILLING}"}, {"instructions": f"A\n{BILLING}"}),
        ({"stream": True}, {"stream": True}),
        (
            {"temperature": 0.5, "top_p": 1, "top_k": 40},
            {"temperature": 0.5, "top_p": 1, "top_k": 40},
        ),
        ({"stop_sequences": ["\n\nHuman:"]}, {"stop": ["\n\nHuman:"]}),
        ({"stop_sequences": []}, {}),
        ({"metadata": {"user_id": "u1"}}, {"user": "u1"}),
        (
            {"metadata": {"user_id": "u" * 65}},
            {"user": hashlib.sha256(b"u" * 65).hexdigest()},
        ),
        ({"service_tier": "auto"}, {"service_tier": "auto"}),
        ({"service_tier": "standard_only"}, {"service_tier": "default"}),
        ({"thinking": {"type": "disabled"}}, {"switch_thinking": False}),
        (
            {"thinking": {"type": "adaptive"}},
            {"reasoning": {"summary": "auto"}, "include": ENCRYPTED, "switch_thinking": True},
        ),
        (
            {"thinking": {"type": "adaptive", "display": "omitted"}},
            {"include": ENCRYPTED, "switch_thinking": True},
        ),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 1024}},
            {"reasoning": {"effort": "low", "summary": "auto"}, "include": ENCRYPTED},
        ),
        (
            {
                "thinking": {"type": "enabled", "budget_tokens": 1024},
                "output_config": {"effort": "max"},
            },
            {"reasoning": {"effort": "max", "summary": "auto"}, "include": ENCRYPTED},
        ),
        ({"output_config": {"effort": "medium"}}, {"reasoning": {"effort": "medium"}}),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            {
                "text": {
                    "format": {
                        "type": "json_schema",
                        "name": "answer",
                        "schema": SCHEMA,
                        "strict": False,
                    }
                }
            },
        ),
        (
            {"output_format": {"type": "json_schema", "schema": CLOSED}},
            {
                "text": {
                    "format": {
                        "type": "json_schema",
                        "name": "answer",
                        "schema": CLOSED,
                        "strict": True,
                    }
                }
            },
        ),
        ({"tools": [{**TOOL, **EPHEMERAL}]}, {"tools": [FUNCTION]}),
        (
            {"tools": [{**TOOL, "type": "custom", "strict": True}]},
            {"tools": [{**FUNCTION, "strict": True}]},
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "auto"}},
            {"tools": [FUNCTION], "tool_choice": "auto"},
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
            {"tools": [FUNCTION], "tool_choice": "required", "parallel_tool_calls": False},
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "look"}},
            {"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "look"}},
        ),
        ({"tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
        (
            {
                "tools": [
                    {
                        "type": "web_search_20250305",
                        "name": "web_search",
                        "allowed_domains": ["a.org"],
                        "user_location": {"type": "approximate", "city": "Rome"},
                    }
                ],
                "tool_choice": {"type": "tool", "name": "web_search"},
            },
            {
                "tools": [
                    {
                        "type": "web_search",
                        "filters": {"allowed_domains": ["a.org"]},
                        "user_location": {"type": "approximate", "city": "Rome"},
                    }
                ],
                "tool_choice": {"type": "web_search"},
            },
        ),
        (
            {
                "tools": [
                    {
                        "type": "web_search_20250305",
                        "name": "web_search",
                        "blocked_domains": ["b.org"],
                        "max_uses": 3,
                    }
                ]
            },
            {
                "tools": [
                    {
                        "type": "web_search",
                        "filters": {"blocked_domains": ["b.org"]},
                        "max_uses": 3,
                    }
                ]
            },
        ),
        (
            {"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]},
            {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]},
        ),
    ],
)
def test_fields(fields: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert made(**fields) == wanted


@pytest.mark.parametrize(
    ("budget", "effort"), [(4096, "low"), (4097, "medium"), (16384, "medium"), (16385, "high")]
)
def test_a_budget_is_an_effort(budget: int, effort: str) -> None:
    thinking = {"type": "enabled", "budget_tokens": budget}
    found = decode_messages_request(asked(max_tokens=32_000, thinking=thinking))
    assert found.body["reasoning"]["effort"] == effort


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CLOSED, True),
        ({"type": "array", "items": CLOSED}, True),
        ({"type": "string"}, True),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "additionalProperties": True}, False),
        ({**CLOSED, "required": None}, False),
        ({"type": "array", "items": SCHEMA}, False),
        ({"anyOf": [CLOSED, SCHEMA]}, False),
    ],
)
def test_a_schema_is_strict_where_it_can_be(schema: dict[str, Any], strict: bool) -> None:
    found = made(output_config={"format": {"type": "json_schema", "schema": schema}})
    assert found["text"]["format"]["strict"] is strict


def text(value: str) -> dict[str, Any]:
    return {"type": "input_text", "text": value}


def item(role: str, *parts: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": list(parts)}


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ([{"type": "text", "text": "a", **EPHEMERAL}, {"type": "text", "text": "b"}],
         [text("a"), text("b")]),
        ([{"type": "image", "source": PNG}],
         [{"type": "input_image", "image_url": "data:image/png;base64,aGk="}]),
        ([{"type": "image", "source": {"type": "url", "url": "https://a/b.png"}}],
         [{"type": "input_image", "image_url": "https://a/b.png"}]),
        ([{"type": "document", "source": PDF}],
         [{"type": "input_file", "filename": "document.pdf",
           "file_data": "data:application/pdf;base64,aGk="}]),
        ([{"type": "document", "source": PDF, "title": "T.PDF", "context": "old"}],
         [text("Document: T.PDF\nAbout it: old"),
          {"type": "input_file", "filename": "T.PDF",
           "file_data": "data:application/pdf;base64,aGk="}]),
        ([{"type": "document", "source": {"type": "url", "url": "https://a/b.pdf"}}],
         [{"type": "input_file", "file_url": "https://a/b.pdf"}]),
        ([{"type": "document", "title": "T",
           "source": {"type": "text", "media_type": "text/plain", "data": "plain"}}],
         [text("Document: T\nplain")]),
        ([{"type": "document", "source": {"type": "content", "content": "plain"}}],
         [text("plain")]),
        ([{"type": "document", "source": {"type": "content", "content": [
            {"type": "text", "text": "a"}, {"type": "image", "source": PNG}]}}],
         [text("a"), {"type": "input_image", "image_url": "data:image/png;base64,aGk="}]),
        ([{"type": "search_result", "title": "T", "source": "https://a",
           "content": [{"type": "text", "text": "a"}]}],
         [text("Search result: T (https://a)\na")]),
    ],
)  # fmt: skip
def test_content(content: list[Any], parts: list[Any]) -> None:
    assert made(messages=[{"role": "user", "content": content}])["input"] == [item("user", *parts)]


def test_a_history_with_tools_and_thinking() -> None:
    call = {"type": "tool_use", "id": "call_1", "name": "look", "input": {"a": "ö"}}
    other = {"type": "tool_use", "id": "call_2", "name": "look", "input": {}}
    thought = {"type": "thinking", "thinking": "Hm", "signature": sign("pm1.acc.blob")}
    plain = {"type": "thinking", "thinking": "So", "signature": sign(None)}
    encrypted_reasoning = {"type": "redacted_thinking", "data": sign("pm1.acc.other")}
    history = [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": [thought, encrypted_reasoning, {"type": "text", "text": "I "},
                        {"type": "text", "text": "look.", "citations": None}, call, other],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "found", **EPHEMERAL},
                {
                    "type": "tool_result",
                    "tool_use_id": "call_2",
                    "is_error": True,
                    "content": [{"type": "text", "text": "lost"}, {"type": "image", "source": PNG}],
                },
                {"type": "text", "text": "And now?"},
            ],
        },
        {"role": "system", "content": "Hurry."},
        {"role": "assistant", "content": [plain, {"type": "text", "text": "Well"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_3"}]},
        {"role": "assistant", "content": ""},
    ]  # fmt: skip
    image = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
    assert made(messages=history)["input"] == [
        *SAID,
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "Hm"}],
            "encrypted_content": "pm1.acc.blob",
        },
        {"type": "reasoning", "summary": [], "encrypted_content": "pm1.acc.other"},
        {"type": "message", "role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"a":"ö"}'},
        {"type": "function_call", "call_id": "call_2", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "found"},
        {
            "type": "function_call_output",
            "call_id": "call_2",
            "output": [text("The tool failed."), text("lost"), image],
        },
        item("user", text("And now?")),
        item("system", text("Hurry.")),
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "So"}]},
        {"type": "message", "role": "assistant", "content": "Well"},
        {"type": "function_call_output", "call_id": "call_3", "output": ""},
    ]


def test_thinking_that_was_signed_by_somebody_else_is_dropped_and_counted() -> None:
    foreign = [
        {"type": "thinking", "thinking": "Hm", "signature": "EqQBCgIYAhIM"},
        {"type": "thinking", "thinking": "Hm"},
        {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"},
        {"type": "thinking", "thinking": "", "signature": sign(None)},
        {"type": "text", "text": "Yes"},
    ]
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": foreign}]
    found = decode_messages_request(asked(messages=history))
    assert found.dropped_thinking == 4
    assert found.body["input"][1:] == [{"type": "message", "role": "assistant", "content": "Yes"}]


CITABLE = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "The sky is blue."},
    "citations": {"enabled": True},
}


@pytest.mark.parametrize(
    ("fields", "dropped"),
    [
        ({}, ()),
        (EPHEMERAL, ()),
        ({"container": "c", "inference_geo": "eu", "speed": None}, ("container", "inference_geo")),
        ({"mcp_servers": [{}], "context_management": {}}, ("mcp_servers",)),
        ({"metadata": {"user_id": "u", "team": "t"}}, ("metadata.team",)),
        ({"output_config": {"effort": "low", "task_budget": {}}}, ("output_config.task_budget",)),
        ({"messages": [{"role": "user", "content": [CITABLE, CITABLE]}]}, ("citations",)),
        ({"messages": [{"role": "user", "content": [{**CITABLE, "citations": {}}]}]}, ()),
        (
            {"tools": [{**TOOL, "input_examples": [{}], "defer_loading": False}]},
            ("tools.0.input_examples",),
        ),
        (
            {"tools": [TOOL, {"type": "web_search_20260209", "name": "web_search", "max_uses": 5,
                              "blocked_domains": ["b.org"], "something_new": 1}]},
            ("tools.1.something_new",),
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_sent_is_named(fields: dict[str, Any], dropped: tuple[str, ...]) -> None:
    assert decode_messages_request(asked(**fields)).dropped == dropped


def test_a_count_takes_what_makes_up_the_prompt() -> None:
    fields = asked(
        max_tokens=...,
        system="S",
        tools=[TOOL],
        thinking={"type": "enabled", "budget_tokens": 2000},
    )
    assert decode_count_request(
        {**fields, "metadata": {"user_id": "u"}, "temperature": 1}
    ).body == {
        "model": "m",
        "input": SAID,
        "instructions": "S",
        "tools": [FUNCTION],
        "reasoning": {"effort": "low", "summary": "auto"},
    }
