"""The runs of this process, and what becomes of those of others that are gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import uniform
from typing import Final

from router.core.exchange import ClientGone, Sink
from router.errors import (
    InternalError,
    NotFound,
    RouterError,
    ShuttingDown,
    StateUnavailable,
)
from router.response.frame import Frame
from router.sessions.endings import Counted, Endings
from router.sessions.event_log import RunLog
from router.sessions.live_run import AtOnce, Claimed, Execute, Live, check_queue, check_room
from router.sessions.tail import Tail
from router.settings.schema import StateSettings
from router.state.database import Database
from router.state.heartbeat import Heartbeat
from router.state.runs import ClaimableRun, RunRow, RunStore
from router.state.statement import StatementStep
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks

__all__ = ["Claimed", "Counted", "Execute", "Runs"]

_log = get_logger("router.runs")

_RECOVERERS: Final = 8
_MAX_OWNERS: Final = 256
_TRIES: Final = 10
_STOPPED: Final = "The router that ran this response stopped before it was finished."
_SHUT_DOWN: Final = "The router was shut down before this response was finished."
_BROKE: Final = "The router could not finish this response; its log has more."


class Runs:
    """Submits, executes, cancels and recovers runs; every router on the database has one.

    At most ``settings.max_runs`` run at once in this process, besides those that were started at
    once, and of an owner no more than ``at_once`` says: what would only wait for room stays in the
    queue. About every ``poll`` seconds it looks for queued runs, for runs of its own that were
    taken from it, and for runs whose router is gone.
    """

    def __init__(
        self,
        db: Database,
        heartbeat: Heartbeat,
        settings: StateSettings,
        execute: Execute,
        counted: Counted,
        *,
        at_once: AtOnce | None = None,
        poll: float = 1.0,
    ) -> None:
        self._db = db
        self._heartbeat = heartbeat
        self._execute = execute
        self._at_once = at_once
        self._poll = poll
        self._max_runs = settings.max_runs
        self._max_queued = settings.max_queued_runs
        self._store = RunStore(db)
        self._endings = Endings(db, self._store, heartbeat.id, counted)
        self._live: dict[str, Live] = {}
        self._ending: Counter[str] = Counter()
        self._served: dict[str, int] = {}
        self._queued = 0
        self._draining = False
        self._drains, self._drained = 0, asyncio.Event()
        self._wake = asyncio.Event()
        self._loops = Tasks()
        self._work = Tasks()

    @property
    def running(self) -> int:
        """How many runs this process works on."""
        return len(self._live)

    @property
    def queued(self) -> int:
        """How many runs wait in the database, as far as it is known here."""
        return self._queued

    def start(self) -> None:
        """Begin to claim and to recover, with a heartbeat that has been started."""
        self._loops.spawn(self._schedule(), "claim runs")
        self._loops.spawn(self._watch(), "recover runs")

    async def drain(self, timeout: float) -> None:
        """Begin nothing more; after ``timeout`` seconds give back or end what still runs."""
        self._draining = True
        self._drains += 1
        try:
            await self._drain(timeout)
        finally:
            self._drains -= 1
            if not self._drains:
                self._drained.set()

    async def _drain(self, timeout: float) -> None:
        await self._work.wait(timeout)
        left = {id: live.log.fence for id, live in self._live.items()}
        with self._ended_here(*left):
            for live in self._live.values():
                live.log.lose("the router shuts down")
            await self._work.close()
            try:
                for id, fence in left.items():
                    await self._give_back(id, fence)
            except StateUnavailable as error:
                _log.warning("runs are left to be recovered", error=error.message)

    @contextlib.contextmanager
    def _ended_here(self, *ids: str) -> Iterator[None]:
        """Somebody here ends these, and perhaps others too: they need no recovery meanwhile."""
        self._ending.update(ids)
        try:
            yield
        finally:
            self._ending.subtract(ids)
            self._ending += Counter()  # drops those that nobody ends any more

    async def stop(self) -> None:
        """End everything here; what was not drained is left to be recovered."""
        self._draining = True
        await self._loops.close()
        await self._work.close()

    # What clients ask for

    async def submit(
        self,
        id: str,
        owner: str,
        conversation: str | None,
        request: bytes,
        opening: Sequence[Frame],
        steps: Sequence[StatementStep],
        *,
        at_once: bool,
        counts: bool = False,
    ) -> bool:
        """Queue a run, or start it here ``at_once`` (in the room of others if it ``counts``), in
        one transaction with ``steps``.

        These insert the response ``id`` and come first; False when a guard of theirs did not hold.
        ``opening`` are its first events, from number 0. Raises Overloaded, StateUnavailable,
        ShuttingDown.
        """
        if self._draining:
            raise ShuttingDown("The router is shutting down.")
        if not at_once:
            check_queue(self._queued, self._max_queued)
        elif counts:
            most = await self._at_once(owner) if self._at_once is not None else None
            check_room(self._live.values(), owner, self._max_runs, most)
        if at_once and not self._heartbeat.alive:
            raise StateUnavailable("The router has lost touch with its database; try again.")
        holder = self._heartbeat.id if at_once else None
        data, count = b"".join([frame.encode() for frame in opening]), len(opening)
        added = self._store.added(id, owner, conversation, request, data, count, holder=holder)
        if at_once:
            live = self._enter(id, owner, 0, count - 1, counts=counts)
            return await self._begin(live, self._db.submit(*steps, *added), request)
        if not await self._db.write(*steps, *added):
            return False
        self._queued += 1
        self._wake.set()
        return True

    async def cancel(self, owner: str, id: str) -> bool:
        """End the owner's run as cancelled, wherever it runs; False when it was over already.

        Raises NotFound and StateUnavailable.
        """
        for _ in range(_TRIES):
            run = await self._store.run(id)
            if run is None or run.owner != owner:
                raise NotFound.of("Response", id)
            if run.state == "over":
                return False
            with self._ended_here(id):
                if (taken := await self._endings.take(run)) is not None:
                    if (live := self._live.get(id)) is not None:
                        live.log.lose("the run was cancelled")
                    if await self._endings.cancel(taken):
                        return True
            # Somebody else is at it too; in step they would take it from each other for ever.
            await asyncio.sleep(uniform(0.0, 0.05))
        raise StateUnavailable("The response keeps changing hands; try again.")

    async def tail(
        self,
        owner: str,
        id: str,
        after: int,
        sink: Sink,
        headers: Mapping[str, str] | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Stream the events of the owner's run after number ``after``, to its end.

        The sink is opened here, with ``headers``, and ended: with a comment on how to resume when
        this is cancelled while ``stopping()``, or the database stays away in mid-stream. Raises
        NotFound before it is opened, ClientGone afterwards, StateUnavailable at any time.
        """
        if await self._store.progress(owner, id) is None:
            raise NotFound.of("Response", id)
        sink.open(headers or {})
        tail = Tail(self._store, self._log_of, owner, id, after, sink)
        try:
            await tail.send()
        except asyncio.CancelledError:
            if not stopping():
                raise
            await tail.stop(self._drained)
        except StateUnavailable:
            tail.leave_off("the database is unavailable")
            raise

    # Runs of this process

    def _log_of(self, id: str) -> RunLog | None:
        live = self._live.get(id)
        return live.log if live is not None and live.task is not None else None

    def _enter(self, id: str, owner: str, fence: int, last_event: int, *, counts: bool) -> Live:
        """Known from before it is claimed: a run in our name that we do not know is recovered."""
        live = Live(owner, counts=counts)
        live.log = RunLog(self._db, self._store, id, fence, last_event, gone=live.gone)
        self._live[id] = live
        return live

    async def _begin(
        self, live: Live, claim: asyncio.Future[bool], request: bytes | None = None
    ) -> bool:
        """Start it as soon as it is ours for sure."""
        try:
            ours = await claim
            if ours and not live.log.lost:
                live.task = self._work.spawn(self._run(live, request), f"run {live.log.id}")
                # Not in the task: one that is cancelled before its first step does nothing.
                live.task.add_done_callback(lambda _: self._leave(live))
            return ours
        finally:
            if live.task is None:
                self._leave(live)

    def _leave(self, live: Live) -> None:
        live.log.shut()
        del self._live[live.log.id]
        self._wake.set()

    async def _run(self, live: Live, request: bytes | None) -> None:
        log = live.log
        try:
            failure = await self._executed(live, request)
            live.task = None
            # It has ended without its end, and nobody else will say so.
            if failure is not None and (run := await self._ours(log.id, log.fence)) is not None:
                await self._endings.fail(run, failure)
        except StateUnavailable as error:
            _log.warning("run left to be recovered", run=log.id, error=error.message)
        finally:
            await log.close()

    async def _executed(self, live: Live, request: bytes | None) -> RouterError | None:
        """Why the run did not come to its end, unless it was lost; raises StateUnavailable."""
        log = live.log
        if request is None and (request := await self._store.request(log.id)) is None:
            return None  # deleted in this moment
        claimed = Claimed(log.id, live.owner, log.fence, log.logged, request)
        try:
            await self._execute(claimed, log)
        except StateUnavailable:
            if not log.lost:
                raise
        except RouterError as error:
            return error
        except ClientGone:
            pass  # the log is lost
        except Exception:
            _log.exception("run broke", run=log.id)
        return None if log.over or log.lost else InternalError(_BROKE)

    async def _ours(self, id: str, fence: int) -> RunRow | None:
        run = await self._store.run(id)
        ours = run is not None and run.state != "over" and run.fence == fence
        return run if ours else None

    # The queue

    async def _schedule(self) -> None:
        while True:
            self._wake.clear()
            try:
                while await self._claim():
                    pass
            except Exception as error:
                if isinstance(error, StateUnavailable):
                    _log.warning("no run could be claimed", error=error.message)
                else:
                    _log.exception("no run could be claimed")
                # Whatever woke it will not have changed that.
                await asyncio.sleep(self._poll)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll * uniform(0.9, 1.1)):
                    await self._wake.wait()

    async def _claim(self) -> bool:
        """Claim for the owners with the fewest running runs, in turn; whether there were any."""
        free = self._max_runs - sum([live.counts for live in self._live.values()])
        if free <= 0 or self._draining or not self._heartbeat.alive:
            return False
        found = await self._store.candidates(_MAX_OWNERS)
        found = [run for run in found if await self._has_room(run)]
        # One that was taken from us a moment ago may still be on its way out.
        least = [c for c in found if c.busy == found[0].busy and c.id not in self._live]
        least.sort(key=lambda run: self._served.get(run.owner, 0))
        claims = [self._submitted(run) for run in least[:free]]
        answers = [await self._begun(live, claim) for live, claim in claims]
        self._queued = max(0, self._queued - sum(answers))
        return any(answers)

    async def _has_room(self, run: ClaimableRun) -> bool:
        if not run.busy or self._at_once is None:
            return True
        most = await self._at_once(run.owner)
        return most is None or run.busy < most

    def _submitted(self, run: ClaimableRun) -> tuple[Live, asyncio.Future[bool]]:
        fence = run.fence + 1
        self._served[run.owner] = max(self._served.values(), default=0) + 1
        live = self._enter(run.id, run.owner, fence, run.last_event, counts=True)
        claim = self._store.claimed(run.id, run.fence, self._heartbeat.id)
        return live, self._db.submit(*claim)

    async def _begun(self, live: Live, claim: asyncio.Future[bool]) -> bool:
        try:
            return await self._begin(live, claim)
        except RouterError as error:
            _log.warning("a run could not be claimed", run=live.log.id, error=error.message)
            return False

    # Recovery

    async def _watch(self) -> None:
        while True:
            try:
                await self._look_after()
            except StateUnavailable as error:
                _log.warning("runs could not be looked after", error=error.message)
            except Exception:
                _log.exception("runs could not be looked after")
            await asyncio.sleep(self._poll * uniform(0.9, 1.1))

    async def _look_after(self) -> None:
        """Stop what is no longer ours, and take over what is nobody's."""
        mine = [live.log for live in self._live.values() if live.task is not None]
        me = self._heartbeat.id
        held = await self._store.held(me)
        fences = {run.id: run.fence for run, _ in held if run.holder == me}
        for log in mine:
            if fences.get(log.id) != log.fence and not (log.completing or log.over):
                log.lose("the run was taken over")
        self._queued = await self._store.queued(self._max_queued)
        settled = self._heartbeat.settled
        orphans = iter([run for run, known in held if run.holder == me or settled or not known])
        workers = Tasks()
        for number in range(min(_RECOVERERS, len(held))):
            workers.spawn(self._recover_all(orphans), f"recover runs {number}")
        try:
            await workers.wait(60.0)
        finally:
            await workers.close()

    async def _recover_all(self, runs: Iterator[RunRow]) -> None:
        for run in runs:
            if run.id in self._live or run.id in self._ending:
                continue
            with self._ended_here(run.id):
                if await self._endings.recover(run, InternalError(_STOPPED)):
                    self._wake.set()

    async def _give_back(self, id: str, fence: int) -> None:
        # Twice: a batch that was on its way may be logged after the first look.
        for _ in range(2):
            if (run := await self._ours(id, fence)) is not None:
                await self._endings.recover(run, ShuttingDown(_SHUT_DOWN))
