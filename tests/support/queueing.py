"""A queue, and those who wait in it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from router.endpoints.plan import Queue

__all__ = ["TIMEOUT", "Yard", "dismiss", "turn"]

TIMEOUT = 3.0


@dataclass
class Yard:
    """A queue, who waits in it, and what they got; slots that came back are offered again."""

    size: int = 100
    served: list[str] = field(default_factory=list)
    """Names of those who got a slot, in the order in which they were given it."""
    returned: list[str] = field(default_factory=list)
    looked: list[str] = field(default_factory=list)
    got: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queue: Queue[str] = Queue(self.size, self._back)

    def _back(self, slot: str) -> None:
        self.returned.append(slot)
        self.queue.offer(slot)

    async def stand(
        self, name: str, slots: Collection[str] = "s", seconds: float = TIMEOUT
    ) -> asyncio.Task[str]:
        """Somebody who waits already; the caller is the letter that the name begins with."""

        async def wait() -> str:
            ticket = self.queue.ticket(name[0], seconds)
            while (slot := await self.queue.wait(ticket, slots)) is None:
                self.looked.append(name)
            self.served.append(name)
            self.got[name] = slot
            return slot

        task = asyncio.create_task(wait(), name=name)
        await turn()
        return task

    async def stand_all(self, *names: str) -> list[asyncio.Task[str]]:
        return [await self.stand(name) for name in names]

    async def offer(self, slot: str = "s") -> bool:
        """Offer a slot, and let whoever got it notice."""
        taken = self.queue.offer(slot)
        await turn()
        return taken


async def turn() -> None:
    """Let everybody do what can be done now."""
    for _ in range(5):
        await asyncio.sleep(0)


async def dismiss(tasks: Sequence[asyncio.Task[str]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
