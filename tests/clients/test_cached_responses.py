"""The official client gets answers from the cache as if they were made for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from tests.clients.conftest import KEY
from tests.support.fleet import DIALECTS, routed, simulated

TOOLS: Any = [
    {
        "type": "function",
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
        "strict": False,
    }
]
ASKED: list[dict[str, Any]] = [
    {"input": "Say exactly: once is enough"},
    {"input": "What is the weather in Paris?", "tools": TOOLS, "tool_choice": "required"},
    {"input": "Count from 1 to 5", "instructions": "Be brief.", "metadata": {"a": "b"}},
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


def without_ids(response: Response) -> dict[str, Any]:
    """What is the same in two responses with the same answer."""
    plain = response.model_dump(mode="json")
    for name in ("id", "created_at", "completed_at"):
        plain.pop(name, None)
    for item in plain["output"]:
        item.pop("id", None)
    return plain


@pytest.mark.parametrize("asked", ASKED, ids=["text", "call", "instructed"])
async def test_a_hit_equals_the_answer_that_was_made(
    cached: AsyncOpenAI, model: str, asked: dict[str, Any]
) -> None:
    made = await cached.responses.create(model=model, **asked)
    raw = await cached.responses.with_raw_response.create(model=model, **asked)
    assert raw.headers["X-Cache"] == "HIT"
    hit = raw.parse()
    assert without_ids(hit) == without_ids(made)
    assert hit.id != made.id
    async with cached.responses.stream(model=model, **asked) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert any(kind.endswith(".delta") for kind in kinds)
    assert without_ids(await cached.responses.retrieve(final.id)) == without_ids(made)
    follow = await cached.responses.create(
        model=model, input="Say exactly: on we go", previous_response_id=final.id
    )
    assert follow.status == "completed"
    await cached.responses.delete(final.id)


async def test_chat_completions_get_the_same(cached: AsyncOpenAI, model: str) -> None:
    asked: Any = {
        "model": model,
        "messages": [{"role": "user", "content": "Say exactly: once is enough"}],
    }
    made = await cached.chat.completions.create(**asked)
    raw = await cached.chat.completions.with_raw_response.create(**asked)
    assert raw.headers["X-Cache"] == "HIT"
    hit = raw.parse()
    assert hit.choices[0].message.content == made.choices[0].message.content == "once is enough"
    assert hit.id != made.id
    text, usage = "", None
    stream = await cached.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
    assert text == "once is enough"
    assert usage is not None
    assert made.usage is not None
    assert usage.total_tokens == made.usage.total_tokens
