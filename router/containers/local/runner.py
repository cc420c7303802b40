"""Containers as sandboxes on this machine.

Whether sandboxes here hold what they should is tried out before the first of them is used: what
the kernel, a security module or a container around the router has switched off shows there.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode, b64encode
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import orjson

from router.containers.local.command import SandboxOrder
from router.containers.local.control_group import ControlGroup, ControlGroups
from router.containers.local.sandbox import Sandbox
from router.containers.local.seccomp import SUPERVISOR, is_known_machine
from router.containers.runner import (
    CodeOutcome,
    ContainerFile,
    ContainerGone,
    ContainerRef,
    RunnerFailed,
)
from router.settings.code_interpreter import LocalRunnerSettings
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks

__all__ = ["LocalRunner"]

_log = get_logger("router.containers")

_MIB: Final = 1024 * 1024
_TRIAL_MEMORY: Final = 256 * _MIB
_TRIAL_SECONDS: Final = 20.0
_TRIAL_CHARACTERS: Final = 4000
_FORGOTTEN_SECONDS: Final = 3600.0
"""Containers expire long before, when they are not used."""

_OUTCOMES: Final = frozenset(
    {"completed", "error", "timeout", "stopped", "memory", "files", "ended"}
)


class LocalRunner:
    """Implements ``Runner`` by a sandbox for each container."""

    kind = "local"
    lives_here = True

    def __init__(self, settings: LocalRunnerSettings) -> None:
        self._settings = settings
        self._sandboxes: dict[str, Sandbox] = {}
        self._starting = 0
        # One thread, which stays: what it has started dies with it.
        self._threads = ThreadPoolExecutor(1, "sandboxes")
        self._groups = ControlGroups(settings.cgroup) if settings.cgroup else None
        self._trial: asyncio.Task[str | None] | None = None
        self._tasks = Tasks()

    async def open(self, ref: ContainerRef) -> str:
        """See ``Runner.open``. Raises RunnerFailed where sandboxes on this machine do not hold."""
        if (problem := await self.problem()) is not None:
            raise RunnerFailed(f"This router cannot run code safely: {problem}.", "no_safe_runner")
        most = self._settings.max_containers
        if len(self._sandboxes) + self._starting >= most:
            await self._end_forgotten()
        if len(self._sandboxes) + self._starting >= most:
            raise RunnerFailed(
                f"This router has {most} containers, which is the limit.", "too_many_containers"
            )
        self._starting += 1
        try:
            await self._start(ref.id, ref.memory)
        finally:
            self._starting -= 1
        return ""

    async def _end_forgotten(self) -> None:
        """End those that nobody can know of any more: a worker that has one made may be killed
        before it is noted.
        """
        boxes = self._sandboxes.items()
        forgotten = [ident for ident, box in boxes if box.unused(_FORGOTTEN_SECONDS)]
        ended = [self._sandboxes.pop(ident).end() for ident in forgotten]
        await asyncio.gather(*ended)

    async def _start(self, ident: str, memory: int) -> Sandbox:
        group = self._group(memory)
        order = SandboxOrder(self._settings, memory, group)

        def ended(sandbox: Sandbox) -> None:
            if self._sandboxes.get(ident) is sandbox:
                del self._sandboxes[ident]
                self._tasks.spawn(sandbox.end(), "end a sandbox")

        sandbox = Sandbox(order, self._threads, ended)
        try:
            version = await sandbox.start()
        except BaseException:
            self._tasks.spawn(sandbox.end(), "end a sandbox")
            raise
        if version.rpartition(" ")[2] != str(SUPERVISOR):
            await sandbox.end()
            raise RunnerFailed("The supervisor of the sandbox is not protected.", "no_safe_runner")
        self._sandboxes[ident] = sandbox
        return sandbox

    def _group(self, memory: int) -> ControlGroup | None:
        if self._groups is None:
            return None
        try:
            # Files in memory count as memory.
            return self._groups.make(
                memory + self._settings.disk_mb * _MIB, self._settings.processes
            )
        except OSError as error:
            raise RunnerFailed(
                f"No control group can be made: {error}.", "sandbox_not_started"
            ) from None

    async def execute(
        self, ref: ContainerRef, code: str, seconds: float, characters: int
    ) -> CodeOutcome:
        """See ``Runner.execute``."""
        sandbox = self._sandbox(ref)
        answer = await sandbox.ask("execute", seconds, code=code, characters=characters)
        return _outcome(answer)

    async def files(self, ref: ContainerRef) -> list[ContainerFile]:
        """See ``Runner.files``."""
        answer = await self._sandbox(ref).ask("list")
        try:
            return [
                ContainerFile(str(path), int(size), int(modified))
                for path, size, modified in answer["files"]
            ]
        except (KeyError, TypeError, ValueError):
            raise _broken() from None

    async def read(self, ref: ContainerRef, path: str, offset: int, size: int) -> bytes:
        """See ``Runner.read``."""
        answer = await self._sandbox(ref).ask("read", path=path, offset=offset, size=size)
        try:
            return b64decode(answer["data"])[:size]
        except (KeyError, TypeError, ValueError):
            raise _broken() from None

    async def write(
        self, ref: ContainerRef, path: str, upload: str, data: bytes, *, last: bool
    ) -> None:
        """See ``Runner.write``."""
        text = b64encode(data).decode()
        await self._sandbox(ref).ask("write", path=path, upload=upload, data=text, last=last)

    async def drop(self, ref: ContainerRef, upload: str) -> None:
        """See ``Runner.drop``."""
        await self._sandbox(ref).ask("delete", path=f".pointsman-upload-{upload}")

    async def delete(self, ref: ContainerRef, path: str) -> None:
        """See ``Runner.delete``."""
        await self._sandbox(ref).ask("delete", path=path)

    async def end(self, ref: ContainerRef) -> None:
        """See ``Runner.end``."""
        sandbox = self._sandboxes.pop(ref.id, None)
        if sandbox is not None:
            await sandbox.end()

    async def problem(self) -> str | None:
        """See ``Runner.problem``: a sandbox is tried out, once."""
        if self._trial is None:
            self._trial = self._tasks.spawn(self._tried(), "try a sandbox")
        problem = await asyncio.shield(self._trial)
        if problem is not None:
            self._trial = None  # somebody may have put it right
        return problem

    async def _tried(self) -> str | None:
        if not hasattr(os, "memfd_create") or not is_known_machine():
            return "sandboxes need Linux on x86_64 or aarch64"
        try:
            if self._groups is not None:
                self._groups.prepare()
        except OSError as error:
            return f"the control group cannot be used: {error}"
        ident = "trial"
        try:
            sandbox = await self._start(ident, _TRIAL_MEMORY)
            answer = await sandbox.ask(
                "execute",
                _TRIAL_SECONDS,
                code=_trial_code(self._settings),
                characters=_TRIAL_CHARACTERS,
            )
        except RunnerFailed as error:
            return error.message.removesuffix(".")
        except ContainerGone:
            return "a sandbox ended while it was tried out"
        finally:
            if (tried := self._sandboxes.pop(ident, None)) is not None:
                await tried.end()
        found = _outcome(answer)
        if found.outcome != "completed":
            return f"the trial of a sandbox failed: {found.logs[-300:]}"
        problems: list[str] = orjson.loads(found.logs)
        return "; ".join(problems) or None

    async def close(self) -> None:
        """See ``Runner.close``."""
        sandboxes = list(self._sandboxes.values())
        self._sandboxes.clear()
        await asyncio.gather(*(sandbox.end() for sandbox in sandboxes))
        await self._tasks.close()
        self._threads.shutdown(wait=False)

    def _sandbox(self, ref: ContainerRef) -> Sandbox:
        sandbox = self._sandboxes.get(ref.id)
        if sandbox is None:
            raise ContainerGone
        return sandbox


def _outcome(answer: dict[str, Any]) -> CodeOutcome:
    outcome, logs, images = answer.get("outcome"), answer.get("logs"), answer.get("images")
    if outcome not in _OUTCOMES or not isinstance(logs, str) or not isinstance(images, list):
        raise _broken()
    shown = tuple(one for one in images if isinstance(one, str))
    return CodeOutcome(outcome, logs, shown, answer.get("lost") is True)


def _broken() -> RunnerFailed:
    return RunnerFailed("The sandbox answered what it should not.", "code_interpreter_failed")


def _trial_code(settings: LocalRunnerSettings) -> str:
    """The code that tries to do what code in a sandbox must not, and prints what it could."""
    limits = (_TRIAL_MEMORY, settings.processes, settings.disk_mb * _MIB)
    return f"import json; from guest.trial import problems; print(json.dumps(problems{limits}))"
