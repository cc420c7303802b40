"""Runs one application in this process: listens, waits for a signal, drains, stops.

SIGTERM stops it in two steps: ``/ready`` turns 503 first, and for ``server.shutdown_delay`` seconds
requests are served as before, so that balancers have the time to notice; then it drains. SIGINT
(Ctrl-C) drains at once, and so does a further signal. SIGHUP has it read its configuration again,
and so has a change of the configuration's file.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections.abc import Callable, Iterator
from typing import Final

from aiohttp import web

from cache.core import ResponseCache
from router.app import CACHE, DIRECT, DISPATCHER, RELOADER, create_app
from router.http.direct import DirectSite
from router.http.dispatcher import RequestDispatcher
from router.reload import Following
from router.settings.schema import Settings
from router.settings.watch import ConfigFile
from router.telemetry.log import configure, get_logger
from router.telemetry.tasks import Tasks

__all__ = ["freeze", "new_event_loop", "raise_file_limit", "run", "serve"]

_log = get_logger("router.serve")
_BACKLOG: Final = 4096
_KEEPALIVE_SECONDS: Final = 75.0
_FLUSH_SECONDS: Final = 2.0
"""What a client gets, twice, to read the rest of an answer that is over."""


def run(settings: Settings, config: ConfigFile) -> int:
    """Serve until SIGINT or SIGTERM; the exit code. For the ``pointsman serve`` command.

    ``config`` is where the settings are from, and will be from after a change.
    """
    configure(settings.logging.level, settings.logging.format)
    raise_file_limit()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(serve(settings, config))


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
) -> int:
    """Serve until a signal, or until ``stop`` is set, which drains at once; the exit code.

    ``on_ready`` gets the base URL once the socket listens. While it drains, the socket still does,
    so that new requests are told (503) instead of being left in doubt. A further signal ends the
    draining. Raises OSError when the address cannot be listened on. Without a ``config`` the
    settings stay what they are.
    """
    stop = stop or asyncio.Event()
    app = create_app(settings)
    background = Tasks()
    runner = web.AppRunner(
        app,
        handle_signals=False,
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=_KEEPALIVE_SECONDS,
        shutdown_timeout=_FLUSH_SECONDS,
    )
    with _signals(stop, reloads=config is not None) as (leave, hurry, reload):
        await runner.setup()
        try:
            server = settings.server
            site = DirectSite(runner, app[DIRECT], server.host, server.port, backlog=_BACKLOG)
            await site.start()
            url = _url(server.host, runner.addresses[0][1])
            _log.info("listening", url=url, endpoints=[e.name for e in settings.endpoints])
            if on_ready is not None:
                on_ready(url)
            background.spawn(freeze(app[CACHE]), "freeze what stays")
            if config is not None:
                following = Following(config, app[RELOADER])
                app[RELOADER].again = following.again
                background.spawn(following.follow(reload), "follow the configuration")
            await _first_of(leave, stop)
            await background.close()
            if not stop.is_set():
                _log.info("stopping", seconds=server.shutdown_delay)
                app[DISPATCHER].stop_soon()
                await _first_of(stop, timeout=server.shutdown_delay)
                stop.set()
            _log.info("draining", seconds=server.drain_timeout)
            await _drain(app[DISPATCHER], server.drain_timeout, hurry)
            return 0
        finally:
            await background.close()
            await runner.cleanup()


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


@contextlib.contextmanager
def _signals(
    stop: asyncio.Event, *, reloads: bool
) -> Iterator[tuple[asyncio.Event, asyncio.Event, asyncio.Event]]:
    """Have signals set events, of which three are given: (leave, hurry, reload).

    SIGTERM sets ``leave``. SIGINT, and SIGTERM after that, set ``stop``, and from then on
    ``hurry``. SIGHUP sets ``reload`` where there is something to reload; else it says that the
    terminal was closed, and is like SIGINT.
    """
    leave, hurry, reload = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    caught = []

    def end() -> None:
        (hurry if stop.is_set() else stop).set()

    def terminate() -> None:
        if leave.is_set() or stop.is_set():
            end()
        leave.set()

    for name, react in (
        ("SIGINT", end),
        ("SIGTERM", terminate),
        ("SIGHUP", reload.set if reloads else end),
    ):
        # Not on every platform, and not outside of the main thread.
        with contextlib.suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):
            number = getattr(signal, name)
            loop.add_signal_handler(number, react)
            caught.append(number)
    try:
        yield leave, hurry, reload
    finally:
        for number in caught:
            loop.remove_signal_handler(number)


def _url(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"
