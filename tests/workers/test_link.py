"""Calls and messages between the supervisor and a worker."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from structlog.testing import capture_logs

from router.workers.link import LinkFailed, WorkerLink
from tests.support.links import linked
from tests.support.waiting import until

LONG = 60.0


async def test_calls_and_messages_keep_their_order() -> None:
    heard: list[Any] = []

    async def later(value: int) -> int:
        await asyncio.sleep(0)
        return 2 * value

    async with linked() as [(one, other)]:
        other.handlers.update({"note": heard.append, "double": later, "same": lambda value: value})
        one.read()
        other.read()
        for number in range(100):
            one.tell("note", number)
        big = "x" * 1_000_000
        answers = await asyncio.gather(
            one.call("double", 21, LONG), one.call("same", [1, None, big], LONG)
        )
        assert [*answers] == [42, [1, None, big]]
        assert heard == [*range(100)]


async def test_what_comes_before_it_is_read_is_kept() -> None:
    heard: list[Any] = []
    async with linked() as [(one, other)]:
        one.tell("note", 1)
        await asyncio.sleep(0.05)
        other.handlers["note"] = heard.append
        other.read()
        await until(lambda: heard == [1])


async def test_what_fails_is_an_error_at_the_caller() -> None:
    def broken(_: object) -> None:
        raise ValueError("no")

    async with linked() as [(one, other)]:
        other.handlers["broken"] = broken
        one.read()
        other.read()
        with capture_logs() as log:
            with pytest.raises(LinkFailed, match="ValueError: no"):
                await one.call("broken", None, LONG)
            with pytest.raises(LinkFailed, match="KeyError"):
                await one.call("unknown", None, LONG)
        assert [line["message"] for line in log] == ["broken", "unknown"]


async def test_nobody_waits_for_a_side_that_is_gone_or_silent() -> None:
    async with linked() as [(one, other)]:
        one.read()
        with pytest.raises(LinkFailed, match="no answer within"):
            await one.call("anything", None, 0.01)  # the other side does not read
        waiting = asyncio.ensure_future(one.call("anything", None, LONG))
        await asyncio.sleep(0)
        await other.close()
        with pytest.raises(LinkFailed, match="gone"):
            await waiting
        assert not one.up
        with pytest.raises(LinkFailed, match="not connected"):
            await one.call("anything", None, LONG)
        one.tell("anything")


async def test_the_end_of_the_other_side_is_noticed() -> None:
    end, other = socket.socketpair()
    lost = asyncio.Event()
    link = await WorkerLink.over(end, lost.set)
    link.read()
    other.close()
    await until(lost.is_set)
    await link.close()


async def test_many_large_answers_at_once_do_not_end_the_link() -> None:
    async def large(_: Any) -> str:
        return "x" * 20_000_000

    async with linked() as [(one, other)]:
        other.handlers["large"] = large
        one.read()
        other.read()
        answers = await asyncio.gather(*(one.call("large", None, LONG) for _ in range(5)))
        assert {len(answer) for answer in answers} == {20_000_000}


async def test_a_message_that_is_too_long_ends_the_link() -> None:
    end, other = socket.socketpair()
    lost = asyncio.Event()
    link = await WorkerLink.over(end, lost.set)
    link.read()
    with capture_logs() as log:
        other.sendall((2**31).to_bytes(4))
        await until(lost.is_set)
    assert [line["event"] for line in log] == ["a message is too long"]
    other.close()
