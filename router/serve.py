"""Runs one application in this process: listens, waits for a signal, drains, stops.

SIGTERM stops it in two steps: ``/ready`` turns 503 first, and for ``server.shutdown_delay`` seconds
requests are served as before, so that balancers have the time to notice; then it drains. SIGINT
(Ctrl-C) drains at once, and so does a further signal. SIGHUP has it read its configuration again,
and so has a change of the configuration's file.

One of several workers (``router.workers``) does the same at its supervisor's word, which also has
it hand over to a successor, and gives it its connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from aiohttp import web

from cache.core import ResponseCache
from router.app import CACHE, DIRECT, DISPATCHER, RELOADER, create_app
from router.http.direct import DirectServer, DirectSite
from router.http.dispatcher import RequestDispatcher
from router.reload import Following, Reloader
from router.settings.schema import ServerSettings, Settings
from router.settings.watch import ConfigFile
from router.telemetry.log import configure, get_logger
from router.telemetry.tasks import Tasks
from router.workers.process import WorkerProcess
from router.workers.supervisor import Supervisor

__all__ = ["freeze", "new_event_loop", "raise_file_limit", "run", "serve", "supervise"]

_log = get_logger("router.serve")
_BACKLOG: Final = 4096
_KEEPALIVE_SECONDS: Final = 75.0
_FLUSH_SECONDS: Final = 2.0
"""What a client gets, twice, to read the rest of an answer that is over."""


def run(settings: Settings, config: ConfigFile, place: str | None = None) -> int:
    """Serve until SIGINT or SIGTERM; the exit code. For the ``pointsman serve`` command.

    ``config`` is where the settings are from, and will be from after a change. ``place`` is that of
    this process among several workers.
    """
    configure(settings.logging.level, settings.logging.format)
    raise_file_limit()
    worker = WorkerProcess(place) if place is not None else None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(serve(settings, config, worker=worker))


def supervise(settings: Settings, command: Sequence[str], workers: int) -> int:
    """Serve with several processes of ``command`` until SIGINT or SIGTERM; the exit code."""
    configure(settings.logging.level, settings.logging.format)
    raise_file_limit()

    async def run() -> int:
        return await Supervisor(settings, command, workers).run()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(run())


def raise_file_limit() -> None:
    """Let this process have as many file descriptors as the system allows it: every client and
    every endpoint's connection takes one, and the usual soft limit of 1024 is for programs that
    use ``select``.
    """
    try:
        import resource
    except ImportError:  # not on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError) as exc:
            _log.warning("the limit of file descriptors stays", limit=soft, reason=str(exc))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed (not on Windows), else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def serve(
    settings: Settings,
    config: ConfigFile | None = None,
    *,
    on_ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
    worker: WorkerProcess | None = None,
) -> int:
    """Serve until a signal, or until ``stop`` is set, which drains at once; the exit code.

    ``on_ready`` gets the base URL once the socket listens. While it drains, the socket still does,
    so that new requests are told (503) instead of being left in doubt. A further signal ends the
    draining. Raises OSError when the address cannot be listened on. Without a ``config`` the
    settings stay what they are. A ``worker`` listens nowhere: it is given its connections.
    """
    signals = Signals(stop or asyncio.Event())
    if worker is not None:
        await worker.connect()
        worker.handle(signals.commands())
        worker.on_lost = signals.abandon
    app = create_app(settings, worker)
    background = Tasks()
    runner = web.AppRunner(
        app,
        handle_signals=False,
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=_KEEPALIVE_SECONDS,
        shutdown_timeout=_FLUSH_SECONDS,
    )
    with signals.caught(reloads=config is not None, supervised=worker is not None):
        if worker is not None:
            worker.join()
        await runner.setup()
        try:
            url = await _listen(runner, app[DIRECT], settings.server, worker)
            if worker is None:  # else the supervisor says so for all
                _log.info("listening", url=url, endpoints=[e.name for e in settings.endpoints])
            if on_ready is not None:
                on_ready(url)
            background.spawn(freeze(app[CACHE]), "freeze what stays")
            if config is not None:
                _follow(config, app[RELOADER], signals, worker, background)
            await _first_of(signals.leave, signals.stop, signals.retire)
            await background.close()
            await _leave(app, runner, settings.server, signals, worker)
            return 0
        finally:
            await background.close()
            await runner.cleanup()
            if worker is not None:
                await worker.close()


async def _listen(
    runner: web.AppRunner,
    direct: DirectServer,
    server: ServerSettings,
    worker: WorkerProcess | None,
) -> str:
    """Take connections from now on; the URL."""
    if worker is None:
        await DirectSite(runner, direct, server.host, server.port, backlog=_BACKLOG).start()
        return _url(server.host, runner.addresses[0][1])
    front = direct.fallback = runner.server
    assert front is not None
    worker.serve(direct, lambda: len(front.connections) + len(direct.connections))
    return _url(server.host, server.port)


def _follow(
    config: ConfigFile,
    reloader: Reloader,
    signals: Signals,
    worker: WorkerProcess | None,
    background: Tasks,
) -> None:
    """Have changes of the configuration taken over, also by the other workers when one is asked."""
    following = Following(config, reloader)

    async def again() -> None:
        await following.again()
        if worker is not None:
            await worker.do_elsewhere("reload again", None)

    reloader.again = again
    if worker is not None:
        worker.reload = following.again
    background.spawn(following.follow(signals.reload), "follow the configuration")


async def _leave(
    app: web.Application,
    runner: web.AppRunner,
    server: ServerSettings,
    signals: Signals,
    worker: WorkerProcess | None,
) -> None:
    """Send clients away, and drain."""
    dispatcher = app[DISPATCHER]
    if not signals.stop.is_set():
        _log.info("stopping", seconds=server.shutdown_delay)
        if signals.leave.is_set():
            dispatcher.stop_soon()
        else:
            dispatcher.hand_over()
            if worker is not None:
                worker.retire()
        await _first_of(signals.stop, timeout=server.shutdown_delay)
    if signals.retire.is_set() and runner.server is not None:
        runner.server.pre_shutdown()  # closes what is idle, and the others after their answer
        app[DIRECT].close_idle()
    signals.stop.set()
    _log.info("draining", seconds=server.drain_timeout)
    await _drain(dispatcher, server.drain_timeout, signals.hurry)


async def freeze(cache: ResponseCache) -> None:
    """What is there now stays for good, and so does what the cache has kept from before: no need
    to look through it again whenever garbage is collected.
    """
    gc.freeze()
    if cache.semantic is not None:
        await cache.semantic.index.ready.wait()
        gc.freeze()


async def _first_of(*events: asyncio.Event, timeout: float | None = None) -> None:
    """Wait until one of them is set, or for so many seconds."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)


async def _drain(dispatcher: RequestDispatcher, seconds: float, hurry: asyncio.Event) -> None:
    """Drain, unless ``hurry`` says that it should be over now."""
    drained = asyncio.ensure_future(dispatcher.drain(seconds))
    hurried = asyncio.ensure_future(hurry.wait())
    try:
        await asyncio.wait({drained, hurried}, return_when=asyncio.FIRST_COMPLETED)
        if not drained.done():
            _log.info("draining ends early")
            await dispatcher.drain(0)
        await drained
    finally:
        for task in (drained, hurried):
            task.cancel()
        await asyncio.wait({drained, hurried})


class Signals:
    """What a process is told, as events.

    ``leave``: stop in two steps. ``stop``: drain at once. ``hurry``: end the draining. ``reload``:
    read the configuration again. ``retire``: a successor is there.
    """

    def __init__(self, stop: asyncio.Event) -> None:
        self.stop = stop
        self.leave, self.hurry = asyncio.Event(), asyncio.Event()
        self.reload, self.retire = asyncio.Event(), asyncio.Event()

    def commands(self) -> dict[str, Callable[[object], None]]:
        """What a supervisor may say."""
        return {
            "terminate": lambda _: self._terminate(),
            "interrupt": lambda _: self._end(),
            "reload": lambda _: self.reload.set(),
            "retire": lambda _: self.retire.set(),
        }

    def abandon(self) -> None:
        """The supervisor is gone: end at once."""
        self.stop.set()
        self.hurry.set()

    def _end(self) -> None:
        (self.hurry if self.stop.is_set() else self.stop).set()

    def _terminate(self) -> None:
        if self.leave.is_set() or self.stop.is_set():
            self._end()
        self.leave.set()

    @contextlib.contextmanager
    def caught(self, *, reloads: bool, supervised: bool) -> Iterator[None]:
        """Have signals set the events.

        SIGTERM sets ``leave``. SIGINT, and SIGTERM after that, set ``stop``, and from then on
        ``hurry``. SIGHUP sets ``reload`` where there is something to reload; else it says that the
        terminal was closed, and is like SIGINT. What a supervisor hands on may also be sent to the
        whole group: then SIGINT is ignored, and SIGTERM counts once.
        """
        reactions = {
            "SIGINT": _ignored if supervised else self._end,
            "SIGTERM": self.leave.set if supervised else self._terminate,
            "SIGHUP": self.reload.set if reloads else self._end,
        }
        loop = asyncio.get_running_loop()
        caught = []
        for name, react in reactions.items():
            # Not on every platform, and not outside of the main thread.
            with contextlib.suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):
                number = getattr(signal, name)
                loop.add_signal_handler(number, react)
                caught.append(number)
        try:
            yield
        finally:
            for number in caught:
                loop.remove_signal_handler(number)


def _ignored() -> None:
    """The supervisor says what to do."""


def _url(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"
