"""The thread for large requests."""

from __future__ import annotations

import asyncio
import threading

import pytest

from router.telemetry import tasks as module
from router.telemetry.tasks import Worker


async def test_closing_does_not_wait_for_what_is_under_way() -> None:
    worker = Worker()
    begun, go_on = threading.Event(), threading.Event()
    done = []

    def long() -> str:
        begun.set()
        go_on.wait(60)
        return "done"

    async with asyncio.timeout(60):
        first = asyncio.ensure_future(worker.run(long))
        second = asyncio.ensure_future(worker.run(lambda: done.append("second")))
        await asyncio.to_thread(begun.wait, 60)
        worker.close()
        assert not first.done()
        with pytest.raises(asyncio.CancelledError):
            await second
        go_on.set()
        assert await first == "done"
    assert not done
    with pytest.raises(RuntimeError):
        await worker.run(long)


async def test_what_waits_is_counted_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    worker = Worker()
    go_on = threading.Event()

    def fail() -> None:
        go_on.wait(60)
        raise ValueError("wrong")

    works = [asyncio.ensure_future(worker.run(fail)) for _ in range(2)]
    await asyncio.sleep(0)
    full = worker.full
    go_on.set()
    assert [type(each) for each in await asyncio.gather(*works, return_exceptions=True)] == [
        ValueError,
        ValueError,
    ]
    assert (full, worker.full) == (True, False)
    worker.close()
