"""Containers of clients: made, used, expired. A row in the database each, and a runner for all.

A container of a runner in this process belongs to it and ends with it. Another router that shares
the database says so (409); the workers of one router share their runner, see
``router.workers.containers``.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from router.containers.access import ContainerAccess, client_error, ref_of
from router.containers.files import ContainerFiles
from router.containers.runner import (
    CodeOutcome,
    ContainerGone,
    ContainerRef,
    Runner,
    RunnerFailed,
)
from router.core.response_lifecycle import new_id
from router.dialects.paging import Page
from router.errors import (
    InvalidRequest,
    NotFound,
    RateLimitExceeded,
    RouterError,
    StateUnavailable,
)
from router.files.store import FileStore
from router.settings.code_interpreter import MEMORY_BYTES, CodeInterpreterSettings
from router.state.containers import ContainerStore, StoredContainer
from router.state.database import Database
from router.state.heartbeat import Heartbeat
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks

__all__ = ["CONTAINER_PREFIX", "Containers", "shown_container"]

_log = get_logger("router.containers")

CONTAINER_PREFIX: Final = "cntr_"
_FILE_PREFIX: Final = "cfile_"
_MIB: Final = 1024 * 1024
_SWEEP_SECONDS: Final = 20.0
_MOST_NAME: Final = 200
_Opening = asyncio.Task[ContainerRef | RouterError]


class Containers:
    """The containers of one router. ``settings`` is None where it runs no code. ``lease``, in
    seconds, is how long its containers count as alive without a sign of life; ``shared`` is the
    name that the workers of one router have in common for that.
    """

    def __init__(
        self,
        settings: CodeInterpreterSettings | None,
        database: Database,
        files: FileStore,
        runner: Runner | None,
        lease: float,
        shared: str | None = None,
    ) -> None:
        self.settings = settings
        self.runner = runner
        self._store = ContainerStore(database)
        self.access = ContainerAccess(settings, runner, self._store, lambda: self.holder)
        self.files = ContainerFiles(self.access, self._store, files)
        self._shared = shared is not None
        self._heartbeat = Heartbeat(database, lease, shared)
        self._tasks = Tasks()
        self._running: Counter[str] = Counter()

    @property
    def holder(self) -> str:
        """What this router is called in the rows of containers that end with it."""
        return self._heartbeat.id

    async def start(self) -> None:
        """Begin to end containers that are not used. The database has been started."""
        if self.runner is not None:
            await self._heartbeat.start()
            self._tasks.spawn(self._sweep(), "expire containers")

    async def close(self) -> None:
        """End all that end with this router; the database is closed afterwards."""
        await self._tasks.close()
        await self.files.close()
        if self.runner is None:
            return
        await self.runner.close()
        try:
            await self._heartbeat.stop(leave=not self._shared)
        except StateUnavailable:
            _log.warning("containers are not noted as ended: the database does not answer")

    async def create(
        self,
        owner: str,
        *,
        ident: str | None = None,
        name: str,
        memory: str | None = None,
        minutes: int | None = None,
        file_ids: Sequence[str] = (),
        where: str = "",
    ) -> StoredContainer:
        """A new container, with this id and copies of these files. ``where`` is what the fields
        are called in errors: ``tools[0].container.``, say.

        Raises RouterError: InvalidRequest, NotSupported, RateLimitExceeded, Overloaded.
        """
        settings, runner = self.access.on()
        memory = memory or settings.memory
        if MEMORY_BYTES[memory] > MEMORY_BYTES[settings.max_memory]:
            raise InvalidRequest(
                f"Invalid '{where}memory_limit': this router's containers have "
                f"'{settings.max_memory}' at most.",
                code="invalid_value",
                param=f"{where}memory_limit",
            )
        if 0 < settings.max_per_key <= await self._store.count(owner):
            raise _too_many(settings.max_per_key)
        await self.files.names(owner, file_ids, where)  # all of them are there
        ref = ContainerRef(ident or new_id(CONTAINER_PREFIX), owner, "", MEMORY_BYTES[memory])
        opening = self._tasks.spawn(_opened(runner, ref), "open a container")
        try:
            opened = await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._tasks.spawn(self._give_up(owner, opening), "give up a container")
            raise
        if isinstance(opened, RouterError):
            raise opened
        ref = opened
        try:
            added = await self._store.add(
                owner,
                ref.id,
                name,
                min(minutes or settings.idle_minutes, settings.idle_minutes),
                memory,
                self.holder if runner.lives_here else None,
                ref.handle,
                settings.max_per_key,
            )
            if not added:
                raise _too_many(settings.max_per_key)
            container = await self.find(owner, ref.id)
            await self.files.copy_new(container, file_ids, where)
        except BaseException:
            self._tasks.spawn(self._discard(owner, ref), "discard a container")
            raise
        return container

    async def _give_up(self, owner: str, opening: _Opening) -> None:
        """Discard a container that is still being opened."""
        opened = await opening
        if not isinstance(opened, RouterError):
            await self._discard(owner, opened)

    async def _discard(self, owner: str, ref: ContainerRef) -> None:
        assert self.runner is not None
        await self.runner.end(ref)
        await self._store.delete(owner, ref.id)

    async def find(self, owner: str, ident: str) -> StoredContainer:
        """This owner's container, expired or not; raises NotFound, NotSupported."""
        self.access.on()
        container = await self._store.get(owner, ident)
        if container is None:
            raise NotFound.of("Container", ident)
        return container

    async def page(
        self, owner: str, page: Page, name: str | None
    ) -> tuple[list[StoredContainer], bool]:
        """See ``ContainerStore.page``."""
        self.access.on()
        return await self._store.page(owner, page, name)

    async def delete(self, owner: str, ident: str) -> None:
        """End it, with everything in it; raises NotFound, and Conflict where it runs elsewhere."""
        _, runner = self.access.on()
        container = await self.find(owner, ident)
        if container.running:
            self.access.check_here(container)
            try:
                await runner.end(ref_of(container))
            except RunnerFailed as error:
                raise client_error(error) from None
        await self._store.delete(owner, container.id)

    async def execute(self, container: StoredContainer, code: str, seconds: float) -> CodeOutcome:
        """Run code in it. Raises RouterError: NotFound where it has expired, Conflict where another
        router has it, Overloaded where the runner fails.
        """
        settings, _ = self.access.on()
        self._running[container.id] += 1
        try:
            async with self.access.using(container) as (runner, ref):
                outcome = await runner.execute(ref, code, seconds, settings.output_characters)
        finally:
            self._running[container.id] -= 1
            self._running = +self._running
        await self._store.used(container.id)
        return outcome

    async def _sweep(self) -> None:
        """End what is not used any more, and note what has ended."""
        assert self.runner is not None
        while True:
            await asyncio.sleep(_SWEEP_SECONDS * random.uniform(0.5, 1.5))
            try:
                await self.sweep()
            except RouterError as error:
                _log.warning("containers wait for the database", error=error.message)

    async def sweep(self) -> int:
        """Do that once; how many there were. What runs code is used. Raises StateUnavailable."""
        _, runner = self.access.on()
        for ident in list(self._running):
            await self._store.used(ident)
        due = await self._store.due(self.holder)
        for container in due:
            if container.holder in (None, self.holder):
                try:
                    await runner.end(ref_of(container))
                except RunnerFailed as error:
                    _log.warning("a container was not ended", error=error.message)
            await self._store.expire(container.id)
        await self._store.forget()
        return len(due)


async def _opened(runner: Runner, ref: ContainerRef) -> ContainerRef | RouterError:
    """The container with its handle, or why there is none."""
    try:
        return replace(ref, handle=await runner.open(ref))
    except RunnerFailed as error:
        return client_error(error)
    except ContainerGone:
        return StateUnavailable("The container ended at once.")


def shown_container(container: StoredContainer) -> dict[str, Any]:
    """The Container object of the API."""
    return {
        "id": container.id,
        "object": "container",
        "created_at": int(container.created_at),
        "status": "running" if container.running else "expired",
        "expires_after": {"anchor": "last_active_at", "minutes": container.minutes},
        "last_active_at": int(container.last_active_at),
        "memory_limit": container.memory,
        "name": container.name,
        "network_policy": {"type": "disabled"},
    }


def _too_many(most: int) -> RateLimitExceeded:
    return RateLimitExceeded(
        f"This key has {most} containers, which is the limit. Delete one, or wait until one has "
        "expired.",
        code="too_many_containers",
    )
