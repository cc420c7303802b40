"""Whether a container can be used here, and what a runner's failures are to clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from router.containers.runner import ContainerGone, ContainerRef, Runner, RunnerFailed
from router.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    NotSupported,
    Overloaded,
    RouterError,
)
from router.settings.code_interpreter import MEMORY_BYTES, CodeInterpreterSettings
from router.state.containers import ContainerStore, StoredContainer

__all__ = ["ContainerAccess", "client_error", "ref_of"]


class ContainerAccess:
    """``settings`` and ``runner`` are None where no code is run. ``holder`` tells what this router
    is called in the rows of containers that end with it.
    """

    def __init__(
        self,
        settings: CodeInterpreterSettings | None,
        runner: Runner | None,
        store: ContainerStore,
        holder: Callable[[], str],
    ) -> None:
        self.settings = settings
        self.runner = runner
        self._store = store
        self._holder = holder

    def on(self) -> tuple[CodeInterpreterSettings, Runner]:
        """The settings and the runner; raises NotSupported where no code is run."""
        if self.settings is None or self.runner is None:
            raise NotSupported(
                "This router runs no code: its configuration has no tools.code_interpreter."
            )
        return self.settings, self.runner

    def check(self, container: StoredContainer) -> None:
        """Raise NotFound where it has expired, Conflict where another router has it."""
        if not container.running:
            raise _expired(container.id)
        self.check_here(container)

    def check_here(self, container: StoredContainer) -> None:
        """Raise Conflict where another router has it."""
        if container.holder not in (None, self._holder()):
            raise Conflict(
                f"Container '{container.id}' runs at another router, which is the only one that "
                "can use it. Have the load balancer send a client's requests to the same router.",
                code="container_elsewhere",
            )

    def reachable(self, container: StoredContainer) -> bool:
        """Whether it runs, and this router can have it run code."""
        return container.running and container.holder in (None, self._holder())

    @asynccontextmanager
    async def using(self, container: StoredContainer) -> AsyncIterator[tuple[Runner, ContainerRef]]:
        """The runner, and the container as it knows it; its idle time begins anew. Raises
        RouterError, also for what the runner raises.
        """
        _, runner = self.on()
        self.check(container)
        await self._store.used(container.id)
        try:
            yield runner, ref_of(container)
        except ContainerGone:
            await self._store.expire(container.id)
            raise _expired(container.id) from None
        except RunnerFailed as error:
            raise client_error(error) from None


def ref_of(container: StoredContainer) -> ContainerRef:
    """The container as its runner knows it."""
    memory = MEMORY_BYTES[container.memory]
    return ContainerRef(container.id, container.owner, container.handle, memory)


def _expired(ident: str) -> NotFound:
    return NotFound(
        f"Container '{ident}' has expired; what was in it is gone.", code="container_expired"
    )


def client_error(error: RunnerFailed) -> RouterError:
    """What the client is told of a runner's failure."""
    if error.invalid:
        return InvalidRequest(error.message, code=error.code)
    if error.code == "no_gateway":
        return NotSupported(error.message, code=error.code)
    return Overloaded(error.message, code=error.code, headers={"Retry-After": "1"})
