"""The writer, over a database that does as it is told."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from router.errors import StateUnavailable
from router.state import writer as writing
from router.state.database import Fault, Unreachable, WriteRefused
from router.state.statement import Statement, StatementStep
from router.state.writer import WriteJob, WrittenDatabase, gathered

ADD = Statement("INSERT INTO t (n) VALUES (:n)")
PUT = Statement("INSERT INTO u (n) VALUES (:n)")
SET = Statement("UPDATE t SET n = :n")


class Script(WrittenDatabase):
    """A set of numbers. ``before`` and ``after`` they are written these may raise."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.batches: list[list[int]] = []
        self.before: Callable[[list[int]], None] = lambda numbers: None
        self.after: Callable[[list[int]], None] = lambda numbers: None
        self.began = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def _commit(self, jobs: Sequence[WriteJob]) -> list[bool]:
        rows = [step.statement.values(step.rows[0]) for [step] in [job.steps for job in jobs]]
        numbers = [int(number or 0) for (number,) in rows]
        self.batches.append(numbers)
        self.began.set()
        await self.gate.wait()
        self.before(numbers)
        self.numbers += [n for n in numbers if n not in self.numbers]
        self.after(numbers)
        return [True] * len(jobs)

    @asynccontextmanager
    async def writer(self, timeout: float = 30.0) -> AsyncIterator[Script]:
        WrittenDatabase.__init__(self, timeout)
        self._begin()
        try:
            yield self
        finally:
            await self._end()


def add(n: int, data: bytes = b"") -> StatementStep:
    return StatementStep(ADD, [{"n": n, "data": data}])


def once(error: Exception, when: Callable[[list[int]], bool]) -> Callable[[list[int]], None]:
    left = [error]

    def act(numbers: list[int]) -> None:
        if left and when(numbers):
            raise left.pop()

    return act


async def test_one_alone_goes_at_once_and_others_gather_meanwhile() -> None:
    script = Script()
    script.gate.clear()
    async with script.writer() as writer:
        first = writer.submit(add(0))
        await script.began.wait()
        rest = [writer.submit(add(n)) for n in range(1, 300)]
        script.gate.set()
        assert all(await asyncio.gather(first, *rest))
    assert script.batches == [[0], [*range(1, 257)], [*range(257, 300)]]


async def test_a_batch_is_bounded_in_bytes() -> None:
    script = Script()
    script.gate.clear()
    async with script.writer() as writer:
        writer.submit(add(0))
        await script.began.wait()
        jobs = [writer.submit(add(n, b"x" * 3_000_000)) for n in range(1, 6)]
        jobs.append(writer.submit(add(6, b"x" * 20_000_000)))
        script.gate.set()
        await asyncio.gather(*jobs)
    assert script.batches == [[0], [1, 2], [3, 4], [5], [6]]


@pytest.mark.parametrize("by", ["jobs", "bytes"])
async def test_what_waits_is_bounded(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if by == "jobs":
        monkeypatch.setattr(writing, "MAX_WAITING_JOBS", 20)
    else:
        monkeypatch.setattr(writing, "MAX_WAITING_BYTES", 2000)
    script = Script()
    script.gate.clear()
    async with script.writer() as writer:
        writer.submit(add(0))
        await script.began.wait()
        jobs = [writer.submit(add(n, b"x" * 100)) for n in range(1, 25)]
        with pytest.raises(StateUnavailable):
            await writer.submit(add(99, b"x" * 100))
        script.gate.set()
        results = await asyncio.gather(*jobs, return_exceptions=True)
        assert results[:20] == [True] * 20
        assert all(isinstance(result, StateUnavailable) for result in results[20:])
        assert await writer.submit(add(100))
    assert script.numbers == [*range(21), 100]


async def test_an_unknown_outcome_is_tried_again() -> None:
    """The connection broke after the commit: the job is handed in again, and succeeds."""
    script = Script()
    script.after = once(Unreachable("gone"), lambda numbers: 3 in numbers)
    async with script.writer() as writer:
        with structlog.testing.capture_logs() as log:
            jobs = [writer.submit(add(n)) for n in range(6)]
            assert all(await asyncio.gather(*jobs))
    assert script.numbers == [*range(6)]
    assert [line["event"] for line in log] == [
        "the database does not answer",
        "the database answers again",
    ]


async def test_a_deadlock_is_not_an_outage() -> None:
    script = Script()
    script.before = once(Unreachable("deadlock", down=False), lambda numbers: True)
    async with script.writer() as writer:
        with structlog.testing.capture_logs() as log:
            assert await writer.submit(add(1))
    assert (script.batches, log) == ([[1], [1]], [])


async def test_an_outage_in_the_middle_of_a_search() -> None:
    """A poisoned row, and the database goes away while it is looked for."""
    script = Script()

    def before(numbers: list[int]) -> None:
        if len(numbers) == 2:
            outage(numbers)
        if 13 in numbers:
            raise Fault("bad")

    outage = once(Unreachable("gone"), lambda numbers: True)
    script.before = before
    async with script.writer() as writer:
        jobs = [writer.submit(add(n)) for n in range(20)]
        results = await asyncio.gather(*jobs, return_exceptions=True)
    assert isinstance(results.pop(13), WriteRefused)
    assert results == [True] * 19
    assert script.numbers == [n for n in range(20) if n != 13]


@given(st.sets(st.integers(0, 39)))
def test_exactly_the_poisoned_are_refused(bad: set[int]) -> None:
    async def run() -> None:
        script = Script()

        def before(numbers: list[int]) -> None:
            if bad.intersection(numbers):
                raise Fault("bad")

        script.before = before
        async with script.writer() as writer:
            jobs = [writer.submit(add(n)) for n in range(40)]
            results = await asyncio.gather(*jobs, return_exceptions=True)
        assert {n for n, result in enumerate(results) if result is not True} == bad
        assert script.numbers == [n for n in range(40) if n not in bad]

    with structlog.testing.capture_logs():
        asyncio.run(run())


async def test_each_job_has_its_own_deadline() -> None:
    script = Script()

    def down(numbers: list[int]) -> None:
        raise Unreachable("gone")

    script.before = down
    async with script.writer(timeout=0.4) as writer:
        early = [writer.submit(add(n)) for n in range(3)]
        await asyncio.sleep(0.25)
        late = [writer.submit(add(n)) for n in range(3, 6)]
        results = await asyncio.gather(*early, return_exceptions=True)
        assert all(isinstance(result, StateUnavailable) for result in results)
        assert {result.headers["Retry-After"] for result in results} == {"1"}  # type: ignore[union-attr]
        assert not any(job.done() for job in late)
        script.before = lambda numbers: None
        assert await asyncio.gather(*late) == [True] * 3
    assert script.numbers == [3, 4, 5]


async def test_a_commit_that_never_ends_keeps_nobody_waiting() -> None:
    script = Script()
    script.gate.clear()
    async with script.writer(timeout=0.2) as writer:
        jobs = [writer.submit(add(n)) for n in range(3)]
        jobs += [writer.submit(add(n)) for n in range(3)]
        results = await asyncio.gather(*jobs, return_exceptions=True)
        assert all(isinstance(result, StateUnavailable) for result in results)


async def test_close_ends_what_cannot_be_written() -> None:
    script = Script()
    script.gate.clear()
    async with script.writer(timeout=0.2) as writer:
        running = writer.submit(add(0))
        await script.began.wait()
        waiting = writer.submit(add(1))
        ends = asyncio.gather(running, waiting, return_exceptions=True)
    assert all(isinstance(result, StateUnavailable) for result in await ends)
    with pytest.raises(StateUnavailable):
        await writer.submit(add(2))


async def test_a_lost_write_is_logged_once() -> None:
    script = Script()

    def down(numbers: list[int]) -> None:
        raise Unreachable("gone")

    script.before = down
    with structlog.testing.capture_logs() as log:
        async with script.writer(timeout=0.1) as writer:
            writer.submit(add(0), heard=False)
            cancelled = asyncio.ensure_future(writer.submit(add(1)))
            heard = asyncio.gather(writer.submit(add(2)), return_exceptions=True)
            await asyncio.sleep(0)
            cancelled.cancel()
            await heard
    events = [line["event"] for line in log]
    assert events == ["the database does not answer", *["state was not written"] * 2]


async def test_who_only_listens_is_told_of_a_lost_write() -> None:
    script = Script()

    def before(numbers: list[int]) -> None:
        if 0 in numbers:
            raise Fault("bad")

    script.before = before
    told: list[asyncio.Future[bool]] = []
    async with script.writer() as writer:
        writer.submit(add(0)).add_done_callback(told.append)
        gc.collect()
        assert await writer.submit(add(1))
    assert [type(one.exception()) for one in told] == [WriteRefused]


STEPS = st.builds(
    lambda statement, guard, rows: StatementStep(statement, [{"n": 1}] * rows, guard),
    st.sampled_from([ADD, PUT, SET]), st.booleans(), st.integers(1, 2),
)  # fmt: skip


@given(st.lists(st.lists(STEPS, max_size=3), max_size=8))
def test_gathered(shapes: list[list[StatementStep]]) -> None:
    """No job is lost or overtaken; only jobs that do not notice run side by side."""
    loop = asyncio.new_event_loop()
    try:
        answer = loop.create_future()
    finally:
        loop.close()
    jobs = [WriteJob(tuple(steps), answer, True, 0, 0.0, 0.0) for steps in shapes]
    groups = [*gathered(jobs)]
    assert [job for group, _ in groups for job in group] == jobs
    for group, alike in groups:
        assert alike or len(group) == 1
        statements = {tuple(step.statement for step in job.steps) for job in group}
        assert len(statements) == 1
        for job in group if alike else ():
            guards = [n for n, step in enumerate(job.steps) if step.guard]
            assert guards in ([], [0])
            assert not guards or len(job.steps[0].rows) == 1
            assert all(step.statement is not SET for step in job.steps if not step.guard)
