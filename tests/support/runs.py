"""Routers that share a database, as far as runs are concerned, and what they run."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from router.errors import StateUnavailable
from router.response.frame import Frame
from router.sessions.event_log import RunLog
from router.sessions.runs import Claimed, Execute, Runs
from router.state.database import Database
from router.state.heartbeat import Heartbeat
from router.state.responses import ResponseStore, StoredResponse
from router.state.runs import RunStore
from router.state.statement import Statement, StatementStep, Value
from tests.support.state import opened, state_settings

__all__ = [
    "Heard",
    "Router",
    "Stage",
    "Unsteady",
    "event",
    "held_run",
    "logged",
    "new_response",
    "numbers",
    "over",
    "router",
    "submit",
]

OPENING = ("response.created", "response.queued")
WORDS = ("one", "two", "three")

_FORGET = Statement("DELETE FROM routers WHERE id = :id")


def event(kind: str, number: int, **fields: Any) -> Frame:
    """One numbered event."""
    return Frame.of({"type": kind, "sequence_number": number, **fields})


def item(number: int = 0, text: str = "".join(WORDS)) -> dict[str, Any]:
    """A finished message."""
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {
        "id": f"msg_{number}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": content,
    }


def response(id: str, status: str, output: Sequence[Any] = ()) -> dict[str, Any]:
    """A Response object."""
    return {"id": id, "created_at": 1_700_000_000, "status": status, "error": None,
            "usage": None, "output": list(output)}  # fmt: skip


def new_response(id: str, owner: str = "ada", status: str = "queued") -> StoredResponse:
    """The row of a response that begins."""
    return StoredResponse.of(
        response(id, status), owner=owner, request_items=[], encrypted_reasoning={}, parent=None,
        conversation=None, account=None, background=True, resumable=True,
    )  # fmt: skip


async def held_run(db: Database, id: str, holder: str = "me") -> None:
    """A run that ``holder`` holds with fence 0, with its first two events logged."""
    opening = b"".join([event(kind, number).encode() for number, kind in enumerate(OPENING)])
    added = RunStore(db).added(id, "ada", None, b"{}", opening, len(OPENING), holder=holder)
    assert await db.write(*ResponseStore(db).added(new_response(id)), *added)


async def submit(
    runs: Runs,
    id: str | None = None,
    *,
    owner: str = "ada",
    conversation: str | None = None,
    at_once: bool = False,
    request: bytes = b"{}",
) -> str:
    """Submit a run; its id."""
    id = id or f"resp_{secrets.token_hex(8)}"
    kinds = ("response.created", "response.in_progress") if at_once else OPENING
    opening = [event(kind, number) for number, kind in enumerate(kinds)]
    stored = new_response(id, owner, "in_progress" if at_once else "queued")
    steps = ResponseStore(runs._db).added(stored)
    assert await runs.submit(id, owner, conversation, request, opening, steps, at_once=at_once)
    return id


class Stage:
    """What is executed: each run speaks its words, and with ``hold`` only those it is let.

    With its last word the item is done; the end has to be let on top of that.
    """

    def __init__(self, words: Sequence[str] = WORDS, *, hold: bool = False) -> None:
        self.words = words
        self.begun: list[Claimed] = []
        self.logs: dict[str, RunLog] = {}
        self.stopped: list[str] = []
        self.gates: dict[str, asyncio.Semaphore] = {}
        self.hold = hold

    def let(self, id: str, words: int = 1000) -> None:
        """Allow this run so many more words."""
        gate = self._gate(id)
        for _ in range(words):
            gate.release()

    def has_begun(self, count: int) -> bool:
        """Whether so many runs have begun."""
        return len(self.begun) >= count

    def _gate(self, id: str) -> asyncio.Semaphore:
        return self.gates.setdefault(id, asyncio.Semaphore(0))

    def on(self, db: Database) -> Execute:
        """``execute`` for a router on this database."""

        async def execute(claimed: Claimed, log: RunLog) -> None:
            self.begun.append(claimed)
            self.logs[claimed.id] = log
            try:
                await self._speak(db, claimed, log)
            except asyncio.CancelledError:
                self.stopped.append(claimed.id)
                raise

        return execute

    async def _wait(self, id: str) -> None:
        if self.hold:
            await self._gate(id).acquire()

    async def _speak(self, db: Database, claimed: Claimed, log: RunLog) -> None:
        number = claimed.last_event + 1
        batch = []
        if not await _in_progress_is_logged(db, claimed):
            batch.append(event("response.in_progress", number))
            number += 1
        log.feed(batch)
        for place, word in enumerate(self.words):
            await self._wait(claimed.id)
            if place == 0:
                log.feed([event("response.output_item.added", number, output_index=0)])
                number += 1
            log.feed([event("response.output_text.delta", number, delta=word)])
            number += 1
            if log.paused:
                await log.resumed()
        done = item(text="".join(self.words))
        log.feed([event("response.output_item.done", number, output_index=0, item=done)])
        await self._wait(claimed.id)
        final = response(claimed.id, "completed", [done])
        last = event("response.completed", number + 1, response=final)
        ended = StoredResponse.of(
            final, owner=claimed.owner, request_items=[], encrypted_reasoning={}, parent=None,
            conversation=None, account=None, background=True, resumable=True,
        )  # fmt: skip
        await log.complete(ResponseStore(db).finished(ended), last)
        log.feed([last])


async def _in_progress_is_logged(db: Database, claimed: Claimed) -> bool:
    rows = await RunStore(db).events(claimed.id, -1)
    return any(b"event: response.in_progress" in row.data for row in rows)


class Router:
    """One process: its connection, its presence, its runs."""

    def __init__(self, db: Database, heartbeat: Heartbeat, runs: Runs, counts: list[str]) -> None:
        self.db = db
        self.heartbeat = heartbeat
        self.runs = runs
        self.counts = counts
        self.dead = False

    async def die(self, *, forget: bool = True) -> None:
        """Stop as a crash would: nothing is tidied up. ``forget``: the others know at once."""
        self.dead = True
        await self.runs.stop()
        await self.heartbeat._tasks.close()
        if forget:
            await self.db.write(StatementStep(_FORGET, ({"id": self.heartbeat.id},)))


@asynccontextmanager
async def router(
    url: str, execute: Stage | Execute, *, lease: float = 60.0, poll: float = 0.05, **state: Any
) -> AsyncIterator[Router]:
    """A router on the database at ``url``."""
    async with opened(url) as db:
        heartbeat = Heartbeat(db, lease)
        await heartbeat.start()
        counts: list[str] = []
        runs = Runs(
            db, heartbeat, state_settings(url, **state),
            execute.on(db) if isinstance(execute, Stage) else execute,
            counts.append, poll=poll,
        )  # fmt: skip
        runs.start()
        one = Router(db, heartbeat, runs, counts)
        try:
            yield one
        finally:
            if not one.dead:
                await runs.stop()
                await heartbeat.stop()


async def over(db: Database, id: str) -> bool:
    """Whether the run has come to its end."""
    run = await RunStore(db).run(id)
    return run is not None and run.state == "over"


async def logged(db: Database, id: str) -> bytes:
    """The whole log, after a check that its rows follow each other without gap or repeat."""
    store, after, data = RunStore(db), -1, b""
    while rows := await store.events(id, after):
        for row in rows:
            assert row.first == after + 1
            after = row.last
            data += row.data
    run = await store.run(id)
    assert run is not None
    assert run.last_event == after
    assert numbers(Frame.all_of(data)) == list(range(after + 1))
    return data


def numbers(frames: Sequence[Frame]) -> list[int]:
    """The sequence numbers that the events carry."""
    return [frame.json()["sequence_number"] for frame in frames]


class Heard:
    """A sink that keeps what it hears; ``slow`` makes it pause after every batch."""

    def __init__(self, *, slow: bool = False) -> None:
        self.frames: list[Frame] = []
        self.opened = False
        self.ended = False
        self.slow = slow
        self.paused = False
        self.taken = asyncio.Event()

    async def resumed(self) -> None:
        await self.taken.wait()
        self.taken.clear()
        self.paused = False

    def open(self, headers: Mapping[str, str]) -> None:
        assert not self.opened
        self.opened = True

    def feed(self, batch: Sequence[Frame]) -> None:
        assert self.opened
        assert not self.ended
        assert not self.paused
        self.frames.extend(batch)
        self.paused = self.slow

    def finish(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        raise AssertionError("a stream was asked for")

    def end(self) -> None:
        assert not self.ended
        self.ended = True

    @property
    def bytes(self) -> bytes:
        return b"".join([frame.encode() for frame in self.frames])


class Unsteady:
    """A real database whose writes go wrong as ``mood`` says, job by job.

    ``before``: not written, and said to be unavailable. ``after``: written, and said to be
    unavailable. ``twice``: written two times. ``held``: written when ``gate`` is opened.
    """

    def __init__(self, db: Database, mood: Callable[[], str]) -> None:
        self.db = db
        self.mood = mood
        self.gate = asyncio.Event()
        self.dialect = db.dialect
        self.up = True

    async def start(self) -> None:
        await self.db.start()

    async def close(self) -> None:
        await self.db.close()

    async def read(self, statement: Statement, **parameters: Value) -> list[tuple[Any, ...]]:
        return await self.db.read(statement, **parameters)

    async def write(self, *steps: StatementStep) -> bool:
        mood = self.mood()
        if mood == "held":
            await self.gate.wait()
        if mood == "before":
            raise StateUnavailable("away")
        held = await self.db.write(*steps)
        if mood == "after":
            raise StateUnavailable("away")
        return await self.db.write(*steps) and held if mood == "twice" else held

    def submit(self, *steps: StatementStep, heard: bool = True) -> asyncio.Future[bool]:
        return asyncio.ensure_future(self.write(*steps))

    def hear_again(self, answer: asyncio.Future[bool]) -> asyncio.Future[bool]:
        return self.db.hear_again(answer)
