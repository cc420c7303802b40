"""Starts workers, and keeps as many of them running as there should be.

    SIGTERM, SIGINT   handed on: all workers stop as one process would, and then it ends
    SIGHUP            handed on: all read the configuration again
    SIGUSR2           replaces the workers by new ones, of the program as it is on the disk now, one
                      after the other: the old one drains when its successor is ready

A worker that dies is started again, at once and then with longer and longer pauses. The first one
is ready before the others start, so that there is one that makes the tables of the database; where
it cannot start, nor can the router.

The supervisor serves no request. When it dies its workers end: limits, budgets and slots are
counted here, and could not be kept any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from router.caching import make_store, of_one_process
from router.containers.runner import Runner
from router.containers.runners import make_runner
from router.settings.schema import Settings
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks
from router.workers.accepting import Acceptor, listen_on
from router.workers.children import Child
from router.workers.shared import Shared

__all__ = ["Supervisor"]

_log = get_logger("router.supervisor")

_START_SECONDS: Final = 120.0
"""What a worker has to become ready."""

_SLACK_SECONDS: Final = 15.0
"""What a worker has to end, beside the time in which it drains."""

_LAST_WORDS_SECONDS: Final = 1.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0
_STEADY_SECONDS: Final = 10.0
"""A worker that lived this long is started again at once when it dies."""

_SILENT_SECONDS: Final = 5.0
"""A worker that said nothing for so long gets connections only if all are silent."""


class Supervisor:
    """Runs ``count`` processes of ``command`` as one router with these settings."""

    def __init__(self, settings: Settings, command: Sequence[str], count: int) -> None:
        self._server = settings.server
        self._names = [endpoint.name for endpoint in settings.endpoints]
        self._command = command
        self._count = count
        self._children: list[Child] = []
        if of_one_process(settings.cache):
            make_store(settings.cache)  # mistakes are told at the start
        make = partial(make_store, settings.cache)
        self._shared = Shared(lambda: self._children, make, _runner(settings))
        self._pauses = [0.0] * count
        self._tasks = Tasks()
        self._rolling = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._failed: int | None = None
        self._begun = False

    async def run(self) -> int:
        """Serve until SIGINT or SIGTERM; the exit code. Raises OSError when the address cannot be
        listened on.
        """
        sockets = listen_on(self._server.host, self._server.port)
        acceptor = Acceptor(sockets, self._order)
        with self._signals():
            try:
                await self._begin()
                if self._failed is None and not self._stopping.is_set():
                    acceptor.open()
                    url = _url(self._server.host, sockets[0])
                    _log.info("listening", url=url, endpoints=self._names, workers=self._count)
                    await self._stopping.wait()
                if self._failed is None:
                    await self._ended()
                return self._failed or 0
            finally:
                acceptor.close()
                for child in self._children:
                    child.kill()
                await self._tasks.wait(_SLACK_SECONDS)
                await self._tasks.close()
                await self._shared.close()

    async def _begin(self) -> None:
        """Start the first worker, and when it is ready the others."""
        first = await self._launch(0)
        if first is None or not await self._became_ready(first):
            if self._stopping.is_set():
                return
            status = first.process.returncode if first is not None else None
            self._failed = status if status is not None and status > 0 else 1
            return
        self._begun = True
        await asyncio.gather(*(self._again(index, 0.0) for index in range(1, self._count)))

    async def _launch(self, index: int) -> Child | None:
        """Start a worker; None where it is too late for one, or the system does not let it."""
        if self._stopping.is_set():
            return None
        try:
            child = await Child.start(
                index, self._count, self._command, self._shared.containers.number
            )
        except OSError as exc:
            _log.error("worker cannot be started", worker=index, reason=str(exc))
            return None
        self._children.append(child)
        self._shared.attach(child)
        self._tasks.spawn(self._watch(child), f"worker {index}")
        if self._stopping.is_set():
            child.tell("interrupt")
        return child

    async def _became_ready(self, child: Child) -> bool:
        """Wait until it is ready, or will not be."""
        ready = asyncio.ensure_future(child.ready.wait())
        ended = asyncio.ensure_future(child.process.wait())
        try:
            await asyncio.wait(
                {ready, ended}, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if child.ready.is_set():
                _log.info("worker ready", worker=child.index, process=child.pid)
                return True
            if not ended.done():
                _log.error("worker does not become ready", worker=child.index, process=child.pid)
                child.kill()
                await ended
            return False
        finally:
            ready.cancel()
            ended.cancel()

    async def _watch(self, child: Child) -> None:
        """A worker's life: when it ends another one takes its place, if it should not have."""
        status = await child.process.wait()
        with contextlib.suppress(TimeoutError):  # what it told before its end is read
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await child.lost.wait()
        self._children.remove(child)
        await child.close()
        expected = self._stopping.is_set() or child.retired
        self._shared.detach(child, died=not expected)
        # Where one is being replaced, the other one of the two is there.
        covered = any(one.index == child.index and not one.retired for one in self._children)
        if expected or covered or not self._begun:
            return  # before it has begun, the worker has said why it cannot
        pause = self._next_pause(child)
        _log.warning(
            "worker ended", worker=child.index, process=child.pid, status=status, again_in=pause
        )
        await self._again(child.index, pause)

    async def _again(self, index: int, pause: float) -> None:
        """Start a worker after so many seconds, and wait until it is ready, or will not be."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._stopping.wait()
        child = await self._launch(index)
        while child is None and not self._stopping.is_set():
            await asyncio.sleep(_LONGEST_PAUSE)
            child = await self._launch(index)
        if child is not None:
            await self._became_ready(child)

    def _next_pause(self, child: Child) -> float:
        """Seconds until its successor is started."""
        last = self._pauses[child.index]
        if child.ready.is_set() and time.monotonic() - child.began > _STEADY_SECONDS:
            last = 0.0
            self._pauses[child.index] = _FIRST_PAUSE
        else:
            self._pauses[child.index] = min(_LONGEST_PAUSE, max(_FIRST_PAUSE, 2 * last))
        return last

    def _retire(self, child: Child) -> None:
        """Give it no more connections, and let it end what it works on."""
        child.retired = True
        child.tell("retire")
        self._tasks.spawn(self._overdue(child), f"wait for worker {child.index}")

    async def _overdue(self, child: Child) -> None:
        """Kill a worker that does not end in time."""
        server = self._server
        limit = server.shutdown_delay + server.drain_timeout + _SLACK_SECONDS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await child.process.wait()
                return
        _log.error("worker does not end", worker=child.index, process=child.pid)
        child.kill()

    async def _replace_all(self) -> None:
        """A new worker for each, one after the other; ends where one cannot be started."""
        async with self._rolling:
            for old in sorted(self._children, key=lambda one: one.index):
                if old.retired or old not in self._children or not old.ready.is_set():
                    continue
                successor = await self._launch(old.index)
                if successor is None or not await self._became_ready(successor):
                    _log.error("workers not replaced: a new one does not start", worker=old.index)
                    return
                self._retire(old)
                await old.process.wait()
            _log.info("workers replaced")

    def _order(self) -> Sequence[Child]:
        """Who gets the next connection, the best first."""
        able = [one for one in self._children if one.ready.is_set() and not one.retired]
        since = time.monotonic() - _SILENT_SECONDS
        return sorted(able, key=lambda one: (one.heard < since, one.load, one.turn))

    async def _ended(self) -> None:
        """Wait until all workers have ended, as long as they may take."""
        await asyncio.gather(*map(self._overdue, list(self._children)))

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        def stop(message: str) -> None:
            self._stopping.set()
            self._tell(message)

        loop.add_signal_handler(signal.SIGTERM, stop, "terminate")
        loop.add_signal_handler(signal.SIGINT, stop, "interrupt")
        loop.add_signal_handler(signal.SIGHUP, self._tell, "reload")
        loop.add_signal_handler(
            signal.SIGUSR2, lambda: self._tasks.spawn(self._replace_all(), "replace workers")
        )
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
                loop.remove_signal_handler(number)

    def _tell(self, message: str) -> None:
        for child in self._children:
            child.tell(message)


def _runner(settings: Settings) -> Runner | None:
    """What runs code on this machine, for all workers; None where nothing does."""
    code = settings.tools.code_interpreter
    return make_runner(code) if code is not None and code.local is not None else None


def _url(host: str, listening: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}"
