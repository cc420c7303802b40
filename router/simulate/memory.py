"""What a simulated Ollama has in memory: models are loaded by use, and leave after a while."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from aiohttp import web

__all__ = ["ClientLeft", "Memory"]

_KEPT_FOR: Final = timedelta(minutes=5)
"""How long a model stays after its last use, where nothing else was asked for."""

_LOOK_SECONDS: Final = 0.01


class ClientLeft(Exception):
    """The connection that a model was being loaded for is closed."""


@dataclass(slots=True)
class _Model:
    """A model in memory, or on its way there. ``context`` 0 is the default."""

    context: int
    kept_for: timedelta
    expires: datetime
    loading: bool


class Memory:
    """Loads as Ollama does.

    A load takes ``load_seconds``. It comes to nothing when the connection that caused it closes;
    whoever waited for the same model then begins anew. A request for another context loads the
    model again. Where there are ``max_loaded``, the one that was used least recently leaves.
    ``loads`` counts the loads that were begun, by model. ``load_seconds`` may be changed at any
    time, for loads under way too.
    """

    def __init__(self, load_seconds: float = 0.0, max_loaded: int | None = None) -> None:
        self.load_seconds = load_seconds
        self._max_loaded = max_loaded
        self._models: dict[str, _Model] = {}  # used least recently first
        self._turns: dict[str, asyncio.Lock] = {}
        self.loads: Counter[str] = Counter()

    def listed(self) -> dict[str, datetime]:
        """What is said to be in memory, and until when: from the moment a load begins."""
        self._forget_expired()
        return {name: model.expires for name, model in self._models.items()}

    async def use(
        self,
        request: web.Request,
        name: str,
        kept_for: timedelta | None = None,
        context: int = 0,
    ) -> float:
        """Have a served model in memory, and for so long from now (None: as was said before).

        The seconds that took. Raises ClientLeft.
        """
        began = time.monotonic()
        async with self._turns.setdefault(name, asyncio.Lock()):
            self._forget_expired()
            model = self._models.pop(name, None)
            if model is None or model.context != context:
                model = await self._load(request, name, context)
            self._models[name] = model
            if kept_for is not None:
                model.kept_for = kept_for
            model.expires = datetime.now(UTC) + model.kept_for
        return time.monotonic() - began if self.load_seconds else 0.0

    def unload(self, name: str) -> None:
        """Take a model out of memory."""
        self._models.pop(name, None)

    async def _load(self, request: web.Request, name: str, context: int) -> _Model:
        self.loads[name] += 1
        self._make_room()
        model = _Model(context, _KEPT_FOR, datetime.now(UTC) + _KEPT_FOR, True)
        self._models[name] = model
        began = time.monotonic()
        try:
            while (left := began + self.load_seconds - time.monotonic()) > 0:
                await asyncio.sleep(min(left, _LOOK_SECONDS))
                if request.transport is None:
                    raise ClientLeft
        finally:
            self._models.pop(name, None)
        model.loading = False
        return model

    def _make_room(self) -> None:
        idle = [name for name, model in self._models.items() if not model.loading]
        if self._max_loaded is not None:
            surplus = max(len(self._models) + 1 - self._max_loaded, 0)
            for name in idle[:surplus]:
                del self._models[name]

    def _forget_expired(self) -> None:
        now = datetime.now(UTC)
        for name, model in list(self._models.items()):
            if not model.loading and model.expires <= now:
                del self._models[name]
