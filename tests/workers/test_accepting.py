"""Connections that are accepted in one process and served in another."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import pytest

from router.workers.accepting import Acceptor, HandedConnections, listen_on
from tests.support.waiting import until


class Greeter(asyncio.Protocol):
    """Says which worker it is of, and closes."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.worker.served += 1
        transport.write(self.worker.name)  # type: ignore[attr-defined]
        transport.close()


@dataclass
class Worker:
    """Both ends of what connections are handed over with."""

    name: bytes
    handing: socket.socket
    end: socket.socket
    handed: int = 0
    turn: int = 0
    served: int = 0
    handed_over: HandedConnections = field(init=False)

    def __post_init__(self) -> None:
        self.handing.setblocking(False)
        self.handed_over = HandedConnections(self.end)


@asynccontextmanager
async def workers(count: int) -> AsyncIterator[list[Worker]]:
    made = [Worker(b"%d" % number, *socket.socketpair()) for number in range(count)]
    try:
        yield made
    finally:
        for worker in made:
            worker.handing.close()
            await worker.handed_over.close()


def by_load(some: Sequence[Worker]) -> list[Worker]:
    return sorted(some, key=lambda one: (one.handed, one.name))


async def greeting(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_connections_are_spread_evenly() -> None:
    async with workers(2) as both:
        sockets = listen_on("127.0.0.1", 0)
        port = sockets[0].getsockname()[1]
        acceptor = Acceptor(sockets, lambda: by_load(both))
        for worker in both:
            worker.handed_over.open(partial(Greeter, worker))
        greetings = [asyncio.ensure_future(greeting(port)) for _ in range(64)]
        await asyncio.sleep(0)
        acceptor.open()
        assert sorted(await asyncio.gather(*greetings)) == [b"0"] * 32 + [b"1"] * 32
        assert [worker.handed_over.taken for worker in both] == [32, 32]
        acceptor.close()
        with pytest.raises(ConnectionRefusedError):
            await greeting(port)


async def test_who_does_not_take_it_is_passed_over() -> None:
    async with workers(3) as [gone, full, able]:
        gone.end.close()
        with suppress(BlockingIOError):
            while True:
                socket.send_fds(full.handing, [b"\0"], [full.handing.fileno()])
        able.handed_over.open(lambda: Greeter(able))
        sockets = listen_on("127.0.0.1", 0)
        acceptor = Acceptor(sockets, lambda: [gone, full, able])
        acceptor.open()
        assert await greeting(sockets[0].getsockname()[1]) == b"2"
        assert (gone.handed, full.handed, able.handed) == (0, 0, 1)
        acceptor.close()


async def test_connections_wait_until_there_is_a_worker() -> None:
    async with workers(1) as [worker]:
        able: list[Worker] = []
        sockets = listen_on("127.0.0.1", 0)
        acceptor = Acceptor(sockets, lambda: able)
        acceptor.open()
        waiting = asyncio.ensure_future(greeting(sockets[0].getsockname()[1]))
        await until(lambda: acceptor._again is not None)
        worker.handed_over.open(lambda: Greeter(worker))
        able.append(worker)
        assert await waiting == b"0"
        acceptor.close()


def test_all_addresses_of_a_host_have_one_port() -> None:
    sockets = listen_on("localhost", 0)
    assert len({one.getsockname()[1] for one in sockets}) == 1
    for one in sockets:
        one.close()
    with pytest.raises(OSError, match="assign"):
        listen_on("192.0.2.1", 0)
