"""Clients that leave llama.cpp's server, and the server that leaves its clients."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from router.settings.schema import Dialect
from tests.engines.stand import PATIENCE, Engine, body_for, in_front_of
from tests.matrix.asking import POSTED, Ask

pytestmark = pytest.mark.integration

ENDLESS = 900
"""Tokens that nobody waits for: most of the engine's context."""
STORY = "Count from one to a thousand"


def going_on(surface: str, *, stream: bool = True) -> dict[str, Any]:
    """The body of a request whose answer goes on for a long time."""
    body = body_for(surface, Ask(STORY, stream=stream), ENDLESS)
    return body | {"ignore_eos": True}  # an extension of the engine's


async def at_work(engine: Engine, slots: int) -> int:
    """Wait until the engine works in so many slots; the most tokens that it was seen to write."""
    seen = 0
    async with asyncio.timeout(PATIENCE):
        while True:
            state = await asyncio.to_thread(engine.slots)
            if sum(slot["is_processing"] for slot in state) == slots:
                return seen
            counts = [slot["next_token"][0]["n_decoded"] for slot in state if "next_token" in slot]
            seen = max(seen, *counts, 0)
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("surface", ["Responses", "Chat Completions"])
async def test_the_engine_stops_when_the_client_of_a_stream_leaves(
    llama: Engine, dialect: Dialect, surface: str
) -> None:
    async with in_front_of(llama, dialect) as behind:
        url = behind.router.url + POSTED[surface]
        async with behind.http.post(url, json=going_on(surface)) as answer:
            await answer.content.readany()
            await at_work(llama, 1)
            answer.close()
        assert await at_work(llama, 0) < ENDLESS / 2
        await behind.router.idle()


@pytest.mark.parametrize("surface", ["Responses", "Chat Completions", "Completions"])
async def test_the_engine_stops_when_the_client_of_a_whole_answer_leaves(
    llama: Engine, dialect: Dialect, surface: str
) -> None:
    async with in_front_of(llama, dialect, stream_whole_answers=True) as behind:
        asking = asyncio.create_task(behind.post(POSTED[surface], going_on(surface, stream=False)))
        await at_work(llama, 1)
        asking.cancel()
        assert await at_work(llama, 0) < ENDLESS / 2
        await behind.router.idle()


async def test_a_stream_whose_engine_is_killed_fails_and_the_next_waits_for_the_load(
    llama: Engine, dialect: Dialect
) -> None:
    async with in_front_of(llama, dialect) as behind:
        url = behind.router.url + "/v1/responses"
        try:
            async with behind.http.post(url, json=going_on("Responses")) as answer:
                begun = b""
                while b"output_text.delta" not in begun:
                    begun += await answer.content.readany()
                llama.kill()
                rest = await answer.content.read()
            assert b"event: response.failed" in rest
            assert b"response.completed" not in rest
        finally:
            if not llama.running:
                llama.start()
        # It listens, and answers 503 for as long as it loads: who asks now waits for it.
        await asyncio.to_thread(llama.until, 200, 503)
        reply = await behind.post("/v1/responses", body_for("Responses", Ask("Say hello"), 2))
        assert reply.status == 200, reply.body
        await asyncio.to_thread(llama.until, 200)
