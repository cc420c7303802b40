"""One worker process, as the supervisor sees it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from typing import Any

from router.workers.link import WorkerLink
from router.workers.totals import Snapshot

__all__ = ["Child"]


class Child:
    """A worker. ``link`` and ``handing`` are the supervisor's ends of its sockets.

    ``joined``: it answers calls. ``ready``: it can serve, and gets connections unless it is
    ``retired``. ``handed`` and ``taken`` count the connections that it was handed and has taken,
    ``open`` are those it has, as of ``heard`` (``time.monotonic``). ``totals`` are its counters and
    histograms when it last told them. ``lost`` is set when there is nothing more to read
    from it.
    """

    def __init__(
        self,
        index: int,
        process: Process,
        link: WorkerLink,
        handing: socket.socket,
        lost: asyncio.Event,
    ) -> None:
        self.index = index
        self.process = process
        self.link = link
        self.handing = handing
        self.lost = lost
        self.joined = self.retired = False
        self.ready = asyncio.Event()
        self.began = self.heard = time.monotonic()
        self.handed = self.taken = self.open = self.turn = 0
        self.totals: Snapshot = []

    @classmethod
    async def start(
        cls, index: int, count: int, command: Sequence[str], supervisor: int = 0
    ) -> Child:
        """Start ``command`` as one of ``count`` workers of the supervisor with this number; raises
        OSError where the system does not let it.
        """
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            pairs = [socket.socketpair() for _ in range(2)]
            for our, their in pairs:
                ours.callback(our.close)
                theirs.callback(their.close)
            (link_end, link_of_child), (handing, handing_of_child) = pairs
            descriptors = link_of_child.fileno(), handing_of_child.fileno()
            place = ":".join(map(str, (index, count, *descriptors, supervisor)))
            handing.setblocking(False)
            lost = asyncio.Event()
            link = await WorkerLink.over(link_end, lost.set)
            process = await asyncio.create_subprocess_exec(
                *command, "--worker", place, pass_fds=descriptors
            )
            ours.pop_all()
        return cls(index, process, link, handing, lost)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self.process.pid

    @property
    def load(self) -> int:
        """How many connections it has, or will have taken in a moment."""
        return self.open + self.handed - self.taken

    def pulse(self, told: Sequence[int]) -> None:
        """It told how many connections it has open, and how many it has taken."""
        self.open, self.taken = told
        self.heard = time.monotonic()

    def tell(self, name: str, value: Any = None) -> None:
        """Send it a message."""
        self.link.tell(name, value)

    def kill(self) -> None:
        """End it at once; one that has ended is fine."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def close(self) -> None:
        """It has ended: close the sockets."""
        self.handing.close()
        await self.link.close()
