"""OpenAI's own client, on an engine that calls its items the same in every answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import orjson
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.support.fleet import routed
from tests.support.native import answer, begun, call, message
from tests.support.router import endpoint
from tests.support.upstream import Upstream, Wire, streamed, whole

SAID = {**message("Hello"), "id": "msg_1"}
CALLED = {k: v for k, v in call("f", "{}").items() if k != "id"}
CHAT_TEXT = "Hello"


@pytest.fixture
async def engine() -> AsyncIterator[Upstream]:
    """It answers with ``msg_1``, and with a call that has no id, where it is given tools."""

    async def script(wire: Wire) -> None:
        asked = wire.request.json
        items = [SAID, CALLED] if asked.get("tools") else [SAID]
        if asked.get("stream"):
            shown = [{**item, "id": item.get("id", "")} for item in items]
            await streamed(answer(*shown, output=items))(wire)
        else:
            await whole(orjson.dumps(begun(status="completed", output=items)))(wire)

    async with Upstream(default=script) as served:
        yield served


@pytest.fixture
async def client(engine: Upstream) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncExitStack() as stack:
        settings = endpoint(engine, "responses", chat_completions="translated")
        url = await stack.enter_async_context(routed(settings))
        yield await stack.enter_async_context(
            AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
        )


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Whether the client streams."""
    answer: bool = request.param
    return answer


TOOLS: Any = [{"type": "function", "name": "f", "parameters": None, "strict": None}]


async def ask(client: AsyncOpenAI, stream: bool, **request: Any) -> Any:
    """The response; of a stream, after every event was seen to name its items alike."""
    request = {"model": "m", "input": "Hi", **request}
    if not stream:
        return await client.responses.create(**request)
    async with client.responses.stream(**request) as events:
        named: list[Any] = [e async for e in events]
    final = named[-1].response
    known = {item.id for item in final.output}
    for event in named:
        if (ident := getattr(event, "item_id", None)) is not None:
            assert ident in known
        if (item := getattr(event, "item", None)) is not None:
            assert item.id in known
    return final


async def test_a_conversation_has_every_item(client: AsyncOpenAI, stream: bool) -> None:
    talk = await client.conversations.create()
    turns = [await ask(client, stream, conversation=talk.id) for _ in range(2)]
    told = [turn.output[0].id for turn in turns]
    assert len(set(told)) == 2
    assert "msg_1" not in told
    items = [i async for i in client.conversations.items.list(talk.id, order="asc", limit=1)]
    assert [item.id for item in items if getattr(item, "role", "") == "assistant"] == told
    for item in items:
        assert item.id is not None
        found = await client.conversations.items.retrieve(item.id, conversation_id=talk.id)
        assert found.to_dict() == item.to_dict()
    await client.conversations.items.delete(told[0], conversation_id=talk.id)
    left = [i.id async for i in client.conversations.items.list(talk.id, order="asc")]
    assert left == [item.id for item in items if item.id != told[0]]


async def test_a_chain_and_what_refers_to_it(
    client: AsyncOpenAI, engine: Upstream, stream: bool
) -> None:
    first = await ask(client, stream)
    second = await ask(client, stream, previous_response_id=first.id)
    assert first.output[0].id != second.output[0].id
    for response in (first, second):
        stored = await client.responses.retrieve(response.id)
        assert [item.id for item in stored.output] == [response.output[0].id]
    listed = [i.id async for i in client.responses.input_items.list(second.id, limit=1)]
    assert len(set(listed)) == len(listed)
    reference: Any = {"type": "item_reference", "id": second.output[0].id}
    sent_back: Any = first.output[0].to_dict()
    await ask(client, stream, input=[sent_back, reference, {"role": "user", "content": "And?"}])
    sent = engine.requests[-1].json["input"]
    assert [item["type"] for item in sent] == ["message"] * 3
    assert [item["role"] for item in sent] == ["assistant", "assistant", "user"]
    assert all("id" not in item for item in sent)


async def test_a_call_without_an_id(client: AsyncOpenAI, engine: Upstream, stream: bool) -> None:
    first = await ask(client, stream, tools=TOOLS)
    called = first.output[1]
    assert called.id.startswith("fc_")
    assert (await client.responses.retrieve(first.id)).output[1].id == called.id
    result: Any = {"type": "function_call_output", "call_id": called.call_id, "output": "1"}
    await ask(client, stream, previous_response_id=first.id, input=[result])
    sent = engine.requests[-1].json["input"]
    kinds = [item["type"] for item in sent]
    assert kinds == ["message", "message", "function_call", "function_call_output"]


async def test_messages_in_front_of_it(client: AsyncOpenAI, stream: bool) -> None:
    url = str(client.base_url).removesuffix("/v1/")
    asked: Any = {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]}
    async with AsyncAnthropic(base_url=url, api_key="unused", max_retries=0) as claude:
        if stream:
            async with claude.messages.stream(**asked) as events:
                told = await events.get_final_message()
        else:
            told = await claude.messages.create(**asked)
    assert [block.text for block in told.content if block.type == "text"] == [CHAT_TEXT]


async def test_chat_in_front_of_it(client: AsyncOpenAI, stream: bool) -> None:
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    if not stream:
        made = await client.chat.completions.create(**asked)
        assert made.choices[0].message.content == CHAT_TEXT
        return
    chunks = await client.chat.completions.create(stream=True, **asked)
    text = "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices])
    assert text == CHAT_TEXT
