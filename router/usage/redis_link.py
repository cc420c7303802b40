"""The rate limiter's way to Redis: calls are sent in batches, each with a deadline, behind a
breaker.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from cache.breaker import Breaker, BreakerRules, BreakerState
from cache.store import StoreError
from cache.stores.redis_client import RedisClient
from cache.stores.scripts import Script
from router.telemetry.tasks import Tasks

__all__ = ["Away", "Link"]

_RULES: Final = BreakerRules(
    failures=3, ratio=2.0, min_requests=1, open_seconds=0.5, max_open_seconds=5.0
)
"""Only what fails in a row counts: no share of failures reaches twice all."""

_BATCH: Final = 64
"""So many calls are sent together; a healthy Redis answers them in a few milliseconds."""

_MOST_WAITING: Final = 10_000
_PROBE_SECONDS: Final = 1.0

_CONNECT_SECONDS: Final = 0.5
"""For a probe to connect in; to a request its own deadline applies."""


class Away(Exception):
    """Redis does not answer. ``sent``: it may have done what it was asked to, all the same."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__()
        self.sent = sent


class _Call:
    """A script with its arguments, and the future of whoever waits for what it returns."""

    __slots__ = ("answer", "arguments", "script")

    def __init__(self, script: Script, keys: Sequence[str], ask: dict[str, Any]) -> None:
        self.script = script
        self.arguments = (len(keys), *keys, orjson.dumps(ask))
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def fail(self, *, sent: bool) -> None:
        if not self.answer.done():
            self.answer.set_exception(Away(sent=sent))


class Link:
    """Runs scripts in the Redis at ``url``; raises ValueError where that is none.

    Calls are sent in the order in which they come, over one connection: a batch of those that
    wait, once the batch before is answered. A batch has ``timeout`` seconds from when it is sent;
    time that this process spends elsewhere does not count (``cache.patience``). After three calls
    in a row that failed nobody's call is sent any more, until a ``probe`` succeeds; ``changed`` is
    told when that begins and when it ends. 10 000 calls may wait; more fail at once.
    """

    def __init__(
        self, url: str, prefix: str, timeout: float, changed: Callable[[bool], None]
    ) -> None:
        self._client = RedisClient(
            url,
            prefix,
            connect_timeout=max(timeout, _CONNECT_SECONDS),
            timeout=timeout,
            connections=1,
        )
        self._waiting: deque[_Call] = deque()
        self._sending = False
        self._tasks = Tasks()
        self._timeout = timeout
        self._breaker = Breaker(_RULES, random.random)
        self._changed = changed
        self.failures = 0
        self.why = ""
        """Why the last call failed, for the log."""

    @property
    def name(self) -> str:
        """Where it is, without a password."""
        return self._client.name

    @property
    def up(self) -> bool:
        """Whether calls go out."""
        return self._breaker.state(time.monotonic()) is BreakerState.CLOSED

    @property
    def rests(self) -> float:
        """Seconds until a probe may be sent."""
        return max(0.0, self._breaker.opens_until - time.monotonic())

    def key(self, name: str) -> str:
        """The whole name of a key."""
        return self._client.key(name)

    async def close(self) -> None:
        """End all connections; what still waits fails."""
        await self._tasks.close()
        self._give_up_waiting()
        await self._client.close()

    async def run(self, script: Script, keys: Sequence[str], ask: dict[str, Any]) -> Any:
        """What the script returns; raises Away."""
        if not self.up or len(self._waiting) >= _MOST_WAITING:
            raise Away(sent=False)
        call = _Call(script, keys, ask)
        self._waiting.append(call)
        if not self._sending:
            self._sending = True
            self._tasks.spawn(self._send(), "send calls to the limits' Redis")
        return await call.answer

    async def probe(self, script: Script, keys: Sequence[str]) -> bool:
        """Whether Redis answers again, asked with a script that needs nothing but these keys."""
        if not self._breaker.begin_probe():
            return False
        call = _Call(script, keys, {})
        try:
            await self._exchange([call], max(self._timeout, _PROBE_SECONDS), probe=True)
        except asyncio.CancelledError:
            self._breaker.abandon_probe()
            raise
        return call.answer.exception() is None

    async def _send(self) -> None:
        batch: list[_Call] = []
        try:
            while self._waiting:
                if not self.up:
                    return
                batch = self._next()
                if batch:
                    await self._exchange(batch, self._timeout, probe=False)
        finally:
            self._sending = False
            # Only a sender that was cancelled leaves calls without an answer.
            for call in batch:
                call.fail(sent=True)
            self._give_up_waiting()

    def _give_up_waiting(self) -> None:
        while self._waiting:
            self._waiting.popleft().fail(sent=False)

    def _next(self) -> list[_Call]:
        """The calls to send next; whoever has left meanwhile need not be answered."""
        batch: list[_Call] = []
        while self._waiting and len(batch) < _BATCH:
            call = self._waiting.popleft()
            if not call.answer.done():
                batch.append(call)
        return batch

    async def _exchange(self, batch: Sequence[_Call], timeout: float, *, probe: bool) -> None:
        """Send a batch, and tell each of its callers what came."""
        try:
            answers = await self._client.run_scripts(
                [(call.script, call.arguments) for call in batch], timeout
            )
        except StoreError as exc:
            answers = [exc] * len(batch)
        for call, answer in zip(batch, answers, strict=True):
            if isinstance(answer, StoreError):
                self.why = str(answer)
                self._failed(probe)
                call.fail(sent=True)
                continue
            if self._breaker.succeeded(time.monotonic(), probe=probe):
                self._changed(True)
            if not call.answer.done():
                call.answer.set_result(answer)

    def _failed(self, probe: bool) -> None:
        self.failures += 1
        if self._breaker.failed(time.monotonic(), probe=probe) and not probe:
            self._changed(False)
