"""Chat Completions with OpenAI's own client: every dialect, and one that has Responses only."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import openai
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion
from pydantic import BaseModel

from router.simulate import create_backend
from router.simulate import listening as backend_listening
from tests.support.fleet import DIALECTS, MODELS, routed, simulated

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
QUESTION = "What is the weather in Paris?"
ONLY_RESPONSES = "sim-only-responses"


@web.middleware
async def _no_chat(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.path.endswith("/chat/completions"):
        return web.Response(status=404, text="404 page not found")
    return await handler(request)


@pytest.fixture
async def base_url() -> AsyncIterator[str]:
    """A router before one backend of each dialect, and one without Chat Completions."""
    async with AsyncExitStack() as stack:
        endpoints = await stack.enter_async_context(simulated(*DIALECTS))
        app = create_backend("responses", [ONLY_RESPONSES], pace=0)
        app.middlewares.insert(0, _no_chat)
        url = await stack.enter_async_context(backend_listening(app))
        endpoints.append({"name": "only-responses", "url": url, "dialect": "responses"})
        yield await stack.enter_async_context(routed(*endpoints))


@pytest.fixture
async def client(base_url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{base_url}/v1", api_key="x", max_retries=0) as client:
        yield client


@pytest.fixture(params=[*DIALECTS, ONLY_RESPONSES])
def model(request: pytest.FixtureRequest) -> str:
    """One model of each kind of backend."""
    return str(MODELS.get(request.param, request.param))


def ask(text: str) -> Any:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]


async def test_create(client: AsyncOpenAI, model: str) -> None:
    completion = await client.chat.completions.create(
        model=model,
        messages=ask("count to 5"),
        temperature=0.5,
        max_completion_tokens=200,
        metadata={"a": "b"},
        user="u",
    )
    assert completion.object == "chat.completion"
    [choice] = completion.choices
    assert (choice.message.content, choice.finish_reason) == ("1, 2, 3, 4, 5", "stop")
    assert completion.id.startswith("chatcmpl-")
    assert completion.usage is not None
    assert completion.usage.total_tokens > completion.usage.completion_tokens > 0


async def test_an_answer_that_is_cut(client: AsyncOpenAI, model: str) -> None:
    completion = await client.chat.completions.create(
        model=model, messages=ask("count to 500"), max_tokens=16
    )
    assert completion.choices[0].finish_reason == "length"
    assert (completion.choices[0].message.content or "").startswith("1, 2, 3")


@pytest.mark.parametrize("wants_usage", [False, True])
async def test_stream(client: AsyncOpenAI, model: str, wants_usage: bool) -> None:
    stream = await client.chat.completions.create(
        model=model,
        messages=ask("count to 9"),
        stream=True,
        stream_options={"include_usage": wants_usage},
    )
    chunks = [chunk async for chunk in stream]
    assert len({chunk.id for chunk in chunks}) == 1
    spoken = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert spoken[0].delta.role == "assistant"
    texts = [choice.delta.content or "" for choice in spoken]
    assert "".join(texts) == "1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert len(list(filter(None, texts))) > 3
    assert [choice.finish_reason for choice in spoken if choice.finish_reason] == ["stop"]
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    assert len(usages) == wants_usage
    assert not usages or usages[0].total_tokens > 0


async def test_tools_both_ways(client: AsyncOpenAI, model: str) -> None:
    messages = ask(QUESTION)
    first = await client.chat.completions.create(model=model, messages=messages, tools=[WEATHER])
    [call] = _calls(first)
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments)["city"]
    messages += [
        first.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "sunny, 20 degrees"},
    ]
    second = await client.chat.completions.create(model=model, messages=messages, tools=[WEATHER])
    assert second.choices[0].finish_reason == "stop"
    assert "sunny" in (second.choices[0].message.content or "")


def _calls(completion: ChatCompletion) -> list[Any]:
    assert completion.choices[0].finish_reason == "tool_calls"
    return list(completion.choices[0].message.tool_calls or [])


async def test_streamed_tools(client: AsyncOpenAI, model: str) -> None:
    """The client's own helper puts the fragments of calls together."""
    async with client.chat.completions.stream(
        model=model,
        messages=ask(QUESTION),
        tools=[WEATHER],
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
    ) as stream:
        kinds = {event.type async for event in stream}
        final = await stream.get_final_completion()
    assert {"chunk", "tool_calls.function.arguments.done"} <= kinds
    assert final.choices[0].finish_reason in ("tool_calls", "stop")  # OpenAI: stop, where forced
    [call] = final.choices[0].message.tool_calls or []
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments)["city"]


class Person(BaseModel):
    """What a structured answer is parsed into."""

    name: str
    age: int
    hobbies: list[str]


async def test_structured_output(client: AsyncOpenAI, model: str) -> None:
    completion = await client.chat.completions.parse(
        model=model, messages=ask("Describe a person."), response_format=Person
    )
    parsed = completion.choices[0].message.parsed
    assert isinstance(parsed, Person)


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([{"role": "robot", "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": [{"type": "video"}]}], "messages[0].content[0].type"),
    ],
)
async def test_a_fault_of_the_request(
    client: AsyncOpenAI, model: str, messages: Any, param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model=model, messages=messages)
    assert caught.value.param == param


async def test_a_client_that_leaves(client: AsyncOpenAI, model: str) -> None:
    for _ in range(3):
        stream = await client.chat.completions.create(
            model=model, messages=ask("count to 300"), stream=True
        )
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                break
        await stream.close()
    completion = await client.chat.completions.create(model=model, messages=ask("count to 3"))
    assert completion.choices[0].message.content == "1, 2, 3"


async def test_one_more_choice_is_named(client: AsyncOpenAI) -> None:
    for name in (MODELS["ollama"], ONLY_RESPONSES):
        raw = await client.chat.completions.with_raw_response.create(
            model=name, messages=ask("count to 3"), n=2, seed=1
        )
        dropped = {MODELS["ollama"]: "n", ONLY_RESPONSES: "n, seed"}[name]
        assert raw.headers["X-Pointsman-Dropped-Parameters"] == dropped
