"""Tasks that belong to somebody."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from router.telemetry.tasks import Tasks


async def test_an_error_is_logged_and_not_lost() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    tasks = Tasks()
    with capture_logs() as log:
        tasks.spawn(fail(), "a task")
        assert await tasks.wait(5)
        await asyncio.sleep(0)
    (line,) = log
    assert (line["event"], line["task"]) == ("task failed", "a task")
    assert isinstance(line["exc_info"], ZeroDivisionError)


async def test_wait_says_whether_something_still_runs() -> None:
    gate = asyncio.Event()

    async def work() -> None:
        await gate.wait()

    tasks = Tasks()
    assert await tasks.wait(0)
    tasks.spawn(work(), "work")
    assert len(tasks) == 1
    assert not await tasks.wait(0.01)
    gate.set()
    assert await tasks.wait(5)
    assert len(tasks) == 0


async def test_close_cancels_and_waits_for_the_end() -> None:
    ended = []

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.01)
            ended.append(True)

    tasks = Tasks()
    for _ in range(3):
        tasks.spawn(work(), "work")
    await asyncio.sleep(0)
    await tasks.close()
    assert ended == [True] * 3
    assert len(tasks) == 0
