"""The simulated Ollama over real sockets."""

from __future__ import annotations

from typing import Any

import aiohttp
import orjson
import pytest

from tests.simulate.conftest import Start

MODEL = "sim-llama:latest"
USER = {"role": "user", "content": "Hello"}
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
REQUESTS: dict[str, dict[str, Any]] = {
    "text": {"messages": [USER]},
    "thinking": {"messages": [USER], "think": True},
    "levels": {"messages": [USER], "think": "low"},
    "calls": {
        "messages": [{"role": "user", "content": "The weather in Paris and Rome"}],
        "tools": [WEATHER],
    },
    "answer": {
        "messages": [
            {"role": "user", "content": "The weather in Paris?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"id": "c", "function": {"name": "get_weather", "arguments": {"location": "x"}}}
                ],
            },
            {"role": "tool", "content": "sunny", "tool_call_id": "c"},
        ],
        "tools": [WEATHER],
    },
    "cut": {
        "messages": [{"role": "user", "content": "count to 99"}],
        "options": {"num_predict": 7},
    },
    "json": {"messages": [USER], "format": "json"},
    "schema": {
        "messages": [{"role": "user", "content": "Ada is 36"}],
        "format": {
            "type": "object",
            "properties": {"age": {"type": "integer"}},
            "required": ["age"],
        },
        "tools": [WEATHER],
    },
    "image": {"messages": [{"role": "user", "content": "What?", "images": ["AAAA"]}]},
}


async def post(
    http: aiohttp.ClientSession, url: str, body: Any, path: str = "/api/chat"
) -> tuple[int, Any]:
    async with http.post(url + path, data=orjson.dumps(body)) as answer:
        return answer.status, await answer.json()


async def get(http: aiohttp.ClientSession, url: str) -> Any:
    async with http.get(url) as answer:
        assert answer.status == 200
        return await answer.json()


async def lines(http: aiohttp.ClientSession, url: str, body: Any) -> list[dict[str, Any]]:
    async with http.post(f"{url}/api/chat", json=body) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        raw = await answer.read()
    assert raw.endswith(b"\n")
    return [orjson.loads(line) for line in raw.splitlines()]


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the lines amount to, call ids left out."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    for part in parts:
        message["content"] += part["message"]["content"]
        if "thinking" in part["message"]:
            message["thinking"] = message.get("thinking", "") + part["message"]["thinking"]
        for call in part["message"].get("tool_calls", []):
            message.setdefault("tool_calls", []).append(call["function"])
    return message


@pytest.mark.parametrize("case", REQUESTS)
async def test_the_lines_amount_to_the_whole(
    start: Start, http: aiohttp.ClientSession, case: str
) -> None:
    url = await start("ollama")
    body = {"model": MODEL, **REQUESTS[case]}
    parts = await lines(http, url, body)
    status, whole = await post(http, url, {**body, "stream": False})
    assert status == 200
    assert [part["done"] for part in parts] == [False] * (len(parts) - 1) + [True]
    assert joined(parts) == joined([whole])
    last = parts[-1]
    for key in ("done_reason", "prompt_eval_count", "eval_count", "total_duration"):
        assert last[key] == whole[key]
        assert key not in parts[0]
    assert whole["prompt_eval_count"] > 0


@pytest.mark.parametrize(
    ("case", "reason", "content"),
    [
        ("text", "stop", f"Hello! I am {MODEL}, a simulated model. How can I help?"),
        ("calls", "stop", ""),
        ("answer", "stop", "According to get_weather: sunny"),
        ("cut", "length", "1, 2, 3, 4"),
        ("schema", "stop", '{"age":36}'),
        ("image", "stop", f"I see 1 image. You asked: “What?” I am {MODEL}, a simulated model."),
    ],
)
async def test_answers(
    start: Start, http: aiohttp.ClientSession, case: str, reason: str, content: str
) -> None:
    body = {"model": MODEL, "stream": False, **REQUESTS[case]}
    _, whole = await post(http, await start("ollama"), body)
    assert (whole["done_reason"], whole["message"]["content"]) == (reason, content)
    calls = [call["function"] for call in whole["message"].get("tool_calls", [])]
    assert [call["arguments"] for call in calls] == (
        [{"location": "Paris"}, {"location": "Rome"}] if case == "calls" else []
    )


async def test_what_it_tells_of_its_models(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start("ollama", MODEL, "other:7b")
    assert set(await get(http, f"{url}/api/version")) == {"version"}
    tags = await get(http, f"{url}/api/tags")
    assert [model["name"] for model in tags["models"]] == [MODEL, "other:7b"]
    listed = await get(http, f"{url}/v1/models")
    assert [model["id"] for model in listed["data"]] == [MODEL, "other:7b"]
    status, shown = await post(http, url, {"model": "sim-llama"}, "/api/show")
    assert status == 200
    assert set(shown["capabilities"]) == {"completion", "tools", "thinking", "vision"}


async def test_a_model_is_loaded_by_use(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start("ollama", MODEL, "other:7b")

    async def loaded() -> list[str]:
        return [model["name"] for model in (await get(http, f"{url}/api/ps"))["models"]]

    assert await loaded() == []
    await lines(http, url, {"model": "sim-llama", "messages": [USER]})
    assert await loaded() == [MODEL]
    await post(http, url, {"model": "other:7b", "messages": [USER]}, "/v1/chat/completions")
    assert await loaded() == [MODEL, "other:7b"]
    _, unloaded = await post(http, url, {"model": MODEL, "messages": [], "keep_alive": 0})
    assert unloaded["done_reason"] == "unload"
    assert await loaded() == ["other:7b"]
    _, again = await post(http, url, {"model": MODEL, "keep_alive": "10m"})
    assert again["done_reason"] == "load"
    assert set(await loaded()) == {MODEL, "other:7b"}


async def test_the_model_is_named_as_it_was_asked_for(
    start: Start, http: aiohttp.ClientSession
) -> None:
    parts = await lines(http, await start("ollama"), {"model": "sim-llama", "messages": [USER]})
    assert {part["model"] for part in parts} == {"sim-llama"}


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"model": "llama9"}, 404, "model 'llama9' not found"),
        ({"model": ""}, 400, "model"),
        ({"messages": [{"role": "developer", "content": ""}]}, 400, "messages[0].role"),
        (
            {"messages": [{"role": "user", "images": ["data:image/png;base64,AA=="]}]},
            400,
            "messages[0].images",
        ),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}],
                    }
                ]
            },
            400,
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"format": "yaml"}, 400, "format"),
        ({"think": "deeply"}, 400, "think"),
        ({"keep_alive": "soon"}, 400, "keep_alive"),
        ({"options": {"num_ctx": 4}, "truncate": False}, 400, "prompt too long"),
    ],
)
async def test_errors_are_a_single_text(
    start: Start, http: aiohttp.ClientSession, change: Any, status: int, message: str
) -> None:
    body = {"model": MODEL, "messages": [USER], **change}
    answered, error = await post(http, await start("ollama"), body)
    assert answered == status
    assert set(error) == {"error"}
    assert message in error["error"]


async def test_a_prompt_that_does_not_fit_is_cut_unless_forbidden(
    start: Start, http: aiohttp.ClientSession
) -> None:
    body = {"model": MODEL, "messages": [USER], "options": {"num_ctx": 4}, "stream": False}
    status, _ = await post(http, await start("ollama"), body)
    assert status == 200


async def test_its_openai_routes_have_openai_errors(
    start: Start, http: aiohttp.ClientSession
) -> None:
    url = await start("ollama")
    status, error = await post(http, url, {"model": "x"}, "/v1/chat/completions")
    assert (status, error["error"]["code"]) == (404, "model_not_found")
    status, error = await post(http, url, {}, "/api/nonsense")
    assert (status, error) == (404, {"error": "POST /api/nonsense: Not Found"})
