"""Links between a supervisor and workers, within a test's own process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from router.workers.link import WorkerLink

__all__ = ["linked"]


@asynccontextmanager
async def linked(count: int = 1) -> AsyncIterator[list[tuple[WorkerLink, WorkerLink]]]:
    """So many links: the supervisor's end and the worker's; neither reads yet."""
    made = []
    for _ in range(count):
        ends = socket.socketpair()
        one, other = await asyncio.gather(*(WorkerLink.over(end, lambda: None) for end in ends))
        made.append((one, other))
    try:
        yield made
    finally:
        for pair in made:
            for link in pair:
                await link.close()
