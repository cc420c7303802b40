"""One call and its clients, without a router around them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from plugins.response_cache.shared_call import SharedCall
from plugins.response_cache.subscriber import Subscriber
from plugins.response_cache.surfaces import SURFACES
from router.plugin import (
    AnswerKind,
    Exchange,
    Frame,
    PluginChain,
    PluginSet,
    RouterError,
    ShuttingDown,
    Sink,
)
from tests.support.exchanges import an_exchange
from tests.support.plugin_chain import HELLO, Page

BODY = {"model": "m", "input": "hi", "stream": True}
RESPONSES = SURFACES[AnswerKind.RESPONSE]


class Slow(Page):
    """Takes the first events, and then none until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = asyncio.Event()

    async def resumed(self) -> None:
        await self.reads.wait()
        self.paused = False


class Held:
    """A record that is stored when it may be."""

    def __init__(self) -> None:
        self.may = asyncio.Event()

    async def finish(
        self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str], last: Frame | None
    ) -> bool:
        await self.may.wait()
        return True

    def abandon(self, response: dict[str, Any], encrypted_reasoning: Mapping[str, str]) -> None:
        pass


async def nobody(exchange: Exchange, sink: Sink) -> None:
    raise AssertionError


def asking() -> Exchange:
    exchange = an_exchange()
    exchange.body, exchange.stream = BODY, True
    exchange.context.plugin_set = PluginSet(PluginChain(()), nobody)
    return exchange


def call_for(exchange: Exchange) -> SharedCall:
    return SharedCall(exchange, RESPONSES, exchange.context.plugin_set)


@asynccontextmanager
async def following(
    call: SharedCall, exchange: Exchange, sink: Sink, *, leads: bool = False
) -> AsyncIterator[tuple[Subscriber, asyncio.Task[None]]]:
    """A subscriber that waits for more."""
    rendering = RESPONSES.rendering(exchange, call if leads else None)
    subscriber = Subscriber(exchange, sink, rendering, call, leads=leads, open_after=9.0)
    task = asyncio.create_task(subscriber.run())
    await asyncio.sleep(0)
    yield subscriber, task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_call_that_waits_for_slow_clients_goes_on_when_a_quick_one_joins() -> None:
    first, slow, quick = asking(), Slow(), Page()
    call = call_for(first)
    async with following(call, first, slow, leads=True):
        call.open({})
        slow.paused = True
        call.feed([HELLO])
        assert call.paused
        waiting = asyncio.create_task(call.resumed())
        await asyncio.sleep(0)
        assert not waiting.done()
        async with following(call, asking(), quick):
            await asyncio.wait_for(waiting, 1)
            call.feed([HELLO])
            assert slow.said == ["open", "hello"]
            assert quick.said == ["open", "hello", "hello"]
            slow.reads.set()
            await asyncio.sleep(0.01)
            assert slow.said == quick.said


async def test_who_is_told_of_a_failure_is_told_nothing_after_it() -> None:
    exchange, page, record = asking(), Page(), Held()
    exchange.record = record
    call = call_for(exchange)
    async with following(call, exchange, page, leads=True) as (subscriber, task):
        builder = subscriber.rendering.builder
        assert builder is not None
        call.open({})
        call.feed(builder.open())
        exchange.abort = ShuttingDown("The router is shutting down.")
        task.cancel()
        await asyncio.sleep(0)
        call.feed([HELLO, HELLO])
        record.may.set()
        await task
    begun = ["open", "response.created", "response.in_progress"]
    assert page.said == [*begun, "response.failed", "end"]


class Reader(Page):
    """A client that reads now and then: events that it has not read are too much for it."""

    def __init__(self, chance: random.Random, patience: float) -> None:
        super().__init__()
        self._chance = chance
        self._patience = patience

    def feed(self, batch: Sequence[Frame]) -> None:
        super().feed(batch)
        self.paused = self.paused or self._chance.random() < self._patience

    async def resumed(self) -> None:
        for _ in range(self._chance.randrange(30)):
            await asyncio.sleep(0)
        self.paused = False


class Plain:
    """A rendering that changes nothing."""

    builder = None
    final = None
    encrypted_reasoning: Mapping[str, str] = {}

    def follow(self, batch: list[Frame]) -> list[Frame]:
        return batch

    def fail(self, error: RouterError, output: list[dict[str, Any]]) -> list[Frame]:
        return [Frame("failed", b"{}")]


@pytest.mark.parametrize("bound", [1 << 20, 80], ids=["little", "much"])
@pytest.mark.parametrize("seed", range(60))
async def test_everybody_is_told_everything_in_order(
    seed: int, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever they come, however they read, and whoever leaves."""
    monkeypatch.setattr("plugins.response_cache.shared_call._MAX_HELD", bound)
    chance = random.Random(seed)
    call = call_for(asking())
    frames = [Frame(str(number), b"0123456789") for number in range(40)]

    async def make() -> None:
        try:
            call.open({})
            for frame in frames:
                if call.paused:
                    await call.resumed()
                call.feed([frame])
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
        finally:
            call.end()
            call.done.set()

    async def take(page: Page, *, leads: bool = False) -> list[str]:
        if not call.joinable:
            raise asyncio.CancelledError
        rendering: Any = Plain()
        client = Subscriber(asking(), page, rendering, call, leads=leads, open_after=9.0)
        await client.run()
        return page.said

    call.task = asyncio.create_task(make())
    clients = [asyncio.create_task(take(Reader(chance, 0.2), leads=True))]
    async with asyncio.timeout(9):
        while not call.complete.is_set():
            if chance.random() < 0.2:
                patience = chance.choice((0.0, 0.6))
                clients.append(asyncio.create_task(take(Reader(chance, patience))))
            if len(clients) > 1 and chance.random() < 0.05:
                chance.choice(clients[1:]).cancel()
            await asyncio.sleep(0)
        told = await asyncio.gather(*clients, return_exceptions=True)
    whole = ["open", *(frame.type for frame in frames), "end"]
    for said in told:
        if isinstance(said, list) and said[-2] == "failed":
            assert bound == 80
            assert said[:-2] == whole[: len(said) - 2]
        else:
            assert said == whole or isinstance(said, asyncio.CancelledError)
    assert isinstance(told[0], list)
