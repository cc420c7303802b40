"""Runs one application in this process: listens, waits for a signal, drains, stops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections.abc import Callable, Iterator

from aiohttp import web

from router.app import FRONT, create_app
from router.settings.schema import Settings
from router.telemetry.log import configure, get_logger

__all__ = ["new_event_loop", "run", "serve"]

_log = get_logger("router.serve")
_BACKLOG = 4096


def run(settings: Settings) -> int:
    """Serve until SIGINT or SIGTERM; the exit code. For the ``switchyard serve`` command."""
    configure(settings.logging.level, settings.logging.format)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(serve(settings))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed (not on Windows), else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def serve(
    settings: Settings,
    *,
    on_ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
) -> int:
    """Serve until a signal, or until ``stop`` is set; the exit code.

    ``on_ready`` gets the base URL once the socket listens. A second signal ends the draining.
    Raises OSError when the address cannot be listened on.
    """
    stop = stop or asyncio.Event()
    app = create_app(settings)
    runner = web.AppRunner(
        app,
        handle_signals=False,
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=75.0,
        shutdown_timeout=5.0,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.server.host, settings.server.port, backlog=_BACKLOG)
        await site.start()
        url = _url(settings.server.host, runner.addresses[0][1])
        _log.info("listening", url=url, endpoints=[e.name for e in settings.endpoints])
        if on_ready is not None:
            on_ready(url)
        gc.freeze()  # what is there now stays for good: no need to look through it again
        with _signals(stop):
            await stop.wait()
            _log.info("draining", seconds=settings.server.drain_timeout)
            await site.stop()
            await _drain(app, settings.server.drain_timeout)
        return 0
    finally:
        await runner.cleanup()


async def _drain(app: web.Application, seconds: float) -> None:
    """Drain, unless a second signal says that it should be over now."""
    hurry = asyncio.Event()
    with _signals(hurry):
        drained = asyncio.ensure_future(app[FRONT].drain(seconds))
        hurried = asyncio.ensure_future(hurry.wait())
        await asyncio.wait({drained, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not drained.done():
            drained.cancel()
            await app[FRONT].drain(0)


@contextlib.contextmanager
def _signals(event: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    caught = []
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, event.set)
            caught.append(number)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)


def _url(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"
