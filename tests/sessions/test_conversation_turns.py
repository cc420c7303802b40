"""Requests with a ``conversation``: what they see of it, and what they leave in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from router.settings.schema import Dialect
from tests.support.calling import answering, call, finished, said, texts
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, paced, silent, streamed, whole
from tests.support.waiting import until

HELLO = "Hello, wörld!"


async def created(router: Router, *items: str) -> str:
    """The id of a new conversation with these user messages."""
    body = {"items": [{"type": "message", "role": "user", "content": text} for text in items]}
    reply = await call(router, "POST", "/conversations", body)
    assert reply.status == 200, reply.body
    ident: str = reply.json["id"]
    return ident


async def listed(router: Router, ident: str) -> list[dict[str, Any]]:
    """The items of a conversation, oldest first."""
    query = {"order": "asc", "limit": 100}
    reply = await call(router, "GET", f"/conversations/{ident}/items", params=query)
    assert reply.status == 200, reply.body
    items: list[dict[str, Any]] = reply.json["data"]
    return items


async def heard(router: Router, ident: str) -> list[str]:
    """The texts of a conversation, oldest first."""
    return [text for _, text in texts(await listed(router, ident))]


def seen(upstream: Upstream) -> list[int]:
    """How many messages each request brought to an endpoint."""
    bodies = [request.json for request in upstream.requests]
    return [len(texts(body.get("messages") or body["input"])) for body in bodies]


@pytest.mark.parametrize("kind", ["whole", "stream", "background", "durable"])
async def test_a_turn_sees_and_continues_the_conversation(
    router: Router, upstream: Upstream, kind: str
) -> None:
    ident = await created(router, "I am Ann.")
    fields: dict[str, Any] = {"input": "Who am I?", "conversation": {"id": ident}}
    if kind == "background":
        reply = await router.ask(background=True, **fields)
        answer = await finished(router, reply.json["id"])
    elif kind == "durable":
        reply = await router.ask(stream=True, stream_options={"durable": True}, **fields)
        answer = reply.events[-1].response
    else:
        reply = await router.ask(stream=kind == "stream", **fields)
        answer = reply.events[-1].response if kind == "stream" else reply.json
    assert answer["status"] == "completed"
    assert answer["conversation"] == {"id": ident}
    assert said(upstream) == [("user", "I am Ann."), ("user", "Who am I?")]
    items = await listed(router, ident)
    assert [item["role"] for item in items] == ["user", "user", "assistant"]
    assert items[-1] == answer["output"][0]
    asked = (await call(router, "GET", f"/responses/{answer['id']}/input_items")).json["data"]
    assert items[1] == asked[0]


@pytest.mark.parametrize("kind", ["whole", "background", "durable"])
async def test_no_two_items_of_a_conversation_have_the_same_id(router: Router, kind: str) -> None:
    ident = await created(router, "again")
    (first,) = await listed(router, ident)
    how: dict[str, Any] = {"background": kind == "background"}
    if kind == "durable":
        how = {"stream": True, "stream_options": {"durable": True}}
    again = [first, {"type": "item_reference", "id": first["id"]}]
    asked = [router.ask(input=again, conversation=ident, **how) for _ in range(2)]
    for reply in await asyncio.gather(*asked):
        answer = reply.events[0].response if kind == "durable" else reply.json
        assert (await finished(router, answer["id"]))["status"] == "completed"
    spoken = [item for item in await listed(router, ident) if item["role"] == "user"]
    assert texts(spoken) == [("user", "again")] * 5
    assert len({item["id"] for item in spoken}) == 5


async def test_a_conversation_keeps_what_it_is_given_without_store(router: Router) -> None:
    ident = await created(router)
    reply = await router.ask(conversation=ident, store=False)
    assert (await call(router, "GET", f"/responses/{reply.json['id']}")).status == 404
    assert await heard(router, ident) == ["hi", HELLO]


async def test_simultaneous_turns_are_serialised(router: Router, upstream: Upstream) -> None:
    ident = await created(router)
    turns = [router.ask(input=f"n{i}", conversation=ident, stream=i % 2 == 0) for i in range(6)]
    replies = await asyncio.gather(*turns)
    assert {reply.status for reply in replies} == {200}
    said = await heard(router, ident)
    assert sorted(said[::2]) == [f"n{i}" for i in range(6)]
    assert said[1::2] == [HELLO] * 6
    assert seen(upstream) == [1, 3, 5, 7, 9, 11]


@pytest.mark.parametrize("end", ["leaves", "fails", "is refused"])
async def test_a_turn_that_does_not_complete_leaves_no_trace(
    database_url: str, dialect: Dialect, end: str
) -> None:
    speech = SPEECH[dialect]
    first = {
        "leaves": streamed(*speech.pieces[:3], kind=speech.kind, then=silent),
        "fails": streamed(*speech.pieces[:3], speech.error, kind=speech.kind),
        "is refused": whole(b'{"error": {"message": "no"}}', 400),
    }[end]
    async with answering(dialect) as upstream:
        upstream.scripts.append(first)
        state = {"url": database_url}
        async with routing(endpoint(upstream, dialect), state=state) as router:
            ident = await created(router, "before")
            async with router.request(stream=True, conversation=ident) as response:
                if end == "leaves":
                    await response.content.readany()
                    response.close()
                else:
                    await response.read()
            await until(lambda: not router.running)
            assert await heard(router, ident) == ["before"]
            assert (await router.ask(input="after", conversation=ident)).status == 200
            assert await heard(router, ident) == ["before", "after", HELLO]


async def test_who_leaves_while_waiting_for_a_turn_holds_up_nobody(
    database_url: str, dialect: Dialect
) -> None:
    speech = SPEECH[dialect]
    async with answering(dialect) as upstream:
        upstream.scripts.append(paced(whole(speech.whole), 0.3))
        state = {"url": database_url}
        async with routing(endpoint(upstream, dialect), state=state) as router:
            ident = await created(router)
            first = asyncio.ensure_future(router.ask(input="one", conversation=ident))
            await until(lambda: upstream.requests)
            waiting = asyncio.ensure_future(router.ask(input="two", conversation=ident))
            await until(lambda: router.running == 2)
            waiting.cancel()
            third = await router.ask(input="three", conversation=ident)
            assert third.status == (await first).status == 200
            assert await heard(router, ident) == ["one", HELLO, "three", HELLO]


@pytest.mark.parametrize("background", [False, True])
async def test_an_unknown_conversation(
    router: Router, upstream: Upstream, background: bool
) -> None:
    for conversation in ("conv_none", {"id": "conv_none"}):
        reply = await router.ask(conversation=conversation, background=background)
        assert reply.status == 404
        assert reply.error["message"] == "Conversation with id 'conv_none' not found."
    assert upstream.requests == []


async def test_deleting_a_conversation_keeps_its_responses(router: Router) -> None:
    ident = await created(router)
    answer = (await router.ask(conversation=ident)).json
    assert (await call(router, "DELETE", f"/conversations/{ident}")).json["deleted"] is True
    assert (await call(router, "GET", f"/responses/{answer['id']}")).json == answer
    assert (await router.ask(conversation=ident)).status == 404
    assert (await router.ask(previous_response_id=answer["id"])).status == 200
