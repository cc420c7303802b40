"""Clients that leave, cancel and delete at any moment: nothing is left half done."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import orjson
import pytest

from router.state.database import Database
from router.state.statement import Statement
from tests.support.calling import call
from tests.support.router import PATIENCE, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.state import opened
from tests.support.upstream import Upstream, Wire
from tests.support.waiting import until

KINDS: dict[str, dict[str, Any]] = {
    "whole": {},
    "stream": {"stream": True},
    "background": {"background": True},
    "both": {"background": True, "stream": True},
    "durable": {"stream": True, "stream_options": {"durable": True}},
}


def endpoint_at_random(draw: random.Random) -> Upstream:
    """An endpoint that is quick, or slow."""
    speech = SPEECH["chat"]

    async def script(wire: Wire) -> None:
        if wire.request.json.get("stream"):
            await speech.script(draw.choice([0, 0.005, 0.02]))(wire)
        else:
            await asyncio.sleep(draw.choice([0, 0.01, 0.05]))
            await speech.script()(wire)

    return Upstream(default=script)


async def left(work: asyncio.Future[Any], after: float) -> Any:
    """What comes of it; None when its client leaves before."""
    await asyncio.wait({work}, timeout=after)
    if not work.done():
        work.cancel()
    await asyncio.wait({work})
    return None if work.cancelled() else work.result()


class Client:
    """Asks, and then does what clients do."""

    def __init__(self, router: Router, draw: random.Random, conversations: list[str]) -> None:
        self._router = router
        self._draw = draw
        self._conversations = conversations
        self._known: list[str] = []

    async def ask(self) -> None:
        """One request, and perhaps a cancel or a delete of what it made."""
        draw = self._draw
        await asyncio.sleep(draw.random() * 1.5)
        kind = draw.choice(list(KINDS))
        fields = dict(KINDS[kind])
        if draw.random() < 0.6:
            fields["conversation"] = draw.choice(self._conversations)
        elif self._known:
            fields["previous_response_id"] = draw.choice(self._known)
        asking = asyncio.ensure_future(self._router.ask(**fields))
        stay = PATIENCE if draw.random() < 0.4 else draw.random() * 0.3
        reply = await left(asking, stay)
        if reply is None:
            return
        assert reply.status in (200, 400), reply.body  # 400: it goes on from what is not finished
        if reply.status == 200:
            streams = fields.get("stream")
            ident = reply.events[0].response["id"] if streams else reply.json["id"]
            self._known.append(ident)
            if kind in ("background", "both", "durable") and draw.random() < 0.6:
                await self._end(ident)

    async def _end(self, ident: str) -> None:
        method, path = self._draw.choice([("POST", "/cancel"), ("DELETE", "")])
        await asyncio.sleep(self._draw.random() * 0.1)
        ending = asyncio.ensure_future(call(self._router, method, f"/responses/{ident}{path}"))
        reply = await left(ending, PATIENCE if self._draw.random() < 0.6 else 0.01)
        assert reply is None or reply.status == 200, reply.body


async def rows(database: Database, sql: str, **values: Any) -> list[tuple[Any, ...]]:
    return await database.read(Statement(sql), **values)


async def none_left(database: Database, sql: str) -> None:
    """Wait until there are no such rows."""
    async with asyncio.timeout(PATIENCE):
        while await rows(database, sql):  # noqa: ASYNC110 (a database tells nobody)
            await asyncio.sleep(0.05)


async def check_runs(database: Database) -> None:
    """Every run is over, and its events are numbered without a gap."""
    await none_left(database, "SELECT id FROM runs WHERE state <> 'over'")
    assert not await rows(database, "SELECT run FROM run_requests")
    unfinished = "SELECT id FROM responses WHERE status IN ('queued', 'in_progress')"
    assert not await rows(database, unfinished)
    for ident, last in await rows(database, "SELECT id, last_event FROM runs"):
        batches = "SELECT first, last FROM events WHERE response = :id ORDER BY first"
        following = 0
        for first, end in await rows(database, batches, id=ident):
            assert first == following
            following = end + 1
        assert following == last + 1


async def check_conversations(database: Database) -> None:
    """Nobody has a turn any more, and each turn was added whole."""
    await none_left(database, "SELECT id FROM conversations WHERE turn_holder IS NOT NULL")
    for (ident,) in await rows(database, "SELECT id FROM conversations"):
        items = "SELECT position, data FROM conversation_items WHERE conversation = :id"
        found = await rows(database, f"{items} ORDER BY position", id=ident)
        assert [position for position, _ in found] == list(range(len(found)))
        roles = [orjson.loads(data)["role"] for _, data in found]
        assert roles == ["user", "assistant"] * (len(roles) // 2)


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_left_half_done(database_url: str, seed: int) -> None:
    draw = random.Random(seed)
    async with endpoint_at_random(draw) as upstream:
        one = endpoint(upstream, "chat", max_in_flight=8, timeouts={"first_byte": 8.0, "idle": 8.0})
        async with routing(one, state={"url": database_url}) as router:
            created = [await call(router, "POST", "/conversations", {}) for _ in range(4)]
            conversations = [reply.json["id"] for reply in created]
            client = Client(router, draw, conversations)
            await asyncio.gather(*[client.ask() for _ in range(120)])
            await until(lambda: not router.running)
            async with opened(database_url) as database:
                await check_runs(database)
                await check_conversations(database)
            for ident in conversations:
                assert (await router.ask(conversation=ident)).status == 200
