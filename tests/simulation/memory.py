"""What a simulated endpoint has in memory, and how long it takes to get a model there."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

__all__ = ["Memory"]

_KEPT_SECONDS: Final = 300.0


class _Resident:
    def __init__(self) -> None:
        self.users = 0
        self.used_at = 0.0
        self.expiring = False
        self.idle = asyncio.Event()


class Memory:
    """Room for some models, in the manner of Ollama.

    One model is loaded at a time; what is in memory already serves meanwhile. For a model that
    does not fit beside the others the one used longest ago has to go, as soon as it has nothing
    to do. Sizes are in GB, ``speed`` in GB per second. ``evicted(model)`` is called for each that
    has gone.
    """

    def __init__(
        self,
        sizes: Mapping[str, float],
        room: float,
        speed: float,
        evicted: Callable[[str], None],
    ) -> None:
        self.loads: Counter[str] = Counter()
        self._sizes = sizes
        self._room = room
        self._speed = speed
        self._evicted = evicted
        self._gate = asyncio.Lock()
        self._resident: dict[str, _Resident] = {}
        self._loading: str | None = None

    def listed(self) -> list[str]:
        """What ``/api/ps`` shows: also what is being loaded."""
        self._forget_idle()
        return [*self._resident, *([self._loading] if self._loading else [])]

    def clear(self) -> None:
        """The endpoint has been started anew."""
        for model in list(self._resident):
            self._evict(model)

    @asynccontextmanager
    async def using(self, model: str) -> AsyncIterator[None]:
        """Have the model in memory meanwhile; it is loaded first, if need be."""
        held = self._free(model)
        if held is None:
            async with self._gate:
                held = self._free(model) or await self._load(model)
                held.users += 1
        else:
            held.users += 1
        try:
            yield
        finally:
            held.users -= 1
            held.used_at = asyncio.get_running_loop().time()
            if not held.users:
                held.idle.set()

    def _free(self, model: str) -> _Resident | None:
        self._forget_idle()
        held = self._resident.get(model)
        return held if held is not None and not held.expiring else None

    async def _load(self, model: str) -> _Resident:
        size = self._sizes[model]
        while sum(self._sizes[name] for name in self._resident) + size > self._room:
            await self._make_room()
        self._loading = model
        self.loads[model] += 1
        try:
            await asyncio.sleep(size / self._speed)
        finally:
            self._loading = None
        held = self._resident[model] = _Resident()
        held.used_at = asyncio.get_running_loop().time()
        return held

    async def _make_room(self) -> None:
        name, victim = min(
            self._resident.items(), key=lambda item: (item[1].users > 0, item[1].used_at)
        )
        victim.expiring = True
        try:
            while victim.users:
                victim.idle.clear()
                await victim.idle.wait()
        finally:
            victim.expiring = False
        if self._resident.get(name) is victim:
            self._evict(name)

    def _forget_idle(self) -> None:
        oldest = asyncio.get_running_loop().time() - _KEPT_SECONDS
        for model, held in list(self._resident.items()):
            if not held.users and held.used_at < oldest:
                self._evict(model)

    def _evict(self, model: str) -> None:
        del self._resident[model]
        self._evicted(model)
