"""One call and its clients, without a router around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from plugins.response_cache.shared_call import SharedCall
from plugins.response_cache.subscriber import Subscriber
from plugins.response_cache.surfaces import SURFACES
from router.plugin import AnswerKind, Exchange, Frame, PluginChain, PluginSet, ShuttingDown, Sink
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
    return SharedCall(exchange.derive(BODY, exchange.context.plugin_set), RESPONSES.answer)


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
