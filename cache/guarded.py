"""A store that cannot hold anybody up: a deadline on every call, and a breaker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Literal, TypeVar

from cache.breaker import Breaker, BreakerRules
from cache.entry import CacheEntry, InvalidationRule
from cache.store import Change, Found, Store, StoreError, StoreStats

__all__ = ["GuardedStore", "Trouble"]

T = TypeVar("T")

Trouble = Literal["error", "timeout"]

_RULES: Final = BreakerRules(
    failures=3, ratio=2.0, min_requests=1, open_seconds=1.0, max_open_seconds=30.0
)
"""Only what fails in a row counts: no share of failures reaches twice all."""

_INVALIDATE_SECONDS: Final = 30.0
_START_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 5.0


class GuardedStore:
    """Implements ``cache.store.Store`` with another one.

    A call that takes longer than ``timeout`` (seconds) fails. After one that did, or three
    failures in a row, the breaker is open, and every call fails at once. Meanwhile the store is
    asked for its epoch in the background, first after about a second, then after twice as long
    each time, up to 30 seconds; when it answers in time, the breaker closes.

    ``up`` is False while it is open. ``failures`` counts those of the store itself;
    ``on_error`` is told of each of them.
    """

    def __init__(
        self,
        store: Store,
        *,
        timeout: float = 0.25,
        on_error: Callable[[Trouble], None] | None = None,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._timeout = timeout
        self._on_error = on_error
        self._breaker = Breaker(_RULES, random)
        self._probe: asyncio.Task[None] | None = None
        self._closed = False
        self.failures = 0

    @property
    def up(self) -> bool:
        """Whether calls reach the store."""
        return not self._breaker.opens_until

    async def start(self) -> None:
        """See ``Store.start``; it has 30 seconds. When it raises StoreError, the breaker is open,
        and the store may still be used, once it can be.
        """
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._store.start()
        except TimeoutError:
            self._failed("timeout", at_once=True)
            raise StoreError("the cache's store was not ready in time") from None
        except StoreError:
            self._failed("error", at_once=True)
            raise

    async def close(self) -> None:
        """See ``Store.close``; it has 5 seconds."""
        self._closed = True
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.wait({self._probe})
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._store.close()
        except TimeoutError:
            raise StoreError("the cache's store did not end in time") from None

    async def get(self, key: str) -> Found:
        """See ``Store.get``."""
        return await self._guarded(self._store.get, key)

    def at_once(self, key: str) -> CacheEntry | None:
        """See ``Store.at_once``."""
        return None if self._breaker.opens_until else self._store.at_once(key)

    async def put(self, entry: CacheEntry) -> bool:
        """See ``Store.put``."""
        return await self._guarded(self._store.put, entry)

    async def delete(self, key: str) -> bool:
        """See ``Store.delete``."""
        return await self._guarded(self._store.delete, key)

    async def invalidate(self, rule: InvalidationRule) -> int:
        """See ``Store.invalidate``; it has 30 seconds, and nobody's request waits for it. When it
        raises, it may or may not have been done.
        """
        try:
            async with asyncio.timeout(_INVALIDATE_SECONDS):
                return await self._store.invalidate(rule)
        except TimeoutError:
            self._failed("timeout")
            raise StoreError("the cache's store did not invalidate in time") from None
        except StoreError:
            self._failed("error")
            raise

    async def epoch(self) -> int:
        """See ``Store.epoch``."""
        return await self._guarded(self._store.epoch)

    def changes(self) -> AsyncIterator[Sequence[Change]]:
        """See ``Store.changes``: it waits for the store by itself."""
        return self._store.changes()

    async def stats(self) -> StoreStats:
        """See ``Store.stats``."""
        return await self._guarded(self._store.stats)

    async def _guarded(self, call: Callable[..., Awaitable[T]], *arguments: object) -> T:
        if self._breaker.opens_until:
            raise StoreError("the cache's store is left alone for the moment: it failed")
        try:
            async with asyncio.timeout(self._timeout):
                answer = await call(*arguments)
        except TimeoutError:
            self._failed("timeout", at_once=True)
            raise StoreError(f"the cache's store did not answer in {self._timeout:g} s") from None
        except StoreError:
            self._failed("error")
            raise
        self._breaker.succeeded(_now())
        return answer

    def _failed(self, kind: Trouble, *, at_once: bool = False, probe: bool = False) -> None:
        self.failures += 1
        if self._on_error is not None:
            self._on_error(kind)
        if at_once:
            self._breaker.trip(_now())
        else:
            self._breaker.failed(_now(), probe=probe)
        if self._probe is None and self._breaker.opens_until and not self._closed:
            self._probe = asyncio.create_task(self._watch(), name="wait for the cache's store")

    async def _watch(self) -> None:
        """Ask until it answers."""
        while self._breaker.opens_until:
            await asyncio.sleep(self._breaker.opens_until - _now())
            try:
                async with asyncio.timeout(self._timeout):
                    await self._store.epoch()
            except TimeoutError:
                self._failed("timeout", probe=True)
            except Exception:  # whatever it is: nobody else would close the breaker again
                self._failed("error", probe=True)
            else:
                self._breaker.succeeded(_now(), probe=True)
        self._probe = None


def _now() -> float:
    return asyncio.get_running_loop().time()
