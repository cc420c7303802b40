"""Background runs and durable streams, as OpenAI's own client sees them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from tests.clients.conftest import KEY
from tests.support.fleet import DIALECTS, MODELS, routed, simulated

PENDING = frozenset({"queued", "in_progress"})
DURABLE = {"stream_options": {"durable": True}}
ENDLESS = "count to 1000"
"""What takes several seconds to answer."""


class Person(BaseModel):
    """What a structured answer is parsed into."""

    name: str
    age: int
    hobbies: list[str]


@pytest.fixture(params=[False, True], ids=["background", "durable"])
def asked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The two ways to have a stream that can be resumed."""
    return {"extra_body": DURABLE} if request.param else {"background": True}


async def polled(client: AsyncOpenAI, response: Response) -> Response:
    """The response once it is finished."""
    async with asyncio.timeout(60):
        while response.status in PENDING:
            await asyncio.sleep(0.02)
            response = await client.responses.retrieve(response.id)
    return response


async def begun(client: AsyncOpenAI, model: str, said: str, **fields: Any) -> list[Any]:
    """The events of a stream that was left after its third piece of text."""
    seen = []
    async with await client.responses.create(
        model=model, input=said, stream=True, **fields
    ) as stream:
        async for event in stream:
            seen.append(event)
            if sum(e.type == "response.output_text.delta" for e in seen) == 3:
                break
    return seen


async def resumed(client: AsyncOpenAI, ident: str, after: int | None = None) -> list[Any]:
    """The events of a run after this one, to its end."""
    stream = await client.responses.retrieve(
        ident, stream=True, starting_after=openai.omit if after is None else after
    )
    return [event async for event in stream]


def as_sent(events: list[Any]) -> list[dict[str, Any]]:
    return [event.to_dict() for event in events]


async def test_polled_to_the_end(keeper: AsyncOpenAI, model: str) -> None:
    queued = await keeper.responses.create(
        model=model, input="count to 5", background=True, metadata={"team": "a"}
    )
    assert (queued.status, queued.background, queued.output) == ("queued", True, [])
    assert (await keeper.responses.retrieve(queued.id)).created_at == queued.created_at
    done = await polled(keeper, queued)
    assert (done.status, done.output_text) == ("completed", "1, 2, 3, 4, 5")
    assert done.metadata == {"team": "a"}
    assert done.usage is not None
    (item,) = (await keeper.responses.input_items.list(done.id)).data
    assert item.type == "message"
    events = await resumed(keeper, done.id)
    assert events[-1].response.to_dict() == done.to_dict()
    after = await keeper.responses.create(
        model=model, input="Tell me more.", previous_response_id=done.id
    )
    assert "This is turn 2 of our conversation." in after.output_text


async def test_polled_by_the_blocking_client(keeping_url: str) -> None:
    def use() -> None:
        with OpenAI(base_url=keeping_url, api_key=KEY, max_retries=0) as client:
            response = client.responses.create(
                model=MODELS["chat"], input="count to 9", background=True
            )
            give_up = time.monotonic() + 20
            while response.status in PENDING and time.monotonic() < give_up:
                time.sleep(0.02)
                response = client.responses.retrieve(response.id)
            assert response.output_text.endswith("8, 9")
            events = client.responses.retrieve(response.id, stream=True, starting_after=4)
            assert next(iter(events)).sequence_number == 5

    await asyncio.to_thread(use)


async def test_cancelled_twice_and_for_good(keeper: AsyncOpenAI, model: str) -> None:
    seen = await begun(keeper, model, ENDLESS, background=True)
    ident = seen[0].response.id
    following = asyncio.create_task(resumed(keeper, ident))
    cancelled = await keeper.responses.cancel(ident)
    assert (cancelled.status, cancelled.error) == ("cancelled", None)
    assert (await keeper.responses.cancel(ident)).to_dict() == cancelled.to_dict()
    async with asyncio.timeout(60):
        events = await following
    # The stream just ends: there is no event for this.
    assert as_sent(events[: len(seen)]) == as_sent(seen)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert not [e for e in events if e.type in ("response.completed", "response.failed")]
    assert (await keeper.responses.retrieve(ident)).to_dict() == cancelled.to_dict()
    assert as_sent(await resumed(keeper, ident)) == as_sent(events)
    # Whoever wants to can go on from there.
    after = await keeper.responses.create(
        model=model, input="Tell me more.", previous_response_id=ident
    )
    assert "This is turn 2 of our conversation." in after.output_text


async def test_several_are_cancelled_at_once(keeper: AsyncOpenAI) -> None:
    runs = [
        await keeper.responses.create(model=MODELS["chat"], input=ENDLESS, background=True)
        for _ in range(3)
    ]
    for status in await asyncio.gather(*(keeper.responses.cancel(run.id) for run in runs)):
        assert status.status == "cancelled"
    for run in runs:
        assert (await keeper.responses.retrieve(run.id)).status == "cancelled"


async def test_a_finished_one_is_not_cancelled(keeper: AsyncOpenAI, model: str) -> None:
    run = await keeper.responses.create(model=model, input="count to 3", background=True)
    done = await polled(keeper, run)
    assert (await keeper.responses.cancel(run.id)).to_dict() == done.to_dict()
    assert done.status == "completed"


async def test_a_stream_is_left_and_taken_up_again(
    keeper: AsyncOpenAI, model: str, asked: dict[str, Any]
) -> None:
    seen = await begun(keeper, model, "count to 60", **asked)
    first = seen[0].response
    assert first.background is ("background" in asked)
    rest = await resumed(keeper, first.id, seen[-1].sequence_number)
    events = [*seen, *rest]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == ", ".join(map(str, range(1, 61)))
    assert events[-1].type == "response.completed"
    kept = await keeper.responses.retrieve(first.id)
    assert kept.to_dict() == events[-1].response.to_dict()
    whole = await resumed(keeper, first.id)
    assert as_sent(whole) == as_sent(events)
    assert await resumed(keeper, first.id, events[-1].sequence_number) == []


async def test_many_follow_the_same_run(keeper: AsyncOpenAI, model: str) -> None:
    run = await keeper.responses.create(model=model, input="count to 40", background=True)
    streams = await asyncio.gather(*(resumed(keeper, run.id) for _ in range(5)))
    for events in streams:
        assert as_sent(events) == as_sent(streams[0])
    assert streams[0][-1].type == "response.completed"


async def test_the_streaming_helper_takes_it_up_again(keeper: AsyncOpenAI, model: str) -> None:
    said: Any = {"model": model, "input": "Ann is 33 and likes chess.", "text_format": Person}
    async with keeper.responses.stream(**said, background=True) as stream:
        async for event in stream:
            if event.type == "response.created":
                ident = event.response.id
            if event.type == "response.output_text.delta":
                left_at = event.sequence_number
                break
    async with keeper.responses.stream(
        response_id=ident, starting_after=left_at, text_format=Person
    ) as again:
        numbers = [event.sequence_number async for event in again]
        final = await again.get_final_response()
    assert numbers == list(range(left_at + 1, numbers[-1] + 1))
    assert isinstance(final.output_parsed, Person)
    kept = await keeper.responses.retrieve(ident)
    assert (final.id, final.output_text) == (kept.id, kept.output_text)


async def test_a_tool_is_called_in_the_background(keeper: AsyncOpenAI, model: str) -> None:
    tool: Any = {
        "type": "function",
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "strict": False,
    }
    said: Any = {"model": model, "tools": [tool], "background": True}
    first = await polled(
        keeper, await keeper.responses.create(**said, input="What is the weather in Paris?")
    )
    (call,) = [item for item in first.output if item.type == "function_call"]
    result: Any = {
        "type": "function_call_output",
        "call_id": call.call_id,
        "output": '{"sky": "clear"}',
    }
    second = await polled(
        keeper,
        await keeper.responses.create(**said, input=[result], previous_response_id=first.id),
    )
    assert second.output_text == "According to get_weather: sky is clear."


async def test_what_fails_later_is_no_error_of_the_request(keeper: AsyncOpenAI) -> None:
    run = await keeper.responses.create(model="gpt-none", input="Hi", background=True)
    failed = await polled(keeper, run)
    assert (failed.status, failed.output) == ("failed", [])
    assert failed.error is not None
    assert "gpt-none" in failed.error.message
    assert [event.type for event in await resumed(keeper, run.id)][-1] == "response.failed"


async def test_what_is_wrong_is_said_at_once(keeper: AsyncOpenAI, stranger: AsyncOpenAI) -> None:
    model = MODELS["chat"]
    for fields, param in (
        ({"background": True, "store": False}, "background"),
        ({"extra_body": DURABLE, "store": False}, "stream_options.durable"),
        ({"background": True, "previous_response_id": "resp_none"}, "previous_response_id"),
        ({"background": True, "temperature": 9}, "temperature"),
    ):
        for stream in (False, True):
            wrong: Any = {"model": model, "input": "Hi", "stream": stream, **fields}
            if not stream and "extra_body" in fields:
                continue
            with pytest.raises(openai.BadRequestError) as caught:
                await keeper.responses.create(**wrong)
            assert caught.value.param == param
    run = await keeper.responses.create(model=model, input=ENDLESS, background=True)
    with pytest.raises(openai.BadRequestError) as waiting:
        await keeper.responses.create(model=model, input="Hi", previous_response_id=run.id)
    assert waiting.value.param == "previous_response_id"
    with pytest.raises(openai.BadRequestError) as cursor:
        await keeper.responses.retrieve(run.id, stream=True, extra_query={"starting_after": "x"})
    assert cursor.value.param == "starting_after"
    with pytest.raises(openai.NotFoundError):
        await stranger.responses.retrieve(run.id, stream=True)
    with pytest.raises(openai.NotFoundError):
        await stranger.responses.cancel(run.id)
    await keeper.responses.delete(run.id)
    with pytest.raises(openai.NotFoundError, match=run.id):
        await keeper.responses.retrieve(run.id, stream=True)


async def test_a_run_outlives_the_router(database_url: str) -> None:
    state = {"url": database_url, "lease": 2.0}
    async with simulated(*DIALECTS, pace=0.01) as endpoints:
        async with (
            routed(*endpoints, state=state) as url,
            AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client,
        ):
            ended = await polled(
                client,
                await client.responses.create(
                    model=MODELS["chat"], input="count to 3", background=True
                ),
            )
            seen = await begun(client, MODELS["chat"], ENDLESS, background=True)
        async with (
            routed(*endpoints, state=state) as url,
            AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client,
        ):
            assert (await client.responses.retrieve(ended.id)).to_dict() == ended.to_dict()
            cut = seen[0].response
            failed = await polled(client, cut)
            assert failed.status == "failed"
            events = [*seen, *await resumed(client, cut.id, seen[-1].sequence_number)]
            assert [event.sequence_number for event in events] == list(range(len(events)))
            assert events[-1].type == "response.failed"
            assert events[-1].response.to_dict() == failed.to_dict()
