"""The sandboxes of several workers, held by the supervisor.

A client's next request may come to another worker than its last, and workers are replaced while
the router runs: so sandboxes are nobody's but the supervisor's, and each call is one to it. They
end with it. ``SharedRunner`` is its side; ``WorkerRunner`` is a worker's.
"""

from __future__ import annotations

import asyncio
import secrets
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from router.containers.runner import (
    CodeOutcome,
    ContainerFile,
    ContainerGone,
    ContainerRef,
    Runner,
    RunnerFailed,
)
from router.telemetry.tasks import Tasks
from router.workers.link import Handler, LinkFailed, WorkerLink

if TYPE_CHECKING:
    from router.workers.children import Child

__all__ = ["SharedRunner", "WorkerRunner", "holder_name"]

_NUMBER_BITS: Final = 62
_CALL_SECONDS: Final = 60.0
_GRACE_SECONDS: Final = 40.0
"""What a run of code may take beside its time: others of the container come first."""


def holder_name(number: int) -> str:
    """What the rows of containers call the supervisor with this number."""
    return f"router_{number:016x}"


class SharedRunner:
    """Runs code for all workers, by ``runner``. ``number`` tells it from any other supervisor's,
    see ``holder_name``.
    """

    def __init__(self, runner: Runner | None) -> None:
        self.number = secrets.randbits(_NUMBER_BITS)
        self._runner = runner
        self._running: dict[tuple[Child, int], asyncio.Task[Any]] = {}
        self._tasks = Tasks()

    def handlers(self, child: Child) -> dict[str, Handler]:
        """What answers a worker."""
        return {
            "container do": lambda asked: self._do(child, *asked),
            "container stop": lambda number: self._stop(child, number),
        }

    def forget(self, child: Child) -> None:
        """A worker has ended: nobody waits for what it has running."""
        for key in [key for key in self._running if key[0] is child]:
            self._running.pop(key).cancel()

    async def close(self) -> None:
        """End all sandboxes."""
        await self._tasks.close()
        if self._runner is not None:
            await self._runner.close()

    async def _do(self, child: Child, number: int, name: str, ref: Any, given: Any) -> Any:
        """Have the runner do it; the answer, or what it has raised."""
        runner = self._runner
        assert runner is not None
        methods: dict[str, Callable[..., Awaitable[Any]]] = {
            "open": runner.open,
            "execute": runner.execute,
            "files": runner.files,
            "read": runner.read,
            "write": runner.write,
            "drop": runner.drop,
            "delete": runner.delete,
            "end": runner.end,
        }
        if name == "problem":
            return {"value": await runner.problem()}
        if "data" in given:
            given["data"] = b64decode(given["data"])
        work = _answered(methods[name](ContainerRef(**ref), **given))
        task = self._tasks.spawn(work, f"container {name}")
        self._running[child, number] = task
        try:
            return await task
        except asyncio.CancelledError:
            return {"gone": True}
        finally:
            self._running.pop((child, number), None)

    def _stop(self, child: Child, number: int) -> None:
        if (task := self._running.get((child, number))) is not None:
            task.cancel()


async def _answered(work: Awaitable[Any]) -> dict[str, Any]:
    try:
        value = await work
    except ContainerGone:
        return {"gone": True}
    except RunnerFailed as error:
        told = {"message": error.message, "code": error.code}
        return {"failed": {**told, "missing": error.missing, "invalid": error.invalid}}
    if isinstance(value, bytes):
        value = b64encode(value).decode()
    elif isinstance(value, CodeOutcome):
        value = asdict(value)
    elif isinstance(value, list):
        value = [asdict(one) for one in value]
    return {"value": value}


class WorkerRunner:
    """Implements ``Runner`` for a worker: the supervisor's, of this ``kind``."""

    lives_here = True

    def __init__(self, link: WorkerLink, kind: str) -> None:
        self.kind = kind
        self._link = link
        self._numbers = count()

    async def open(self, ref: ContainerRef) -> str:
        """See ``Runner.open``."""
        handle: str = await self._do("open", ref)
        return handle

    async def execute(
        self, ref: ContainerRef, code: str, seconds: float, characters: int
    ) -> CodeOutcome:
        """See ``Runner.execute``."""
        given = {"code": code, "seconds": seconds, "characters": characters}
        value = await self._do("execute", ref, given, seconds + _GRACE_SECONDS)
        return CodeOutcome(**{**value, "images": tuple(value["images"])})

    async def files(self, ref: ContainerRef) -> list[ContainerFile]:
        """See ``Runner.files``."""
        return [ContainerFile(**one) for one in await self._do("files", ref)]

    async def read(self, ref: ContainerRef, path: str, offset: int, size: int) -> bytes:
        """See ``Runner.read``."""
        given = {"path": path, "offset": offset, "size": size}
        return b64decode(await self._do("read", ref, given))

    async def write(
        self, ref: ContainerRef, path: str, upload: str, data: bytes, *, last: bool
    ) -> None:
        """See ``Runner.write``."""
        text = b64encode(data).decode()
        await self._do("write", ref, {"path": path, "upload": upload, "data": text, "last": last})

    async def drop(self, ref: ContainerRef, upload: str) -> None:
        """See ``Runner.drop``."""
        await self._do("drop", ref, {"upload": upload})

    async def delete(self, ref: ContainerRef, path: str) -> None:
        """See ``Runner.delete``."""
        await self._do("delete", ref, {"path": path})

    async def end(self, ref: ContainerRef) -> None:
        """See ``Runner.end``."""
        await self._do("end", ref)

    async def problem(self) -> str | None:
        """See ``Runner.problem``."""
        problem: str | None = await self._do("problem", None)
        return problem

    async def close(self) -> None:
        """See ``Runner.close``: the supervisor's go on."""

    async def _do(
        self,
        name: str,
        ref: ContainerRef | None,
        given: dict[str, Any] | None = None,
        seconds: float = _CALL_SECONDS,
    ) -> Any:
        number = next(self._numbers)
        asked = [number, name, None if ref is None else asdict(ref), given or {}]
        try:
            answer = await self._link.call("container do", asked, seconds)
        except LinkFailed as error:
            self._link.tell("container stop", number)
            raise RunnerFailed(f"The supervisor did not do it: {error}.") from None
        except asyncio.CancelledError:
            self._link.tell("container stop", number)
            raise
        if answer.get("gone"):
            raise ContainerGone
        if (failed := answer.get("failed")) is not None:
            raise RunnerFailed(**failed)
        return answer["value"]
