"""Telling a client an answer that is already there, as if it were being made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

from cache.answer import CachedAnswer
from plugins.response_cache.surfaces import Rendering
from router.core.exchange import Exchange, Sink
from router.core.persist import persist, persist_whole
from router.core.plugin_set import first_output
from router.response.frame import Frame
from router.response.pieces import tokens_of

__all__ = ["begin_output", "tell"]

_AT_ONCE: Final = 256
"""Events written with one call, before the client is given the time to read them."""

_PACE_SECONDS: Final = 0.02
"""A paced stream is written so often."""


def begin_output(exchange: Exchange) -> None:
    """The first output is about to leave; asked again it does nothing."""
    if exchange.first_output is None:
        exchange.first_output = time.monotonic()
        first_output(exchange)


async def tell(
    exchange: Exchange,
    sink: Sink,
    rendering: Rendering,
    answer: CachedAnswer,
    headers: Mapping[str, str],
    rate: float = 0.0,
) -> None:
    """Tell a whole answer, stored first where it is to be. ``rate`` is in tokens per second; 0 is
    at once. Raises RouterError as long as nothing has been sent, and ClientGone.
    """
    if not exchange.stream:
        body = rendering.whole(answer)
        if rendering.final is not None:
            body = await persist_whole(
                exchange, rendering.final, rendering.encrypted_reasoning, body
            )
        sink.finish(200, body, headers)
        return
    frames = rendering.replay(answer)
    if rendering.builder is not None and rendering.final is not None:
        frames[-1] = await persist(
            exchange, rendering.builder, rendering.final, rendering.encrypted_reasoning, frames[-1]
        )
    if not sink.opened:
        sink.open(headers)
    begin_output(exchange)
    if rate:
        told = await _paced(exchange, sink, frames, rate)
        frames = frames[told:]
    await _at_once(sink, frames)
    sink.end()


async def _at_once(sink: Sink, frames: Sequence[Frame]) -> None:
    for start in range(0, len(frames), _AT_ONCE):
        if sink.paused:
            await sink.resumed()
        sink.feed(frames[start : start + _AT_ONCE])


async def _paced(exchange: Exchange, sink: Sink, frames: Sequence[Frame], rate: float) -> int:
    """Tell the events one after the other; how many of them were. Not all are when the router
    stops: nobody need wait for what is there.
    """
    loop = asyncio.get_running_loop()
    due = loop.time()
    told = 0
    try:
        for index, frame in enumerate(frames, 1):
            due += tokens_of(frame) / rate
            if due - loop.time() < _PACE_SECONDS:
                continue
            batch, told = frames[told:index], index
            sink.feed(batch)
            if sink.paused:
                await sink.resumed()
            await asyncio.sleep(due - loop.time())
    except asyncio.CancelledError:
        if exchange.abort is None:
            raise
    return told
