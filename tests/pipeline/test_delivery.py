"""Alarms: many that wait equally long, and one timer."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from router.pipeline.delivery import Alarms
from tests.support.waiting import until


async def test_each_is_called_once_in_the_order_in_which_they_came() -> None:
    alarms = Alarms(0.01)
    called: list[int] = []
    for number in range(5):
        alarms.after(lambda number=number: called.append(number))  # type: ignore[misc]
        await asyncio.sleep(0.001)
    await until(lambda: len(called) == 5)
    later = asyncio.Event()
    alarms.after(later.set)
    await later.wait()
    assert called == [0, 1, 2, 3, 4]


async def test_one_timer_serves_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    timers: list[float] = []
    call_at = loop.call_at

    def counted(when: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, callback, *args)

    monkeypatch.setattr(loop, "call_at", counted)
    alarms = Alarms(60.0)
    for _ in range(100):
        alarms.after(lambda: None).cancel()
    assert len(timers) == 1


async def test_what_is_cancelled_is_not_called_and_let_go() -> None:
    class Kept:
        def call(self) -> None:
            raise AssertionError("it was cancelled")

    alarms = Alarms(0.01)
    kept = Kept()
    gone = weakref.ref(kept)
    alarm = alarms.after(kept.call)
    last = asyncio.Event()
    alarms.after(last.set)
    alarm.cancel()
    del kept
    gc.collect()
    assert gone() is None
    await last.wait()


async def test_one_that_breaks_does_not_keep_the_others() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said))

    def breaks() -> None:
        raise ValueError("broken")

    alarms = Alarms(0.01)
    alarms.after(breaks)
    last = asyncio.Event()
    alarms.after(last.set)
    await last.wait()
    assert [str(said["exception"]) for said in complaints] == ["broken"]
