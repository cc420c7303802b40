"""What a runner of code is to the containers that it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Protocol

__all__ = [
    "DATA",
    "LOST",
    "PIECE",
    "CodeOutcome",
    "ContainerFile",
    "ContainerGone",
    "ContainerRef",
    "Outcome",
    "Runner",
    "RunnerFailed",
]

DATA: Final = "/mnt/data"
"""Where a container's files are, as code and clients see it."""

PIECE: Final = 512 * 1024
"""Bytes of a file that are read or written at once, at most."""

LOST: Final = "The interpreter was restarted: variables are gone, files are still there."
"""What a model is told where state was lost."""

Outcome = Literal["completed", "error", "timeout", "stopped", "memory", "files", "ended"]
"""How a run of code ended: as it should; with an exception; past its time; stopped by the router;
with too much memory, or too many files; or its process ended.
"""


class RunnerFailed(Exception):
    """The runner did not do it: ``message`` is a sentence for the client, ``code`` a short name.

    ``missing`` says that what was named is not there, ``invalid`` that the request is at fault;
    otherwise the runner is.
    """

    def __init__(
        self,
        message: str,
        code: str = "code_interpreter_failed",
        *,
        missing: bool = False,
        invalid: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.missing = missing
        self.invalid = invalid


class ContainerGone(Exception):
    """The runner does not have this container any more, or not yet."""


@dataclass(frozen=True, slots=True)
class ContainerRef:
    """A container as its runner knows it: ``handle`` is what the runner called it when it was
    opened, ``owner`` the name of the key whose it is. ``memory`` is in bytes.
    """

    id: str
    owner: str
    handle: str
    memory: int


@dataclass(frozen=True, slots=True)
class CodeOutcome:
    """What came of code: ``logs`` are what it has printed, ``images`` PNG files in base64.

    ``lost`` says that the interpreter had to be restarted, without its variables.
    """

    outcome: Outcome
    logs: str
    images: tuple[str, ...] = ()
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ContainerFile:
    """A file in a container: its path below ``DATA``, its size, and when it was last changed (unix
    seconds).
    """

    path: str
    bytes: int
    modified: int


class Runner(Protocol):
    """Runs the code of many containers. Calls of one container are done one after the other.

    Each raises ContainerGone where the container is not there, and RunnerFailed.
    """

    kind: str
    """What it is, in the settings and in ``check``: ``local`` or ``jupyter``."""
    lives_here: bool
    """Whether its containers end with this router; others can be reached from any router."""

    async def open(self, ref: ContainerRef) -> str:
        """Make this container; its handle."""
        ...

    async def execute(
        self, ref: ContainerRef, code: str, seconds: float, characters: int
    ) -> CodeOutcome:
        """Run code, for so many seconds, and give about so many characters of its output. What
        runs is stopped where the caller is cancelled.
        """
        ...

    async def files(self, ref: ContainerRef) -> list[ContainerFile]:
        """The regular files, up to a thousand of them."""
        ...

    async def read(self, ref: ContainerRef, path: str, offset: int, size: int) -> bytes:
        """A piece of a file; empty at its end."""
        ...

    async def write(
        self, ref: ContainerRef, path: str, upload: str, data: bytes, *, last: bool
    ) -> None:
        """Add a piece to a file under way, which is called ``upload``; with the ``last`` it is
        there.
        """
        ...

    async def drop(self, ref: ContainerRef, upload: str) -> None:
        """Give up a file under way."""
        ...

    async def delete(self, ref: ContainerRef, path: str) -> None:
        """Remove a file."""
        ...

    async def end(self, ref: ContainerRef) -> None:
        """End the container, with everything in it. It need not be there."""
        ...

    async def problem(self) -> str | None:
        """Why no code can be run safely, in a sentence for the operator; None where all is well."""
        ...

    async def close(self) -> None:
        """End all containers that end with this router."""
        ...
