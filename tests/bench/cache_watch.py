"""How long an event loop is held up, by what, and how much of it is garbage collection.

It times every step of asyncio's own event loop, one callback each. A step's time by the clock
includes what other threads and processes took from it; its CPU time is that of the loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["Watch"]

_TICK: Final = 0.001
_SHOWN: Final = 5
_NOTABLE: Final = 0.0005


class Watch:
    """Watches the loop that runs between ``watching`` and its end."""

    def __init__(self) -> None:
        self._collecting = 0.0
        self._gc_began = 0.0
        self.reset()

    def reset(self) -> None:
        """Forget what was seen so far."""
        self._steps: list[tuple[float, float, float, str]] = []
        self._late: list[float] = []
        self._longest_gc = 0.0
        self._count = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch meanwhile. Only one at a time."""
        original = asyncio.events.Handle._run

        def timed(handle: Any) -> None:
            # A task is known by its name before it ends.
            clock, cpu, before = time.perf_counter(), time.thread_time(), self._collecting
            original(handle)
            spent = time.perf_counter() - clock
            self._count += 1
            if spent > _NOTABLE:
                own = time.thread_time() - cpu
                self._note(spent, own, self._collecting - before, handle)

        asyncio.events.Handle._run = timed  # type: ignore[method-assign,assignment]
        gc.callbacks.append(self._collected)
        ticker = asyncio.ensure_future(self._tick())
        try:
            yield
        finally:
            ticker.cancel()
            gc.callbacks.remove(self._collected)
            asyncio.events.Handle._run = original  # type: ignore[method-assign]

    def report(self) -> dict[str, Any]:
        """What was seen since the last ``reset``, in milliseconds."""
        late = sorted(self._late) or [0.0]
        by_own = sorted(self._steps, key=lambda step: step[1] - step[2], reverse=True)
        without_gc = max((wall - gc for wall, _, gc, _ in self._steps), default=0.0)
        return {
            "own": max((own - gc for _, own, gc, _ in self._steps), default=0.0) * 1000,
            "wall": without_gc * 1000,
            "gc": self._longest_gc * 1000,
            "late": late[-1] * 1000,
            "late_p99": late[int(len(late) * 0.99)] * 1000,
            "steps": self._count,
            "where": [
                f"{(own - gc) * 1000:.1f} ms of {wall * 1000:.1f} in {what}"
                for wall, own, gc, what in by_own[:_SHOWN]
            ],
        }

    def _note(self, wall: float, own: float, collecting: float, handle: Any) -> None:
        self._steps.append((wall, own, collecting, _named(handle._callback)))
        if len(self._steps) > 10_000:
            self._steps.sort(key=lambda step: step[1] - step[2], reverse=True)
            del self._steps[1000:]

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._gc_began = time.perf_counter()
            return
        spent = time.perf_counter() - self._gc_began
        self._collecting += spent
        self._longest_gc = max(self._longest_gc, spent)

    async def _tick(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                began = time.perf_counter()
                await asyncio.sleep(_TICK)
                if len(self._late) < 1_000_000:
                    self._late.append(time.perf_counter() - began - _TICK)


def _named(callback: Any) -> str:
    """What a callback is about."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        coroutine = owner.get_coro()
        return str(getattr(coroutine, "__qualname__", coroutine))
    name = getattr(callback, "__qualname__", repr(callback))
    return name if owner is None or "." in name else f"{type(owner).__name__}.{name}"
