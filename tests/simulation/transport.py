"""The way to a simulated endpoint, as the prober and the loads of models take it."""

from __future__ import annotations

from typing import Any

import orjson

from router.core.upstream import LoadRequest, UpstreamRequest, UpstreamResponse
from tests.simulation.box import Box

__all__ = ["SimulatedTransport"]


class SimulatedTransport:
    """Implements ``router.core.upstream.Transport`` in front of a box.

    It tells what the box serves and has in memory, and loads models. Requests do not come this
    way.
    """

    def __init__(self, box: Box) -> None:
        self._box = box

    @property
    def busy(self) -> bool:
        """See ``Transport.busy``."""
        return False

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """See ``Transport.send``."""
        raise NotImplementedError

    async def get(
        self, path: str, timeout: float, *, unversioned: bool = False
    ) -> tuple[int, bytes]:
        """See ``Transport.get``."""
        await self._box.reach()
        if path == "/api/ps":
            assert self._box.memory is not None
            return 200, _named("models", "name", self._box.memory.listed())
        if path == "/api/tags":
            return 200, _named("models", "name", self._box.machine.models)
        return 200, _named("data", "id", self._box.machine.models)

    async def post(self, request: LoadRequest, timeout: float) -> tuple[int, bytes]:
        """See ``Transport.post``."""
        seconds = await self._box.load(orjson.loads(request.body)["model"])
        return 200, orjson.dumps({"load_duration": int(seconds * 1e9)})

    def retire(self) -> None:
        """See ``Transport.retire``."""

    async def close(self) -> None:
        """See ``Transport.close``."""


def _named(key: str, name: str, models: Any) -> bytes:
    return orjson.dumps({key: [{name: model} for model in models]})
