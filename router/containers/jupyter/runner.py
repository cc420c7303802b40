"""Containers as kernels. Any router that knows the gateway can reach them.

A container's handle is the kernel's id and its directory at the gateway. Its files are reached by
code that the kernel executes, since not every gateway has an API for files.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any, Final

import orjson

from router.containers.jupyter.kernel import Gateway
from router.containers.runner import (
    PIECE,
    CodeOutcome,
    ContainerFile,
    ContainerGone,
    ContainerRef,
    RunnerFailed,
)
from router.settings.code_interpreter import JupyterRunnerSettings
from router.telemetry.log import get_logger

__all__ = ["JupyterRunner"]

_log = get_logger("router.containers")

_GUEST: Final = Path(__file__).with_name("guest.py").read_text("utf-8")
_OPEN_SECONDS: Final = 30.0
_FILE_SECONDS: Final = 30.0
_END_SECONDS: Final = 3.0
_MOST_ANSWER: Final = 4 * PIECE


class JupyterRunner:
    """Implements ``Runner`` by a kernel for each container."""

    kind = "jupyter"
    lives_here = False

    def __init__(self, settings: JupyterRunnerSettings) -> None:
        self._gateways = {
            key: Gateway(gateway, settings.timeout)
            for gateway in settings.gateways
            for key in (gateway.keys or ("",))
        }

    async def open(self, ref: ContainerRef) -> str:
        """See ``Runner.open``."""
        gateway = self._gateway(ref)
        kernel = await gateway.start_kernel()
        try:
            made = await self._do(gateway, kernel, _OPEN_SECONDS, do="open", memory=ref.memory)
            folder = made["folder"]
            if not isinstance(folder, str):
                raise _broken()
        except BaseException:
            await gateway.end_kernel(kernel)
            raise
        return f"{kernel}:{folder}"

    async def execute(
        self, ref: ContainerRef, code: str, seconds: float, characters: int
    ) -> CodeOutcome:
        """See ``Runner.execute``."""
        kernel, _ = _handle(ref)
        run = await self._gateway(ref).run(kernel, code, seconds, characters)
        return CodeOutcome(run.outcome, run.logs.text(), tuple(run.images), run.lost)

    async def files(self, ref: ContainerRef) -> list[ContainerFile]:
        """See ``Runner.files``."""
        answer = await self._file(ref, do="list")
        try:
            return [
                ContainerFile(str(path), int(size), int(modified))
                for path, size, modified in answer["files"]
            ]
        except (KeyError, TypeError, ValueError):
            raise _broken() from None

    async def read(self, ref: ContainerRef, path: str, offset: int, size: int) -> bytes:
        """See ``Runner.read``."""
        answer = await self._file(ref, do="read", path=path, offset=offset, size=size)
        try:
            return b64decode(answer["data"])[:size]
        except (KeyError, TypeError, ValueError):
            raise _broken() from None

    async def write(
        self, ref: ContainerRef, path: str, upload: str, data: bytes, *, last: bool
    ) -> None:
        """See ``Runner.write``."""
        text = b64encode(data).decode()
        await self._file(ref, do="write", path=path, upload=upload, data=text, last=last)

    async def drop(self, ref: ContainerRef, upload: str) -> None:
        """See ``Runner.drop``."""
        await self._file(ref, do="delete", path=f".pointsman-upload-{upload}")

    async def delete(self, ref: ContainerRef, path: str) -> None:
        """See ``Runner.delete``."""
        await self._file(ref, do="delete", path=path)

    async def end(self, ref: ContainerRef) -> None:
        """See ``Runner.end``: its directory too, where the kernel is not busy."""
        gateway, (kernel, folder) = self._gateway(ref), _handle(ref)
        try:
            await self._do(gateway, kernel, _END_SECONDS, do="end", folder=folder)
        except ContainerGone:
            return
        except RunnerFailed as error:
            _log.warning("the files of a container may be left", error=error.message)
        await gateway.end_kernel(kernel)

    async def problem(self) -> str | None:
        """See ``Runner.problem``: every gateway is asked for its kernels."""
        for gateway in dict.fromkeys(self._gateways.values()):
            name, url = gateway.settings.kernel, gateway.settings.url
            try:
                kernels = await gateway.kernels()
            except (ContainerGone, RunnerFailed) as error:
                return f"{url}: {str(error) or 'it is no Jupyter server'}".removesuffix(".")
            if name not in kernels:
                return f"{url} has no kernel '{name}'; it has {', '.join(kernels) or 'none'}"
        return None

    async def close(self) -> None:
        """See ``Runner.close``: kernels go on, until they expire."""
        for gateway in self._gateways.values():
            await gateway.close()

    def _gateway(self, ref: ContainerRef) -> Gateway:
        gateway = self._gateways.get(ref.owner) or self._gateways.get("")
        if gateway is None:
            raise RunnerFailed(
                "This key has no Jupyter gateway, and may not share that of another key.",
                "no_gateway",
            )
        return gateway

    async def _file(self, ref: ContainerRef, **asked: Any) -> dict[str, Any]:
        kernel, folder = _handle(ref)
        gateway = self._gateway(ref)
        return await self._do(gateway, kernel, _FILE_SECONDS, folder=folder, **asked)

    async def _do(
        self, gateway: Gateway, kernel: str, seconds: float, **asked: Any
    ) -> dict[str, Any]:
        """What the router's own code answers in a kernel; raises ContainerGone, RunnerFailed."""
        code = f"exec({_GUEST!r}, {{'ARGS': {asked!r}}})"
        run = await gateway.run(kernel, code, seconds, _MOST_ANSWER, silent=True)
        if run.outcome == "timeout":
            raise RunnerFailed("The container is busy.", "container_busy")
        try:
            answer = orjson.loads(run.logs.text())
        except orjson.JSONDecodeError:
            raise _broken() from None
        if not isinstance(answer, dict):
            raise _broken()
        if (error := answer.get("error")) is not None:
            raise RunnerFailed(str(error)[:200], "container_file_failed", invalid=True)
        return answer


def _handle(ref: ContainerRef) -> tuple[str, str]:
    kernel, _, folder = ref.handle.partition(":")
    return kernel, folder


def _broken() -> RunnerFailed:
    return RunnerFailed("The kernel answered what it should not.", "code_interpreter_failed")
