"""Commands as a user runs them, to their end."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import structlog

from router.cli.main import main
from router.telemetry.log import configure

__all__ = ["Ended", "pointsman", "pointsman_process"]

_ROOT = Path(__file__).parents[2]
_DEADLINE = 60.0


@dataclass
class Ended:
    """A command that has ended."""

    status: int
    out: str
    err: str


async def pointsman(*arguments: str) -> Ended:
    """Run ``pointsman ARGUMENTS`` in a thread of this process, whose output is caught meanwhile.

    That takes a tenth of the time of ``pointsman_process``, most of which is importing.
    """
    out, err = _Standard(), _Standard()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _logging_as_before():
        async with asyncio.timeout(_DEADLINE):
            status = await asyncio.to_thread(_status, arguments)
    return Ended(status, out.text(), err.text())


async def pointsman_process(*arguments: str) -> Ended:
    """Run ``pointsman ARGUMENTS`` in a process of its own; it must not end in a traceback."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "router", *arguments),
        cwd=_ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_DEADLINE):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return Ended(process.returncode, out.decode(), err.decode())


class _Standard(io.TextIOWrapper):
    """A standard stream; what is written to it as bytes is caught, too."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def text(self) -> str:
        """All that was written."""
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()


def _status(arguments: Sequence[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as end:
        return int(end.code or 0)


@contextlib.contextmanager
def _logging_as_before() -> Iterator[None]:
    """A command sets the logging of its process up: for itself only, and no logger keeps to it."""
    before = structlog.get_config()
    processors = list(before["processors"])
    loggers = [logging.getLogger(name) for name in ("aiohttp", "opentelemetry")]
    theirs = [(logger.handlers, logger.propagate) for logger in loggers]

    def configured(level: str, form: str) -> None:
        configure(level, form)
        structlog.configure(cache_logger_on_first_use=False)

    try:
        with mock.patch("router.telemetry.log.configure", configured):
            yield
    finally:
        before["processors"][:] = processors  # of which there is one list, changed in place
        structlog.configure(**before)
        for logger, (handlers, propagate) in zip(loggers, theirs, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
