"""The meter's way to Redis: a deadline on every call, and a breaker."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson
from redis.exceptions import NoScriptError

from cache.store import StoreError
from cache.stores.redis_client import RedisClient
from router.balance.breaker import Breaker, Rules, State
from router.books.meter_scripts import Script

__all__ = ["Away", "Link"]

_RULES: Final = Rules(failures=3, ratio=2.0, min_requests=1, open_seconds=0.5, max_open_seconds=5.0)
"""Only what fails in a row counts: no share of failures reaches twice all."""

_AT_ONCE: Final = 32
_PROBE_SECONDS: Final = 1.0

_CONNECT_SECONDS: Final = 0.5
"""For a probe to connect in; to a request its own deadline applies."""

_STALLED: Final = 0.05
"""A deadline that is noticed so late (seconds) says that this process was busy, not Redis."""


class Away(Exception):
    """Redis does not answer. ``sent``: it may have done what it was asked to, all the same."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__()
        self.sent = sent


class Link:
    """Runs scripts in the Redis at ``url``; raises ValueError where that is none.

    A call has ``timeout`` seconds, once it goes out; 32 do at once. After three failures in a row
    nobody's call goes out any more, until a ``probe`` succeeds; ``changed`` is told when that
    begins and when it ends.
    """

    def __init__(
        self, url: str, prefix: str, timeout: float, changed: Callable[[bool], None]
    ) -> None:
        self._client = RedisClient(
            url,
            prefix,
            connect_timeout=max(timeout, _CONNECT_SECONDS),
            timeout=timeout,
            connections=_AT_ONCE + 1,
        )
        self._free = asyncio.Semaphore(_AT_ONCE)
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
        return self._breaker.state(time.monotonic()) is State.CLOSED

    @property
    def rests(self) -> float:
        """Seconds until a probe may be sent."""
        return max(0.0, self._breaker.opens_until - time.monotonic())

    def key(self, name: str) -> str:
        """The whole name of a key."""
        return self._client.key(name)

    async def close(self) -> None:
        """End all connections."""
        await self._client.close()

    async def run(self, script: Script, keys: Sequence[str], ask: dict[str, Any]) -> Any:
        """What the script returns; raises Away."""
        if not self.up:
            raise Away(sent=False)
        # Nobody waits for long: those before go out, or fail by their deadline.
        async with self._free:
            if not self.up:
                raise Away(sent=False)
            return await self._run(script, keys, ask, self._timeout, probe=False)

    async def probe(self, script: Script, keys: Sequence[str]) -> bool:
        """Whether Redis answers again, asked with a script that needs nothing but these keys."""
        if not self._breaker.begin_probe():
            return False
        try:
            await self._run(script, keys, {}, max(self._timeout, _PROBE_SECONDS), probe=True)
        except Away:
            return False
        except asyncio.CancelledError:
            self._breaker.abandon_probe()
            raise
        return True

    async def _run(
        self, script: Script, keys: Sequence[str], ask: dict[str, Any], timeout: float, probe: bool
    ) -> Any:
        words = [len(keys), *keys, orjson.dumps(ask)]
        began = time.monotonic()
        try:
            async with asyncio.timeout(timeout):
                try:
                    answer = await self._client.command("EVALSHA", script.sha, *words)
                except NoScriptError:
                    answer = await self._client.command("EVAL", script.text, *words)
        except (StoreError, TimeoutError) as exc:
            self.why = str(exc) or f"no answer within {timeout:g} s"
            self._failed(began + timeout, probe)
            raise Away(sent=True) from None
        if self._breaker.succeeded(time.monotonic(), probe=probe):
            self._changed(True)
        return answer

    def _failed(self, deadline: float, probe: bool) -> None:
        self.failures += 1
        now = time.monotonic()
        if now - deadline > _STALLED and not probe:
            return
        if self._breaker.failed(now, probe=probe) and not probe:
            self._changed(False)
