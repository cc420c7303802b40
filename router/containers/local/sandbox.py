"""One sandbox: its process, and the socket to what supervises it.

What comes out of a sandbox is never believed: it is bounded in size, and looked at like a client's
request.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final

import orjson

from router.containers.local.command import SandboxOrder
from router.containers.runner import ContainerGone, RunnerFailed
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks

__all__ = ["Sandbox"]

_log = get_logger("router.containers")

_START_SECONDS: Final = 20.0
_FILE_SECONDS: Final = 15.0
_GRACE_SECONDS: Final = 10.0
"""What the supervisor has to end what runs, beside the time that it was given."""

_END_SECONDS: Final = 10.0
_MOST_BYTES: Final = 32 * 1024 * 1024
"""The longest message out of a sandbox: eight images of 2 MiB in base64, and the logs."""

_MOST_WAITING: Final = 32


class Sandbox:
    """The sandbox of this ``order``, started by ``start``. ``threads`` is one thread that stays:
    what it has started ends with it. ``on_end`` is called, once, when the sandbox is gone.
    """

    def __init__(
        self, order: SandboxOrder, threads: Executor, on_end: Callable[[Sandbox], None]
    ) -> None:
        self._order = order
        self._threads = threads
        self._on_end = on_end
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = -1
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        self._current: asyncio.Task[Any] | None = None
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._tasks = Tasks()
        self._gone = False
        self._used = time.monotonic()

    async def start(self) -> str:
        """Start it; the version of its Python. Raises RunnerFailed; whatever is raised, ``end`` has
        to be called.
        """
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        spawning = loop.run_in_executor(self._threads, self._spawn, theirs)
        spawning.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.shield(spawning)  # a thread goes on where its caller is cancelled
            self._reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        except (OSError, ValueError) as error:
            ours.close()
            raise RunnerFailed(
                f"The sandbox cannot be started: {error}.", "sandbox_not_started"
            ) from None
        except asyncio.CancelledError:
            ours.close()
            raise
        try:
            async with asyncio.timeout(_START_SECONDS):
                ready = await self._receive()
        except (TimeoutError, ContainerGone):
            why = self._last_words() or f"no answer within {_START_SECONDS:g} s"
            await self.end()
            raise RunnerFailed(
                f"The sandbox cannot be started: {why}", "sandbox_not_started"
            ) from None
        self._tasks.spawn(self._read(), "read from a sandbox")
        return f"{ready.get('ready')} {ready.get('pid')}"

    def _spawn(self, theirs: socket.socket) -> None:
        self._errors = os.memfd_create("sandbox errors", os.MFD_CLOEXEC)
        nothing: dict[str, str] = {}
        with theirs, self._order.files() as (command, files):
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=files,
                env=nothing,
                cwd="/",
            )

    def _last_words(self) -> str:
        """What bubblewrap said, on one line."""
        if self._errors < 0:
            return ""
        return " ".join(os.pread(self._errors, 500, 0).decode(errors="replace").split())

    async def ask(self, do: str, seconds: float = _FILE_SECONDS, **fields: Any) -> dict[str, Any]:
        """What the supervisor answers, within ``seconds`` and a grace; else the sandbox is ended.

        Raises ContainerGone, and RunnerFailed for what it says it has not done, or where too many
        wait. A caller that is cancelled has what runs stopped.
        """
        if self._waiting >= _MOST_WAITING:
            raise RunnerFailed("Too many requests wait for this container.", "container_busy")
        self._waiting += 1
        asked = self._tasks.spawn(self._ask(do, seconds, fields), f"{do} in a sandbox")
        asked.add_done_callback(self._asked)
        try:
            answer = await asyncio.shield(asked)
        except asyncio.CancelledError:
            if self._current is not asked:
                asked.cancel()  # it waits for others, which go on
            elif do == "execute":
                self._send({"do": "stop"})
            asked.add_done_callback(lambda task: task.cancelled() or task.exception())
            raise
        if (error := answer.get("error")) is not None:
            raise RunnerFailed(str(error)[:200], "container_file_failed", invalid=True)
        return answer

    def _asked(self, _: object) -> None:
        self._waiting -= 1
        self._used = time.monotonic()

    def unused(self, seconds: float) -> bool:
        """Whether nothing was asked of it for so long."""
        return not self._waiting and time.monotonic() - self._used >= seconds

    async def _ask(self, do: str, seconds: float, fields: dict[str, Any]) -> dict[str, Any]:
        async with self._lock:
            if self._gone:
                raise ContainerGone
            self._current = asyncio.current_task()
            self._answer = asyncio.get_running_loop().create_future()
            if do == "execute":
                fields["seconds"] = seconds
            self._send({"do": do, **fields})
            try:
                async with asyncio.timeout(seconds + _GRACE_SECONDS):
                    return await self._answer
            except TimeoutError:
                _log.warning("a sandbox does not answer; it is ended")
                self._kill()
                raise ContainerGone from None
            finally:
                self._answer = self._current = None

    def _send(self, message: dict[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            data = orjson.dumps(message)
            self._writer.write(len(data).to_bytes(4) + data)

    async def _receive(self) -> dict[str, Any]:
        """The next message; raises ContainerGone."""
        assert self._reader is not None
        try:
            size = int.from_bytes(await self._reader.readexactly(4))
            if size > _MOST_BYTES:
                raise ContainerGone
            message = orjson.loads(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, OSError, orjson.JSONDecodeError):
            raise ContainerGone from None
        if not isinstance(message, dict):
            raise ContainerGone
        return message

    async def _read(self) -> None:
        try:
            while True:
                message = await self._receive()
                if self._answer is None or self._answer.done():
                    break  # nothing was asked
                self._answer.set_result(message)
        except ContainerGone:
            pass
        finally:
            self._ended()

    def _ended(self) -> None:
        if self._gone:
            return
        self._gone = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ContainerGone())
        self._kill()
        self._on_end(self)

    def _kill(self) -> None:
        # Bubblewrap's child is the first process of its namespace, and dies with its parent.
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        if self._writer is not None:
            self._writer.close()

    async def end(self) -> None:
        """End it, and wait until no process of it is left."""
        self._ended()
        await self._tasks.wait(_END_SECONDS)  # those who wait for an answer hear that it is gone
        await self._tasks.close()
        await asyncio.get_running_loop().run_in_executor(self._threads, self._reap)

    def _reap(self) -> None:
        if self._process is not None:
            self._process.kill()  # it may have been started since; what has ended is not killed
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                _log.error("a sandbox does not end", process=self._process.pid)
        if self._errors >= 0:
            os.close(self._errors)
            self._errors = -1
        if not self._order.clean_up(_END_SECONDS):
            _log.error("processes of a sandbox do not end")
