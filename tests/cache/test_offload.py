"""Threads with a bounded queue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from cache.offload import Busy, Offload


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.fixture
def offload(gate: threading.Event) -> Iterator[Offload]:
    offload = Offload(1, waiting=1)
    yield offload
    offload.close()


async def test_it_returns_and_raises_what_the_function_does(offload: Offload) -> None:
    assert await offload.run(divmod, 7, 2, timeout=10) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await offload.run(divmod, 7, 0, timeout=10)


async def test_a_full_queue_refuses_at_once(offload: Offload, gate: threading.Event) -> None:
    jobs = [asyncio.create_task(offload.run(gate.wait, timeout=10)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await offload.run(int, timeout=10)
    gate.set()
    assert await asyncio.gather(*jobs) == [True, True]
    assert await offload.run(int, timeout=10) == 0


async def test_a_job_that_takes_too_long_keeps_its_place(
    offload: Offload, gate: threading.Event
) -> None:
    with pytest.raises(TimeoutError):
        await offload.run(gate.wait, timeout=0.01)
    with pytest.raises(TimeoutError):
        await offload.run(int, timeout=0.01)  # waited in vain, and gave its place back
    waiting = asyncio.create_task(offload.run(int, timeout=10))
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await offload.run(int, timeout=10)
    gate.set()
    assert await waiting == 0


async def test_a_caller_that_leaves_gives_its_place_back(
    offload: Offload, gate: threading.Event
) -> None:
    running = asyncio.create_task(offload.run(gate.wait, timeout=10))
    waiting = asyncio.create_task(offload.run(int, timeout=10))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    another = asyncio.create_task(offload.run(int, timeout=10))
    await asyncio.sleep(0)
    gate.set()
    assert await another == 0
    assert await running


async def test_closing_refuses_what_waits_and_what_comes(
    offload: Offload, gate: threading.Event
) -> None:
    running = asyncio.create_task(offload.run(gate.wait, timeout=10))
    waiting = asyncio.create_task(offload.run(int, timeout=10))
    await asyncio.sleep(0.01)
    offload.close()
    with pytest.raises(Busy):
        await waiting
    with pytest.raises(Busy):
        await offload.run(int, timeout=10)
    gate.set()
    assert await running
