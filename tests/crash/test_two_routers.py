"""Two routers on one database: what one begins, the other sees, cancels, and takes over."""

from __future__ import annotations

import asyncio
import random
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from router.simulate.server import create_backend, listening
from tests.crash.client import Answer, Client, data_of
from tests.crash.rows import broken_rows, unfinished
from tests.crash.stage import CHAT, Stage, Take, watching
from tests.support.processes import Processes, RouterProcess
from tests.support.state import database_url
from tests.support.waiting import until

__all__ = ["database_url"]

LEASE = 2.0
LATE = 1.5
"""Seconds in which a router that is continued would have written what it must not write."""


@dataclass
class Side:
    """A router with a client and an upstream of its own; that one serves the model ``m``."""

    process: RouterProcess
    client: Client
    stage: Stage


@dataclass
class Pair:
    """Two routers on one database. Both also serve ``sim``, a simulated model."""

    a: Side
    b: Side

    async def taken(self) -> tuple[Side, Side, Take]:
        """Wait for a run to begin: the side that has claimed it, the other one, and its request."""
        a, b = self.a, self.b
        await until(lambda: a.stage.takes or b.stage.takes, what="a request at an upstream")
        runner, other = (a, b) if a.stage.takes else (b, a)
        return runner, other, runner.stage.takes[0]

    async def log(self, ident: str) -> list[tuple[str, int, bytes]]:
        """All events of a run, which both routers have to agree about, numbered without a gap."""
        logs = []
        for side in (self.a, self.b):
            async with side.client.stream(
                "GET", f"/responses/{ident}", stream="true", starting_after=-1
            ) as frames:
                assert not isinstance(frames, Answer), frames
                logs.append([data_of(frame) async for frame in frames])
        assert logs[0] == logs[1]
        assert [number for _, number, _ in logs[0]] == list(range(len(logs[0])))
        return logs[0]

    async def response(self, ident: str) -> dict[str, Any]:
        """A response, which both routers have to agree about."""
        path = f"/responses/{ident}"
        answers = [await side.client.call("GET", path) for side in (self.a, self.b)]
        assert answers[0] == answers[1]
        assert answers[0].status == 200
        return answers[0].json

    async def said_in(self, conversation: str) -> list[str]:
        """The texts of a conversation, which both routers have to agree about."""
        path = f"/conversations/{conversation}/items"
        lists = [
            await side.client.call("GET", path, order="asc", limit=100) for side in (self.a, self.b)
        ]
        assert lists[0] == lists[1]
        return ["".join(p["text"] for p in item["content"]) for item in lists[0].json["data"]]

    async def works(self) -> None:
        """Both routers serve, and the one that was stopped has come back to life."""
        for side in (self.a, self.b):
            for more in ({"background": True}, {"stream_options": {"durable": True}}, {}):
                body = ask("say exactly: fine", model="sim", stream=True, **more)
                async with watching(side.client, "POST", "/responses", body) as watcher:
                    await watcher.until_over()
                assert (watcher.text, watcher.last) == ("fine", "response.completed")


@pytest_asyncio.fixture
async def pair(database_url: str, tmp_path: Path) -> AsyncIterator[Pair]:
    """Two routers; at the end nothing may be unfinished or contradict itself."""
    async with AsyncExitStack() as stack:
        stages = [Stage(), Stage()]
        for stage in stages:
            await stack.enter_async_context(stage.upstream)
        processes = stack.enter_context(Processes(tmp_path))
        url = await stack.enter_async_context(listening(create_backend("chat", ["sim"], pace=0)))
        sim = {"name": "sim", "url": url, "dialect": "chat", "models": ["sim"]}
        state = {"url": database_url, "lease": LEASE}
        started = await asyncio.gather(
            *(
                processes.router(name, {"endpoints": [stage.endpoint(), sim], "state": state})
                for name, stage in zip("ab", stages, strict=True)
            )
        )
        sides = []
        for process, stage in zip(started, stages, strict=True):
            client = await stack.enter_async_context(Client([process.url], random.Random(0)))
            sides.append(Side(process, client, stage))
        yield Pair(*sides)
        for side in sides:
            assert side.process.complaints() == []
        assert await unfinished(database_url) == []
        assert await broken_rows(database_url) == []


def ask(text: str = "hi", model: str = "m", **more: Any) -> dict[str, Any]:
    """The body of a request."""
    return {"model": model, "input": text, **more}


async def test_cancel_on_the_other_router(pair: Pair) -> None:
    created = await pair.a.client.call("POST", "/responses", ask(background=True))
    assert (created.status, created.json["status"]) == (200, "queued")
    ident = created.json["id"]
    runner, other, take = await pair.taken()
    take.say(CHAT.opening, *CHAT.words[:2])
    async with watching(runner.client, "GET", f"/responses/{ident}", stream="true") as watcher:
        await watcher.until_text("Hello, ")
        cancelled = await other.client.call("POST", f"/responses/{ident}/cancel")
        assert (cancelled.status, cancelled.json["status"]) == (200, "cancelled")
        await until(take.wire.gone.is_set, what="the upstream is left")
        await watcher.until_over()
    take.finish(*CHAT.words[2:])
    again = await runner.client.call("POST", f"/responses/{ident}/cancel")
    assert again == cancelled
    assert await pair.response(ident) == cancelled.json
    log = await pair.log(ident)
    assert log == watcher.events
    assert not {kind for kind, _, _ in log} & {"response.completed", "response.failed"}


async def test_resume_on_the_other_router_while_it_runs(pair: Pair) -> None:
    body = ask(stream=True, stream_options={"durable": True})
    async with watching(pair.a.client, "POST", "/responses", body) as first:
        take = await pair.a.stage.take(0)
        take.say(CHAT.opening, CHAT.words[0])
        await first.until_text("Hello")
        path = f"/responses/{first.id}"
        seen = len(first.events)
        after = seen - 1
        async with (
            watching(pair.b.client, "GET", path, stream="true", starting_after=after) as rest,
            watching(pair.b.client, "GET", path, stream="true") as whole,
        ):
            await whole.until_text("Hello")
            for text, word in zip((", ", ", wörld", ", wörld!"), CHAT.words[1:], strict=True):
                take.say(word)
                await rest.until_text(text)  # each of them before the next is said
                await whole.until_text("Hello" + text)
            take.finish()
            for watcher in (first, rest, whole):
                await watcher.until_over()
    assert not pair.b.stage.takes
    assert first.last == "response.completed"
    assert first.events == whole.events == first.events[:seen] + rest.events
    assert await pair.log(first.id) == first.events


async def test_a_run_with_output_is_ended_by_the_other_router(pair: Pair) -> None:
    body = ask(stream=True, background=True)
    async with watching(pair.a.client, "POST", "/responses", body) as first:
        runner, other, take = await pair.taken()
        take.say(CHAT.opening, *CHAT.words[:2])
        await first.until_text("Hello, ")
        path = f"/responses/{first.id}"
        async with watching(other.client, "GET", path, stream="true") as second:
            await second.until_text("Hello, ")
            runner.process.signal(signal.SIGSTOP)
            await second.until_over()
        assert second.last == "response.failed"
        take.finish(*CHAT.words[2:])
        runner.process.signal(signal.SIGCONT)
        await first.until_over()
    await asyncio.sleep(LATE)
    log = await pair.log(first.id)
    assert log == second.events
    assert first.events == log[: len(first.events)]
    response = await pair.response(first.id)
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    await pair.works()


@pytest.mark.parametrize(
    ("how", "said"), [({"background": True}, ""), ({"stream_options": {"durable": True}}, "Hello")]
)
async def test_a_run_without_output_is_run_again_by_the_other_router(
    pair: Pair, how: dict[str, Any], said: str
) -> None:
    """The first router comes back when the second one has ``said`` this, and answers at once."""
    async with watching(pair.a.client, "POST", "/responses", ask(stream=True, **how)) as first:
        await until(lambda: first.events, what="the first event")
        runner, other, late = await pair.taken()
        runner.process.signal(signal.SIGSTOP)
        take = await other.stage.take(0)
        words = list(CHAT.words)
        take.say(CHAT.opening)
        path = f"/responses/{first.id}"
        async with watching(other.client, "GET", path, stream="true") as second:
            if said:
                take.say(words.pop(0))
                await second.until_text(said)
            late.finish(CHAT.opening, *reversed(CHAT.words))
            runner.process.signal(signal.SIGCONT)
            await asyncio.sleep(LATE)
            take.finish(*words)
            await second.until_over()
            await first.until_over()
    assert (second.text, second.last) == (CHAT.text, "response.completed")
    assert await pair.log(first.id) == second.events
    assert first.events == second.events[: len(first.events)]
    response = await pair.response(first.id)
    assert response["status"] == "completed"
    assert response["output"][0]["content"][0]["text"] == CHAT.text
    assert (len(runner.stage.takes), len(other.stage.takes)) == (1, 1)
    await pair.works()


async def test_turns_of_both_routers_are_one_after_the_other(pair: Pair) -> None:
    conversation = (await pair.a.client.call("POST", "/conversations", {})).json["id"]
    ways: list[dict[str, Any]] = [
        {},
        {"stream": True},
        {"background": True, "stream": True},
        {"stream": True, "stream_options": {"durable": True}},
    ]

    async def turn(side: Side, way: dict[str, Any], text: str) -> None:
        body = ask(text, "sim", conversation=conversation, **way)
        if not way:
            answer = await side.client.call("POST", "/responses", body)
            assert (answer.status, answer.json["status"]) == (200, "completed")
            return
        async with watching(side.client, "POST", "/responses", body) as watcher:
            await watcher.until_over()
        assert watcher.last == "response.completed"

    marks = [f"mark {i}{name}" for i in range(8) for name in "ab"]
    async with asyncio.TaskGroup() as group:
        for number, mark in enumerate(marks):
            side = pair.a if mark.endswith("a") else pair.b
            group.create_task(turn(side, ways[number // 2 % 4], mark))
    said = await pair.said_in(conversation)
    assert sorted(said[::2]) == sorted(marks)
    for number, (asked, answered) in enumerate(zip(said[::2], said[1::2], strict=True), start=1):
        assert asked in answered
        turns = re.findall(r"This is turn (\d+)", answered)
        assert turns == ([str(number)] if number > 1 else [])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_of_a_router_that_was_stopped_comes_too_late(pair: Pair, stream: bool) -> None:
    a, b = pair.a, pair.b
    conversation = (await a.client.call("POST", "/conversations", {})).json["id"]
    body = ask("too late", stream=stream, conversation=conversation)
    async with watching(a.client, "POST", "/responses", body) as first:
        take = await a.stage.take(0)
        if stream:
            take.say(CHAT.opening, CHAT.words[0])
            await first.until_text("Hello")
        a.process.signal(signal.SIGSTOP)
        answer = await b.client.call(
            "POST", "/responses", ask("in time", "sim", conversation=conversation)
        )
        assert (answer.status, answer.json["status"]) == (200, "completed")
        if stream:
            take.finish(*CHAT.words[1:])
        else:
            take.answer()
        a.process.signal(signal.SIGCONT)
        await first.until_over()
    if stream:
        assert first.last == "response.failed"
        gone = await b.client.call("GET", f"/responses/{first.id}")
        assert gone.status == 404 or gone.json["status"] == "failed"
    else:
        assert first.answer is not None
        assert first.answer.status == 409
    said = await pair.said_in(conversation)
    assert (len(said), said[0]) == (2, "in time")
    third = await a.client.call(
        "POST", "/responses", ask("afterwards", "sim", conversation=conversation)
    )
    assert "This is turn 2" in third.json["output_text"]
    await pair.works()
