"""Two endpoints that are asked at the same time, and say what they are let say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from router.settings.schema import Dialect
from tests.support.router import Router, endpoint, routing
from tests.support.speech import Speech
from tests.support.upstream import Script, Upstream, Wire
from tests.support.waiting import until

__all__ = ["NAMES", "Gated", "Scene", "scene"]

NAMES = ("one", "two", "three")
_PATIENT = {"connect": 10.0, "first_byte": 30.0, "idle": 30.0, "total": 30.0}


class Gated:
    """An answer that goes on when it is let: the head with the opening, then word by word.

    ``before`` is said before the opening. ``broken`` is how it ends after the opening, instead of
    properly.
    """

    def __init__(
        self, speech: Speech, *, before: bytes = b"", broken: Script | None = None
    ) -> None:
        said = (speech.opening,) if broken else speech.pieces
        self._pieces = [before, *said] if before else said
        self._kind = speech.kind
        self._broken = broken
        self._steps = asyncio.Semaphore(0)

    def let(self, steps: int = 99) -> None:
        """Allow so many more steps."""
        for _ in range(steps):
            self._steps.release()

    async def __call__(self, wire: Wire) -> None:
        """See ``Script``."""
        for number, piece in enumerate(self._pieces):
            await self._steps.acquire()
            if not number:
                wire.head(200, {"Content-Type": self._kind})
            wire.piece(piece)
        await self._steps.acquire()
        await (self._broken(wire) if self._broken else _end(wire))


async def _end(wire: Wire) -> None:
    wire.end()


@dataclass
class Scene:
    """A router before the endpoints ``one``, ``two`` … in this order of preference, of which the
    first is late at once.
    """

    router: Router
    upstreams: list[Upstream]

    @property
    def asked(self) -> list[int]:
        """How many requests each endpoint got."""
        return [len(upstream.requests) for upstream in self.upstreams]

    async def both(self) -> None:
        """Wait until two have been asked."""
        await until(lambda: sum(self.asked) == 2)

    async def gone(self, number: int) -> None:
        """Wait until an endpoint's connection is cut."""
        async with asyncio.timeout(60):
            await self.upstreams[number].requests[0].wire.gone.wait()

    async def free(self, number: int) -> None:
        """Wait until an endpoint has its slot back."""
        await until(lambda: not self.router.deployment(NAMES[number]).in_flight)

    async def counted(self) -> dict[str, float]:
        """How the hedges ended, as the metrics have it."""
        results = ("won", "lost", "failed")
        found = {r: await self.router.metric("pointsman_hedges_total", result=r) for r in results}
        return {result: sum(values) for result, values in found.items() if values}

    async def attempts(self, number: int, result: str) -> float:
        """The attempts at an endpoint with this result."""
        name = NAMES[number]
        counter = "pointsman_upstream_attempts_total"
        return sum(await self.router.metric(counter, endpoint=name, result=result))


@contextlib.asynccontextmanager
async def scene(
    *scripts: Script,
    dialects: tuple[Dialect, ...] = ("chat", "chat"),
    late: float | None = 0.0,
    fields: dict[str, Any] | None = None,
    **sections: Any,
) -> AsyncIterator[Scene]:
    """Endpoints with a script each; ``fields`` are settings of each of them."""
    async with contextlib.AsyncExitStack() as stack:
        upstreams, endpoints = [], []
        for number, (name, script, dialect) in enumerate(
            zip(NAMES, scripts, dialects, strict=False)
        ):
            upstream = await stack.enter_async_context(Upstream(script))
            one = endpoint(
                upstream, dialect, name, priority=number + 1, timeouts=_PATIENT, **(fields or {})
            )
            upstreams.append(upstream)
            endpoints.append(one)
        balance = {"policy": "priority", "hedge": 1.0, **sections.pop("balance", {})}
        router = await stack.enter_async_context(routing(*endpoints, balance=balance, **sections))
        for name in NAMES[: len(upstreams)]:
            for _ in range(20 if late is not None else 0):
                router.deployment(name).late.observe(late or 0.0)
        yield Scene(router, upstreams)
