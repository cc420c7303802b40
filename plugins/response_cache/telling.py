"""Sends a client a whole answer, as its rendering has it: at once, or at a pace."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from cache.request import CachedAnswer
from plugins.response_cache.surfaces import Rendering
from router.plugin import Exchange, Frame, Sink, frame_tokens, persist, persist_whole

__all__ = ["tell"]

_AT_ONCE: Final = 256
"""Events written with one call, before the client is given the time to read them."""

_PACE_SECONDS: Final = 0.02
"""A paced stream is written so often."""


async def tell(
    exchange: Exchange,
    sink: Sink,
    rendering: Rendering,
    answer: CachedAnswer,
    headers: Mapping[str, str],
    rate: float = 0.0,
) -> bytes | list[Frame]:
    """Tell a whole answer, stored first where it is to be; returns what was told. ``rate`` is in
    tokens per second; 0 is at once. Raises RouterError as long as nothing has been sent, and
    ClientGone.
    """
    if not exchange.stream:
        body = rendering.whole(answer)
        if rendering.final is not None:
            body = await persist_whole(
                exchange, rendering.final, rendering.encrypted_reasoning, body
            )
        sink.finish(200, body, headers)
        return body
    frames = rendering.replay(answer)
    if rendering.builder is not None and rendering.final is not None:
        frames[-1] = await persist(
            exchange, rendering.builder, rendering.final, rendering.encrypted_reasoning, frames[-1]
        )
    if not sink.opened:
        sink.open(headers)
    exchange.context.plugin_set.chain.first_output(exchange)
    told = await _paced(exchange, sink, frames, rate) if rate else 0
    for start in range(told, len(frames), _AT_ONCE):
        if start > told and sink.paused:
            await sink.resumed()
        sink.feed(frames[start : start + _AT_ONCE])
    sink.end()
    return frames


async def _paced(exchange: Exchange, sink: Sink, frames: Sequence[Frame], rate: float) -> int:
    """Tell the events one after the other; how many of them were. Not all are when the router
    stops: nobody need wait for what is there.
    """
    loop = asyncio.get_running_loop()
    due = loop.time()
    told = 0
    try:
        for index, frame in enumerate(frames, 1):
            due += frame_tokens(frame) / rate
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
