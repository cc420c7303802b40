"""Sends the events of a run, from any number on, to its end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from router.core.exchange import Sink
from router.errors import StateUnavailable
from router.response.frame import Comment, Frame
from router.sessions.event_log import RunLog
from router.state.runs import LogRow, RunStore

__all__ = ["Tail"]

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.25
_PATIENCE_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 0.25
_LAST_SECONDS: Final = 4.0
"""What the end of a run may take when the router stops; less than it waits for its clients."""


class Tail:
    """One reader of the owner's run ``id``, from the event after number ``after``.

    ``live(id)`` is the run's log where it runs in this process: then events are passed on as soon
    as they are logged. Elsewhere the database is asked. Nothing is kept for a reader who falls
    behind: he reads the log again from where he is.
    """

    def __init__(
        self,
        store: RunStore,
        live: Callable[[str], RunLog | None],
        owner: str,
        id: str,
        after: int,
        sink: Sink,
    ) -> None:
        self._store = store
        self._live = live
        self._owner = owner
        self._id = id
        self._after = after
        self._sink = sink
        self._pause = _FIRST_PAUSE

    async def send(self) -> None:
        """Send everything, and end the sink after the run's last event.

        Raises ClientGone, and StateUnavailable when the database stays away in mid-stream.
        """
        more = True
        while more:
            log = self._live(self._id)
            if log is not None and not log.closed:
                await self._follow(log)
            more = await self._look()
        self._sink.end()

    async def stop(self, drained: asyncio.Event) -> None:
        """End the stream because the router stops, once it has ``drained`` its runs.

        That has ended the run, or left it to another router: then a comment says how to resume.
        Raises ClientGone.
        """
        with contextlib.suppress(TimeoutError, StateUnavailable):
            async with asyncio.timeout(_LAST_SECONDS):
                await drained.wait()
                if await self._reached_the_end():
                    self._sink.end()
                    return
        self.leave_off("the router is shutting down")

    def leave_off(self, why: str) -> None:
        """End the stream before the run's end, with a comment on how to resume it.

        It is no event, since its number would be one of the run's.
        """
        query = "stream=true" if self._after < 0 else f"stream=true&starting_after={self._after}"
        where = f"GET /v1/responses/{self._id}?{query}"
        self._sink.feed([Comment(f"{why}; resume with {where}")])
        self._sink.end()

    async def _reached_the_end(self) -> bool:
        """Send what is logged; whether that was all there will be."""
        progress = await self._store.progress(self._owner, self._id)
        if progress is None:
            return True  # deleted
        state, last = progress
        while self._after < last:
            await self._feed(await self._store.events(self._id, self._after))
        return state == "over"

    async def _follow(self, log: RunLog) -> None:
        """Until nothing more comes from this log."""
        with log.watched():
            while True:
                changed = log.changed
                rows = log.after(self._after)
                if rows is None:
                    rows = await self._events()
                if rows:
                    await self._feed(rows)
                elif log.closed:
                    return
                else:
                    await changed.wait()

    async def _look(self) -> bool:
        """Ask the database once; whether there is more to come."""
        progress = await _patiently(lambda: self._store.progress(self._owner, self._id))
        if progress is None:
            return False  # deleted
        state, last = progress
        if last > self._after:
            await self._feed(await self._events())
            self._pause = _FIRST_PAUSE
            return True
        if state == "over":
            return False
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 1.3, _LONGEST_PAUSE)
        return True

    async def _events(self) -> list[LogRow]:
        return await _patiently(lambda: self._store.events(self._id, self._after))

    async def _feed(self, rows: Sequence[LogRow]) -> None:
        for row in rows:
            frames = Frame.all_of(row.data)
            if row.first <= self._after:
                frames = frames[self._after + 1 - row.first :]
            self._sink.feed(frames)
            self._after = row.last
            if self._sink.paused:
                await self._sink.resumed()


async def _patiently(read: Callable[[], Awaitable[T]]) -> T:
    """What ``read`` returns, once the database answers; raises StateUnavailable in the end."""
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return await read()
        except StateUnavailable:
            if time.monotonic() >= give_up:
                raise
        await asyncio.sleep(_AGAIN_SECONDS)
