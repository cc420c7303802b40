"""Requests of the Responses API for Ollama's /api/chat."""

from __future__ import annotations

import base64
import copy
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator

from router.dialects.ollama.encode_request import OllamaMode, encode_ollama_request
from router.dialects.responses.schema import validate_create
from router.errors import InvalidRequest

PARAMETERS = {
    "type": "object",
    "properties": {"location": {"type": "string"}},
    "required": ["location"],
}
WEATHER = {"type": "function", "name": "weather", "parameters": PARAMETERS}
PING = {"type": "function", "name": "ping"}
SEARCH = {"type": "web_search"}
PNG = "data:image/png;base64,iVBORw0KGgo="


def translate(
    *, model: str = "served", stream: bool = True, num_ctx: int | None = None, **fields: Any
) -> tuple[dict[str, Any], OllamaMode]:
    body = {"model": "asked", "input": "hi", **fields}
    validate_create(body)
    before = copy.deepcopy(body)
    out, mode = encode_ollama_request(body, model=model, stream=stream, num_ctx=num_ctx)
    assert body == before
    orjson.dumps(out)
    return out, mode


def messages(*items: Any, **fields: Any) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = translate(input=list(items), **fields)[0]["messages"]
    return sent


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def data_url(text: str | bytes, media_type: str = "text/plain") -> str:
    raw = text.encode() if isinstance(text, str) else text
    return f"data:{media_type};base64,{base64.b64encode(raw).decode()}"


def call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


@pytest.mark.parametrize("stream", [True, False])
def test_the_least(stream: bool) -> None:
    assert translate(stream=stream) == (
        {
            "model": "served",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": stream,
            "truncate": False,
            "shift": False,
        },
        OllamaMode(),
    )


LOOK = {"type": "json_schema", "name": "n", "schema": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"max_output_tokens": 16}, "options", {"num_predict": 16}),
        ({"max_output_tokens": 16, "max_tokens": 99}, "options", {"num_predict": 16}),
        ({"max_tokens": 99}, "options", {"num_predict": 99}),
        ({"num_ctx": 8192}, "options", {"num_ctx": 8192}),
        (
            {"temperature": 0, "top_p": 0.5, "seed": 1, "top_k": 5, "min_p": 0.1},
            "options",
            {"temperature": 0, "top_p": 0.5, "seed": 1, "top_k": 5, "min_p": 0.1},
        ),
        ({"stop": "x"}, "options", {"stop": ["x"]}),
        ({"stop": ["x", "y"], "seed": None}, "options", {"stop": ["x", "y"]}),
        ({"num_gpu": 0, "keep_alive": 0, "options": {"num_ctx": 1}}, "options", None),
        ({"text": {"format": {"type": "json_object"}}}, "format", "json"),
        ({"text": {"format": LOOK}}, "format", LOOK["schema"]),
        ({"text": {"format": {"type": "text"}}}, "format", None),
        ({"reasoning": None}, "think", None),
        ({"reasoning": {"effort": "none"}}, "think", False),
        ({"switch_thinking": False}, "think", False),
        ({"switch_thinking": False, "reasoning": {"effort": "high"}}, "think", False),
        ({"switch_thinking": True}, "think", None),
        ({"switch_thinking": True, "reasoning": {"effort": "low"}}, "think", True),
        ({"reasoning": {"effort": "minimal"}}, "think", True),
        ({"reasoning": {"effort": "high"}}, "think", True),
        ({"reasoning": {"effort": "none"}, "model": "gpt-oss:20b"}, "think", "low"),
        ({"reasoning": {"effort": "minimal"}, "model": "gpt-oss:20b"}, "think", "low"),
        ({"reasoning": {"effort": "medium"}, "model": "gpt-oss:20b"}, "think", "medium"),
        ({"reasoning": {"effort": "max"}, "model": "hub.example/u/gpt-oss"}, "think", "high"),
        ({"top_logprobs": 3}, "top_logprobs", 3),
        ({"include": ["message.output_text.logprobs"]}, "logprobs", True),
    ],
)
def test_fields(fields: dict[str, Any], name: str, value: Any) -> None:
    out, _ = translate(**fields)
    assert out.get(name) == value


def test_the_context_is_the_configurations() -> None:
    body = {"model": "m", "input": "x", "num_ctx": 1}
    out, _ = encode_ollama_request(body, model="m", stream=True, num_ctx=4096)
    assert out["options"] == {"num_ctx": 4096}


# -- messages


def test_images_stand_beside_the_text() -> None:
    parts = [
        {"type": "input_text", "text": "Look"},
        {"type": "input_image", "image_url": PNG},
        {"type": "input_text", "text": "there"},
    ]
    assert messages(user(*parts)) == [
        {"role": "user", "content": "Look\nthere", "images": ["iVBORw0KGgo="]}
    ]


@pytest.mark.parametrize(
    "file_data",
    [
        data_url("naïve"),
        data_url("naïve", "text/markdown;charset=utf-8"),
        data_url("naïve", "application/json"),
        data_url("\ufeffnaïve"),
        "data:text/plain,na%C3%AFve",
    ],
)
def test_text_files_are_written_into_the_message(file_data: str) -> None:
    part = {"type": "input_file", "file_data": file_data, "filename": "a.md"}
    question = {"type": "input_text", "text": "What is it?"}
    assert messages(user(part, question)) == [
        {"role": "user", "content": "File a.md:\nnaïve\nWhat is it?"}
    ]


def test_a_round_of_tools() -> None:
    assert messages(
        {"type": "reasoning", "summary": [], "content": [{"type": "x", "text": "Hm."}]},
        call("a", "weather", '{"location":"Rome"}'),
        call("b", "ping", ""),
        {"type": "function_call_output", "call_id": "a", "output": "sunny"},
        {
            "type": "function_call_output",
            "call_id": "b",
            "output": [{"type": "input_image", "image_url": PNG}],
        },
        {"type": "function_call_output", "call_id": "lost", "output": "?"},
    ) == [
        {
            "role": "assistant",
            "content": "",
            "thinking": "Hm.",
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "weather", "arguments": {"location": "Rome"}},
                },
                {"id": "b", "type": "function", "function": {"name": "ping", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "sunny", "tool_call_id": "a", "tool_name": "weather"},
        {"role": "tool", "content": "", "tool_call_id": "b", "tool_name": "ping"},
        {"role": "user", "content": "", "images": ["iVBORw0KGgo="]},
        {"role": "tool", "content": "?", "tool_call_id": "lost"},
    ]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        (" ", {}),
        ('{"a": 1}', {"a": 1}),
        ('{"a": ', {"input": '{"a": '}),
        ("[1]", {"input": "[1]"}),
        ("Rome", {"input": "Rome"}),
        ('{"a":' + "[" * 250 + "]" * 250 + "}", None),
        ('{"a":[' + "[]," * 250 + "[]]}", {"a": [[] for _ in range(251)]}),
    ],
)
def test_arguments_are_objects(arguments: str, sent: Any) -> None:
    function = messages(call("a", "f", arguments))[0]["tool_calls"][0]["function"]
    assert function["arguments"] == ({"input": arguments} if sent is None else sent)


@pytest.mark.parametrize(
    ("part", "field", "says"),
    [
        ({"type": "input_image", "image_url": "https://example.com/a.png"}, "image_url", "data:"),
        ({"type": "input_image", "image_url": "data:image/png,x"}, "image_url", "data:"),
        ({"type": "input_image", "file_id": "file_1"}, "file_id", "image_url"),
        ({"type": "input_file", "file_id": "file_1"}, "file_id", "file_data"),
        ({"type": "input_file", "file_url": "https://example.com"}, "file_url", "file_data"),
        (
            {"type": "input_file", "file_data": data_url("x", "application/pdf")},
            "file_data",
            "text files only",
        ),
        ({"type": "input_file", "file_data": "eA=="}, "file_data", "text files only"),
        ({"type": "input_file", "file_data": data_url(b"\xff")}, "file_data", "UTF-8"),
        ({"type": "input_file", "file_data": "data:text/plain;base64,?"}, "file_data", "base64"),
        ({"type": "input_file", "file_data": "data:text/plain;base64,é"}, "file_data", "base64"),
        ({"type": "input_audio", "input_audio": {}}, None, "no audio"),
    ],
)
def test_what_ollama_cannot_carry_is_refused(
    part: dict[str, Any], field: str | None, says: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        messages({"role": "user", "content": "x"}, user(part))
    where = "input[1].content[0]"
    assert caught.value.param == (f"{where}.{field}" if field else where)
    assert says in caught.value.message


# -- tools


def chat(tool: dict[str, Any]) -> dict[str, Any]:
    parameters = tool.get("parameters", {"type": "object", "properties": {}})
    return {"type": "function", "function": {"name": tool["name"], "parameters": parameters}}


def forced(name: str, arguments: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


NO_PARAMETERS = {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("choice", "tools", "form"),
    [
        (None, [WEATHER, PING], None),
        ("auto", [WEATHER, PING], None),
        ("none", None, None),
        (
            "required",
            [WEATHER, PING],
            {"anyOf": [forced("weather", PARAMETERS), forced("ping", NO_PARAMETERS)]},
        ),
        (
            {"type": "function", "name": "ping"},
            [WEATHER, PING],
            forced("ping", NO_PARAMETERS),
        ),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [WEATHER]},
            [WEATHER],
            forced("weather", PARAMETERS),
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [WEATHER]}, [WEATHER], None),
    ],
)
def test_tool_choice(choice: Any, tools: list[dict[str, Any]] | None, form: Any) -> None:
    out, mode = translate(tools=[WEATHER, PING, SEARCH], tool_choice=choice)
    assert out.get("tools") == (None if tools is None else [chat(tool) for tool in tools])
    assert out.get("format") == form
    assert mode.forced == (form is not None)
    filtered = isinstance(choice, dict) and choice["type"] == "allowed_tools"
    assert mode.dropped == (() if filtered else ("web_search",))


def test_a_forced_call_goes_before_a_text_format() -> None:
    out, mode = translate(tools=[PING], tool_choice="required", text={"format": LOOK})
    assert (out["format"], mode.forced) == (forced("ping", NO_PARAMETERS), True)


def test_nothing_is_forced_without_a_function() -> None:
    out, mode = translate(tools=[SEARCH], tool_choice="required")
    assert "format" not in out
    assert mode == OllamaMode(forced=False, dropped=("web_search",))


TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node"}},
    "required": ["root"],
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
            "required": ["children"],
        }
    },
}


@pytest.mark.parametrize("count", [1, 2])
def test_references_still_lead_somewhere(count: int) -> None:
    """Two tools with definitions of the same name, which mean different things."""
    other = {**copy.deepcopy(TREE), "$defs": {"Node": {"type": "integer"}}}
    tools = [
        {"type": "function", "name": "tree", "parameters": TREE},
        {"type": "function", "name": "number", "parameters": other},
    ][:count]
    out, _ = translate(tools=tools, tool_choice="required")
    schema = Draft202012Validator(out["format"])
    nested: dict[str, Any] = {"root": {"children": [{"children": []}]}}
    assert schema.is_valid({"name": "tree", "arguments": nested})
    assert not schema.is_valid({"name": "tree", "arguments": {"root": {"children": [5]}}})
    assert schema.is_valid({"name": "number", "arguments": {"root": 5}}) == (count == 2)
    assert not schema.is_valid({"name": "number", "arguments": nested})
    assert TREE["properties"] == {"root": {"$ref": "#/$defs/Node"}}


def test_deep_parameters_are_refused_when_they_must_be_rewritten() -> None:
    deep: dict[str, Any] = {"$ref": "#/$defs/x"}
    for _ in range(230):
        deep = {"items": deep}
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        translate(
            tools=[{"type": "function", "name": "f", "parameters": deep}], tool_choice="required"
        )
