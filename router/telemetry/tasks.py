"""Tasks that belong to somebody: the only place where one is created."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from router.telemetry.log import get_logger

__all__ = ["Tasks"]

T = TypeVar("T")

_log = get_logger("router.tasks")


class Tasks:
    """Owns every task it spawns until it is done; ``close`` cancels and awaits the rest."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run ``work``; an error it ends with is logged, never lost."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def see_through(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """What ``work`` returns or raises; it goes on when the caller is cancelled."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                result = await work
            except Exception as exc:
                if answer.done():
                    raise
                answer.set_exception(exc)
            else:
                if not answer.done():
                    answer.set_result(result)

        self.spawn(run(), name).add_done_callback(lambda _: answer.cancel())
        return await answer

    def __len__(self) -> int:
        return len(self._tasks)

    async def wait(self, timeout: float) -> bool:
        """Wait until nothing runs, for ``timeout`` seconds at most; True when nothing does."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)
        return not self._tasks

    async def close(self) -> None:
        """Cancel what still runs and wait for its end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("task failed", task=task.get_name(), exc_info=error)
