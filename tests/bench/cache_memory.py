"""What the embedder adds to a router: resident memory, and time of a question end to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tests.cache.quality.unrelated import unrelated

from . import procfs
from .bodies import Request, post
from .cache_door import Told
from .cache_filling import MODEL
from .cache_setup import Workshop
from .measure import Target

__all__ = ["as_requests", "memory"]

_REQUESTS: Final = 100
_MIB: Final = 90.0


async def memory(shop: Workshop) -> None:
    """Routers with and without the semantic tier, the same requests; adds to the findings."""
    grown, whole = [], []
    asked = unrelated(_REQUESTS)
    for _ in range(shop.rounds):
        resident = []
        for enabled in (False, True):
            section: dict[str, Any] = {"mode": "always", "semantic": {"enabled": enabled}}
            target = await shop.router("memory", "responses", section)
            await _ask(shop, target, asked)
            resident.append(procfs.resident_kib(target.child.pid) / 1024)
            shop.stop(target)
        grown.append(resident[1] - resident[0])
        whole.append(resident[1])
    part = f"memory of a router after {_REQUESTS} requests"
    shop.findings.add(part, "what the semantic tier adds", grown, "MiB", at_most=_MIB)
    shop.findings.add(part, "all of it, with the semantic tier", whole, "MiB")


async def _ask(shop: Workshop, target: Target, asked: Sequence[str]) -> None:
    await shop.bench.load(
        target, "memory", as_requests(shop.bench.key, asked), 4, each=len(asked) // 4
    )


def as_requests(key: str, asked: Sequence[str], **fields: Any) -> list[Request]:
    """A request for each question, for the same model."""
    shape = Told.parse(MODEL)
    bodies = ({"model": MODEL, "input": text, "store": False, **fields} for text in asked)
    return [Request(post(body, key), shape, stream=False) for body in bodies]
