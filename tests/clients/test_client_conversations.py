"""Conversations, as OpenAI's own client sees them."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.clients.conftest import KEY
from tests.support.fleet import MODELS

PENDING = frozenset({"queued", "in_progress"})


def said(text: str, role: str = "user") -> Any:
    """A message as a client writes it."""
    return {"type": "message", "role": role, "content": text}


def text_of(item: Any) -> str:
    """The text of a message that a list has."""
    (part,) = item.content
    text: str = part.text
    return text


async def told(client: AsyncOpenAI, conversation: str) -> list[tuple[str, str]]:
    """Role and text of everything in a conversation, oldest first."""
    items = client.conversations.items.list(conversation, order="asc", limit=3)
    return [(item.role, text_of(item)) async for item in items if item.type == "message"]


async def answer_in(client: AsyncOpenAI, how: str, conversation: Any, **request: Any) -> Any:
    """The finished response: in one piece, as a stream, in the background, or resumable."""
    request = {"conversation": conversation, **request}
    if how == "whole":
        return await client.responses.create(**request)
    if how == "background":
        response = await client.responses.create(background=True, **request)
        async with asyncio.timeout(60):
            while response.status in PENDING:
                await asyncio.sleep(0.02)
                response = await client.responses.retrieve(response.id)
        return response
    if how == "durable":
        request["extra_body"] = {"stream_options": {"durable": True}}
    events = [event async for event in await client.responses.create(stream=True, **request)]
    return events[-1].response


async def test_made_changed_and_deleted(keeper: AsyncOpenAI) -> None:
    empty = await keeper.conversations.create()
    assert (empty.object, empty.metadata) == ("conversation", {})
    made = await keeper.conversations.create(
        metadata={"topic": "tëst"}, items=[said("Hello."), said("Good day.", "assistant")]
    )
    assert made.id.startswith("conv_")
    assert made.id != empty.id
    assert await told(keeper, made.id) == [("user", "Hello."), ("assistant", "Good day.")]
    assert (await keeper.conversations.retrieve(made.id)).to_dict() == made.to_dict()
    changed = await keeper.conversations.update(made.id, metadata={"done": "yes"})
    assert changed.to_dict() == {**made.to_dict(), "metadata": {"done": "yes"}}
    assert (await keeper.conversations.retrieve(made.id)).metadata == {"done": "yes"}
    deleted = await keeper.conversations.delete(made.id)
    assert (deleted.id, deleted.deleted) == (made.id, True)
    for call in (
        keeper.conversations.retrieve(made.id),
        keeper.conversations.update(made.id, metadata={}),
        keeper.conversations.delete(made.id),
        keeper.conversations.items.create(made.id, items=[said("x")]),
        keeper.responses.create(model=MODELS["chat"], input="x", conversation=made.id),
    ):
        with pytest.raises(openai.NotFoundError, match=made.id):
            await call
    with pytest.raises(openai.NotFoundError, match=made.id):
        await keeper.conversations.items.list(made.id)
    assert await told(keeper, empty.id) == []


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_items_come_page_by_page(keeper: AsyncOpenAI, order: Any) -> None:
    conversation = await keeper.conversations.create(items=[said(str(n)) for n in range(20)])
    added = await keeper.conversations.items.create(
        conversation.id, items=[said(str(n)) for n in range(20, 33)]
    )
    assert [text_of(item) for item in added.data] == [str(n) for n in range(20, 33)]
    numbers = [str(n) for n in range(33)]
    expected = numbers if order == "asc" else numbers[::-1]
    listing = keeper.conversations.items.list
    for limit in (1, 10, 32, 33, 100):
        items = [item async for item in listing(conversation.id, order=order, limit=limit)]
        assert [text_of(item) for item in items] == expected
    (one,) = (await listing(conversation.id, order=order, limit=1, after=items[9].id or "")).data
    assert text_of(one) == expected[10]
    with pytest.raises(openai.BadRequestError) as caught:
        await keeper.conversations.items.create(
            conversation.id, items=[said("x") for _ in range(21)]
        )
    assert (caught.value.param, caught.value.code) == ("items", "array_above_max_length")
    with pytest.raises(openai.BadRequestError) as wrong:
        await listing(conversation.id, limit=101)
    assert wrong.value.param == "limit"


async def test_an_item_is_looked_at_and_deleted(keeper: AsyncOpenAI) -> None:
    conversation = await keeper.conversations.create(items=[said(name) for name in "abc"])
    ids = [item.id async for item in keeper.conversations.items.list(conversation.id, order="asc")]
    middle: Any = ids[1]
    one: Any = await keeper.conversations.items.retrieve(middle, conversation_id=conversation.id)
    assert (one.id, text_of(one)) == (middle, "b")
    await keeper.conversations.items.delete(middle, conversation_id=conversation.id)
    for call in (
        keeper.conversations.items.retrieve(middle, conversation_id=conversation.id),
        keeper.conversations.items.delete(middle, conversation_id=conversation.id),
    ):
        with pytest.raises(openai.NotFoundError, match=middle):
            await call
    assert await told(keeper, conversation.id) == [("user", "a"), ("user", "c")]


@pytest.mark.parametrize("how", ["whole", "stream", "background", "durable"])
async def test_turns_are_added_to_it(keeper: AsyncOpenAI, model: str, how: str) -> None:
    conversation = await keeper.conversations.create(items=[said("My name is Ann.")])
    first = await answer_in(
        keeper, how, conversation.id, model=model, input="Tell me.", instructions="Be brief."
    )
    assert first.status == "completed"
    assert first.conversation.id == conversation.id
    if model == MODELS["messages"]:  # messages in a row are one there
        assert first.output_text.startswith("You said: “My name is Ann. Tell me.”")
    else:
        assert "This is turn 2 of our conversation." in first.output_text
    second = await answer_in(
        keeper, how, {"id": conversation.id}, model=model, input="What is my name?"
    )
    assert second.output_text == "Your name is Ann."
    assert await told(keeper, conversation.id) == [
        ("user", "My name is Ann."),
        ("user", "Tell me."),
        ("assistant", first.output_text),
        ("user", "What is my name?"),
        ("assistant", "Your name is Ann."),
    ]
    listed = keeper.conversations.items.list(conversation.id, order="asc")
    ids = [item.id async for item in listed]
    for response, at in ((first, 1), (second, 3)):
        (own,) = (await keeper.responses.input_items.list(response.id)).data
        assert ids[at : at + 2] == [own.id, response.output[0].id]
        assert (await keeper.responses.retrieve(response.id)).to_dict() == response.to_dict()


async def test_a_conversation_keeps_what_is_not_stored(keeper: AsyncOpenAI, model: str) -> None:
    conversation = await keeper.conversations.create()
    response = await keeper.responses.create(
        model=model, input="My name is Ann.", conversation=conversation.id, store=False
    )
    with pytest.raises(openai.NotFoundError):
        await keeper.responses.retrieve(response.id)
    answer = await keeper.responses.create(
        model=model, input="What is my name?", conversation=conversation.id
    )
    assert answer.output_text == "Your name is Ann."


async def test_simultaneous_turns_do_not_mix(keeper: AsyncOpenAI, model: str) -> None:
    conversation = await keeper.conversations.create()
    ways = ["whole", "stream", "background", "durable"] * 2
    answers = await asyncio.gather(
        *(
            answer_in(keeper, how, conversation.id, model=model, input=f"Number {n}.")
            for n, how in enumerate(ways)
        )
    )
    spoken = await told(keeper, conversation.id)
    assert [role for role, _ in spoken] == ["user", "assistant"] * len(ways)
    turns = {spoken[i][1]: spoken[i + 1][1] for i in range(0, len(spoken), 2)}
    assert turns == {f"Number {n}.": a.output_text for n, a in enumerate(answers)}
    for turn, text in enumerate(turns.values(), 1):
        assert turn == 1 or f"This is turn {turn} of our conversation." in text


async def test_deleted_in_the_midst_of_a_turn(keeper: AsyncOpenAI, model: str) -> None:
    conversation = await keeper.conversations.create()
    async with await keeper.responses.create(
        model=model, input="count to 60", conversation=conversation.id, stream=True
    ) as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                break
        await keeper.conversations.delete(conversation.id)
        rest = [event async for event in stream]
    assert rest[-1].type == "response.completed"
    with pytest.raises(openai.NotFoundError):
        await keeper.conversations.retrieve(conversation.id)


async def test_what_is_refused(keeper: AsyncOpenAI, stranger: AsyncOpenAI) -> None:
    conversation = await keeper.conversations.create(items=[said("a")])
    with pytest.raises(openai.BadRequestError) as both:
        await keeper.responses.create(
            model=MODELS["chat"],
            input="x",
            conversation=conversation.id,
            previous_response_id="resp_none",
        )
    assert both.value.code == "mutually_exclusive_parameters"
    for items, param in (
        ([{"content": "x"}], "items[0].role"),
        ([said("a"), {"type": "mystery"}], "items[1].type"),
        ([], "items"),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            await keeper.conversations.items.create(conversation.id, items=items)  # type: ignore[arg-type]
        assert caught.value.param == param
    with pytest.raises(openai.BadRequestError) as metadata:
        await keeper.conversations.create(metadata={"k": "x" * 513})
    assert metadata.value.param == "metadata.k"
    for call in (
        stranger.conversations.retrieve(conversation.id),
        stranger.conversations.delete(conversation.id),
        stranger.conversations.items.create(conversation.id, items=[said("b")]),
        stranger.responses.create(model=MODELS["chat"], input="x", conversation=conversation.id),
    ):
        with pytest.raises(openai.NotFoundError):
            await call
    assert await told(keeper, conversation.id) == [("user", "a")]


async def test_the_blocking_client_has_them_too(keeping_url: str) -> None:
    def use() -> None:
        with OpenAI(base_url=keeping_url, api_key=KEY, max_retries=0) as client:
            conversation = client.conversations.create(items=[said("My name is Ann.")])
            answer = client.responses.create(
                model=MODELS["chat"], input="What is my name?", conversation=conversation.id
            )
            assert answer.output_text == "Your name is Ann."
            listed = client.conversations.items.list(conversation.id, limit=1, order="asc")
            assert len(list(listed)) == 3

    await asyncio.to_thread(use)
