"""A deadline that does not count what this process spends elsewhere."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from cache.patience import Timeout


async def test_silence_ends_it() -> None:
    with pytest.raises(TimeoutError):
        async with Timeout(0.05):
            await asyncio.Event().wait()


async def test_an_answer_that_was_there_in_time_is_heard_by_a_loop_that_was_busy() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        there.send(b"yes")
        loop = asyncio.get_running_loop()
        async with Timeout(0.05):
            answer = asyncio.ensure_future(loop.sock_recv(here, 10))
            for _ in range(3):
                time.sleep(0.1)  # noqa: ASYNC251 - a loop that is held up is what is tested
                await asyncio.sleep(0)
            assert await answer == b"yes"


async def test_a_cancellation_from_elsewhere_is_none_of_its_own() -> None:
    async def wait() -> None:
        async with Timeout(60):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
