"""How cost grows with what is stored: a database of very many responses beside a small one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from .bodies import Request, get
from .check import Checker
from .databases import size_mib
from .fill import SHAPE
from .measure import AT_ONCE, Measure, Target, Values
from .shapes import Shape
from .stored import Store, Stored

__all__ = ["CHAIN", "SMALL", "Grown", "growth", "note_sizes", "retrievals"]

SMALL: Final = 2_000
"""So many responses are in the database that others are compared with."""

CHAIN: Final = 20


@dataclass(frozen=True, slots=True)
class Grown:
    """A router whose database has been filled; ``head`` ends a chain of ``CHAIN`` turns."""

    store: Store
    retrieved: Sequence[Request]
    head: str


def retrievals(picked: Sequence[tuple[str, int]], key: str) -> list[Request]:
    """Requests for filled responses, each an id with the variant of its text."""
    return [
        Request(
            get(f"/v1/responses/{ident}", key), Shape(SHAPE.deltas, SHAPE.delay_ms, variant), False
        )
        for ident, variant in picked
    ]


async def growth(stored: Stored, small: Grown, large: Grown, number: int) -> None:
    """One round of both; the figures are the large one's, and times the small one's."""
    for what in ("add64", "add1", "get64", "get1", "turn1"):
        costs: dict[bool, Values] = {}
        for grown in (small, large) if number % 2 else (large, small):
            target = grown.store.target
            costs[grown is large] = await stored.bench.quiet(_measure(stored, grown, what), target)
        for unit in ("cpu_us", "ms"):
            few, many = costs[False][unit], costs[True][unit]
            figures = {
                f"large_{what}_{unit}": many,
                f"large_{what}_{unit}_x": many / max(1e-9, few),
            }
            stored.figures.add(small.store.target.name, number, figures)


def _measure(stored: Stored, grown: Grown, what: str) -> Measure:
    """``what``: store (add) a response, retrieve (get) one, add a turn; and how many at once."""
    at_once = AT_ONCE if what.endswith("64") else 1
    if what.startswith("get"):
        requests: Sequence[Request] = grown.retrieved
    elif what.startswith("turn"):
        requests = stored.requests(more={"previous_response_id": grown.head})
    else:
        requests = stored.requests()

    async def measure(target: Target) -> Values:
        reads = what.startswith("get")
        if reads:  # the same responses again and again: their ids are not new
            target = replace(target, checker=Checker(own_ids=False))
        return await stored.cost(target, what, requests, at_once, upstream=not reads)

    return measure


async def note_sizes(stored: Stored, small: Grown, large: Grown) -> None:
    """What both take on disk."""
    sizes = {
        "small_mib": await size_mib(small.store.url),
        "large_mib": await size_mib(large.store.url),
    }
    stored.figures.add(small.store.target.name, 0, sizes)
