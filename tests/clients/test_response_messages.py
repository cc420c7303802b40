"""The official client gets a response as messages, and sends them back as history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError

from tests.clients.conftest import KEY
from tests.support.fleet import DIALECTS, routed, simulated

ASKS: dict[str, Any] = {"enable_response_messages": True}
TOOLS: Any = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
        "strict": False,
    }
]


@pytest.fixture
async def cached() -> AsyncIterator[AsyncOpenAI]:
    """The client, pointed at a router with a cache."""
    keys = {"keys": [{"name": "team-a", "key": KEY}]}
    async with (
        simulated(*DIALECTS) as endpoints,
        routed(*endpoints, auth=keys, cache={"mode": "always"}) as url,
        AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client,
    ):
        yield client


def roles(messages: list[dict[str, Any]]) -> list[str]:
    return [message["author"]["role"] for message in messages]


async def test_a_call_is_answered_in_the_messages(client: AsyncOpenAI, model: str) -> None:
    one = await client.responses.create(
        model=model,
        input="What is the weather in Paris?",
        tools=TOOLS,
        tool_choice="required",
        extra_body=ASKS,
    )
    [call] = [item for item in one.output if item.type == "function_call"]
    extra = one.model_extra
    assert extra is not None
    assert roles(extra["input_messages"]) == ["system", "developer", "user"]
    [called] = [message for message in extra["output_messages"] if message["recipient"]]
    assert called["recipient"] == "functions.get_weather"
    assert called["content"] == [{"type": "text", "text": call.arguments}]
    result = {
        "role": "tool",
        "name": "functions.get_weather",
        "content": [{"type": "text", "text": "18 degrees"}],
    }
    history = [*extra["input_messages"], *extra["output_messages"], result]
    two = await client.responses.create(
        model=model,
        input="Say exactly: mild",
        tools=TOOLS,
        extra_body={"previous_input_messages": history, **ASKS},
    )
    assert (two.status, two.output_text) == ("completed", "mild")
    assert two.model_extra is not None
    given = two.model_extra["input_messages"]
    assert roles(given)[:3] == ["system", "developer", "user"]
    assert [roles(given).count(role) for role in ("system", "developer", "tool")] == [1, 1, 1]
    [told] = [message for message in given if message["role"] == "tool"]
    assert told["content"] == result["content"]
    assert told["author"]["name"] == "functions.get_weather"


@pytest.mark.parametrize("background", [False, True])
async def test_a_stream_has_them_in_its_responses(
    client: AsyncOpenAI, model: str, background: bool
) -> None:
    stream = await client.responses.create(
        model=model,
        input="Say exactly: once",
        stream=True,
        background=background,
        extra_body=ASKS,
    )
    seen = []
    async for event in stream:
        if event.type in ("response.created", "response.in_progress", "response.completed"):
            extra = event.response.model_extra
            assert extra is not None
            seen.append((extra["input_messages"], extra["output_messages"]))
    given = seen[0][0]
    assert roles(given) == ["system", "user"]
    assert [before for before, _ in seen] == [given] * 3
    assert [after for _, after in seen[:2]] == [[], []]
    [said] = seen[2][1]
    assert (said["channel"], said["content"]) == ("final", [{"type": "text", "text": "once"}])


async def test_a_hit_has_them(cached: AsyncOpenAI, model: str) -> None:
    fields: dict[str, Any] = {"model": model, "input": "Say exactly: once is enough"}
    made = await cached.responses.create(**fields)
    assert "input_messages" not in (made.model_extra or {})
    raw = await cached.responses.with_raw_response.create(**fields, extra_body=ASKS)
    assert raw.headers["X-Cache"] == "HIT"
    hit = raw.parse()
    assert hit.model_extra is not None
    assert hit.model_extra["output_messages"][0]["content"][0]["text"] == "once is enough"
    stored = await cached.responses.retrieve(hit.id)
    assert stored.model_extra == hit.model_extra


async def test_what_is_wrong_is_named(client: AsyncOpenAI, model: str) -> None:
    bad: list[dict[str, Any]] = [{"role": "user", "content": "x"}, {"role": "tool", "content": "y"}]
    with pytest.raises(BadRequestError) as caught:
        await client.responses.create(
            model=model, input="hi", extra_body={"previous_input_messages": bad}
        )
    assert caught.value.param == "previous_input_messages[1]"
