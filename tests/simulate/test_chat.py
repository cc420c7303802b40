"""The simulated Chat Completions over real sockets."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import openai
import orjson
import pytest

from router.simulate import Dialect
from tests.simulate.conftest import Start
from tests.support.fleet import OPENAI_STYLE

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"location": {"type": "string"}},
            "required": ["location"],
        },
    },
}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"location":"Paris"}'},
}
REQUESTS: dict[str, dict[str, Any]] = {
    "text": {"messages": [{"role": "user", "content": "Hello"}]},
    "reasoning": {
        "messages": [{"role": "user", "content": "Why?"}],
        "reasoning_effort": "high",
    },
    "calls": {
        "messages": [{"role": "user", "content": "The weather in Paris and Rome"}],
        "tools": [WEATHER],
    },
    "forced": {
        "messages": [{"role": "user", "content": "Anything"}],
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
    },
    "answer": {
        "messages": [
            {"role": "user", "content": "The weather in Paris?"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        ],
        "tools": [WEATHER],
    },
    "cut": {"messages": [{"role": "user", "content": "count to 99"}], "max_tokens": 7},
    "json": {
        "messages": [{"role": "user", "content": "JSON"}],
        "response_format": {"type": "json_object"},
    },
    "image": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                ],
            }
        ]
    },
}


async def post(http: aiohttp.ClientSession, url: str, body: Any) -> tuple[int, Any]:
    async with http.post(f"{url}/v1/chat/completions", data=orjson.dumps(body)) as answer:
        return answer.status, await answer.json()


async def chunks(http: aiohttp.ClientSession, url: str, body: Any) -> list[dict[str, Any]]:
    """The chunks of a stream, which must end with [DONE]."""
    asked = {**body, "stream": True}
    async with http.post(f"{url}/v1/chat/completions", json=asked) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        frames = (await answer.read()).split(b"\n\n")
    assert frames[-2:] == [b"data: [DONE]", b""]
    assert all(frame.startswith(b"data: ") for frame in frames[:-1])
    return [orjson.loads(frame[6:]) for frame in frames[:-2]]


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the chunks amount to."""
    message: dict[str, Any] = {"content": ""}
    calls: list[dict[str, Any]] = []
    for delta in (part["choices"][0]["delta"] for part in parts if part["choices"]):
        for key in ("content", "reasoning_content", "reasoning"):
            if delta.get(key):
                message[key] = message.get(key, "") + delta[key]
        for piece in delta.get("tool_calls", []):
            if "id" in piece:
                assert piece["index"] == len(calls)
                calls.append({"name": piece["function"]["name"], "arguments": ""})
            calls[piece["index"]]["arguments"] += piece["function"]["arguments"]
    if calls:
        message["tool_calls"] = calls
    return message


def bare(message: dict[str, Any]) -> dict[str, Any]:
    """A whole message without what a stream has elsewhere: role, refusal, ids."""
    plain = {key: value for key, value in message.items() if key not in ("role", "refusal")}
    plain["content"] = plain["content"] or ""
    if "tool_calls" in plain:
        plain["tool_calls"] = [call["function"] for call in plain["tool_calls"]]
    return plain


@pytest.mark.parametrize("dialect", OPENAI_STYLE)
@pytest.mark.parametrize("case", REQUESTS)
async def test_the_stream_amounts_to_the_whole(
    start: Start, http: aiohttp.ClientSession, dialect: Dialect, case: str
) -> None:
    url = await start(dialect, "sim")
    body = {"model": "sim", **REQUESTS[case]}
    status, whole = await post(http, url, body)
    parts = await chunks(http, url, {**body, "stream_options": {"include_usage": True}})
    assert status == 200
    (choice,) = whole["choices"]
    assert joined(parts) == bare(choice["message"])
    assert parts[0]["choices"][0]["delta"]["role"] == "assistant"
    assert parts[-2]["choices"][0]["finish_reason"] == choice["finish_reason"]
    assert parts[-1]["choices"] == []
    assert parts[-1]["usage"] == whole["usage"]
    assert all(part["usage"] is None for part in parts[:-1])
    assert len({part["id"] for part in parts}) == 1


@pytest.mark.parametrize(
    ("case", "finish", "content"),
    [
        ("text", "stop", "Hello! I am sim-chat, a simulated model. How can I help?"),
        ("calls", "tool_calls", None),
        ("forced", "tool_calls", None),
        ("answer", "stop", "According to get_weather: sunny"),
        ("cut", "length", "1, 2, 3, 4"),
        ("image", "stop", "I see 1 image. You asked: “What?” I am sim-chat, a simulated model."),
    ],
)
async def test_answers(
    start: Start, http: aiohttp.ClientSession, case: str, finish: str, content: str | None
) -> None:
    _, whole = await post(http, await start("chat"), {"model": "sim-chat", **REQUESTS[case]})
    choice = whole["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == (finish, content)
    assert whole["usage"]["total_tokens"] == (
        whole["usage"]["prompt_tokens"] + whole["usage"]["completion_tokens"]
    )


@pytest.mark.parametrize(
    ("dialect", "field"),
    [("chat", "reasoning_content"), ("ollama", "reasoning"), ("responses", None)],
)
async def test_each_server_has_its_own_field_for_reasoning(
    start: Start, http: aiohttp.ClientSession, dialect: Dialect, field: str | None
) -> None:
    url = await start(dialect, "sim")
    _, whole = await post(http, url, {"model": "sim", **REQUESTS["reasoning"]})
    assert set(whole["choices"][0]["message"]) - {"role", "content", "refusal"} == (
        {field} if field else set()
    )
    assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


async def test_without_include_usage_there_is_none(
    start: Start, http: aiohttp.ClientSession
) -> None:
    parts = await chunks(http, await start("chat"), {"model": "sim-chat", **REQUESTS["text"]})
    assert all("usage" not in part and part["choices"] for part in parts)


async def test_structured_output(start: Start, http: aiohttp.ClientSession) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    body = {
        "model": "sim-chat",
        "messages": [{"role": "user", "content": "Ada is 36"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": schema}},
    }
    _, whole = await post(http, await start("chat"), body)
    assert json.loads(whole["choices"][0]["message"]["content"]) == {"age": 36}


USER = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"model": None}, 400, "model"),
        ({"model": "gpt"}, 404, "model"),
        ({"messages": []}, 400, "messages"),
        ({"messages": "x"}, 400, "messages"),
        ({"messages": [{"content": "x"}]}, 400, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, 400, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "x"}]}]}, 400, None),
        ({"messages": [{"role": "tool", "content": "", "tool_call_id": "c"}]}, 400, None),
        ({"messages": [{"role": "assistant", "tool_calls": [CALL]}, USER]}, 400, "messages[1]"),
        ({"messages": [{"role": "assistant", "tool_calls": [CALL]}]}, 400, "messages"),
        ({"n": 2}, 400, "n"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"temperature": 9}, 400, "temperature"),
        ({"tools": [{"type": "function"}]}, 400, "tools[0].function"),
        ({"tools": [{"function": {"name": "f"}}]}, 400, "tools[0].type"),
        ({"tool_choice": "maybe"}, 400, "tool_choice"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
            400,
            "tool_choice",
        ),
        ({"response_format": {"type": "json_schema"}}, 400, "response_format.json_schema"),
        ({"stop": [3]}, 400, "stop"),
    ],
)
async def test_bad_requests_are_told_by_field(
    start: Start, http: aiohttp.ClientSession, change: Any, status: int, param: str | None
) -> None:
    body = {"model": "sim-chat", "messages": [USER], **change}
    answered, error = await post(http, await start("chat"), body)
    assert answered == status
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert param is None or error["error"]["param"] == param


async def test_the_official_client(start: Start) -> None:
    url = await start("chat")
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=20) as client:
        async with client.chat.completions.stream(
            model="sim-chat", messages=[{"role": "user", "content": "count to 3"}]
        ) as events:
            completion = await events.get_final_completion()
        assert completion.choices[0].message.content == "1, 2, 3"
