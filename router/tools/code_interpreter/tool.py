"""A request's tool of type ``code_interpreter``."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from router.containers.runner import DATA, LOST, CodeOutcome
from router.containers.service import CONTAINER_PREFIX, Containers
from router.core.response_lifecycle import new_id
from router.dialects.hosted_items import CODE_INTERPRETER
from router.dialects.responses.containers import NewContainer, parse_tool_container
from router.errors import InvalidRequest, NotFound, RouterError
from router.state.containers import StoredContainer
from router.tools.code_interpreter.citations import NamedFile
from router.tools.hosted import HostedCall, ToolResult

__all__ = ["CodeTool"]

Item = dict[str, Any]

_OUTPUTS: Final = "code_interpreter_call.outputs"
"""What ``include`` names for a call to tell what came of it."""

_MARGIN_SECONDS: Final = 3.0
"""Code is stopped so long before the call's time is over, so that what it printed is not lost."""

_LEAST_SECONDS: Final = 1.0
_MOST_NAMED: Final = 50
_NAMED_SOURCE: Final = "assistant"

_WHY: Final[Mapping[str, str]] = {
    "timeout": "The code was stopped: it took too long.",
    "stopped": "The code was stopped.",
    "memory": "The code was ended: it used too much memory.",
    "files": "The code was ended: it made too many files; all files are removed.",
    "ended": "The interpreter ended.",
}
_DESCRIPTION: Final = (
    "Runs Python code in a sandbox and shows what it prints, and the value of its last line. "
    "Variables and files are kept from call to call. Files are in /mnt/data, where code starts; "
    "write there what the user is to get, and name it in the answer by its path, like "
    "sandbox:/mnt/data/result.csv. There is no network."
)


class CodeTool:
    """Implements ``router.tools.hosted.HostedTool``, for the ``tool`` at ``index`` of a request of
    this ``owner``. ``history`` is the request's input, ``include`` its own.
    """

    kind = CODE_INTERPRETER
    type = "code_interpreter_call"

    def __init__(
        self,
        index: int,
        tool: Mapping[str, Any],
        containers: Containers,
        owner: str,
        history: Any,
        include: Collection[str],
    ) -> None:
        assert containers.runner is not None
        self.index = index
        self.server: str = containers.runner.kind
        self._where = f"tools[{index}]"
        self._asked = parse_tool_container(tool, self._where)
        self._containers = containers
        self._owner = owner
        self._history = history
        self._shows_outputs = _OUTPUTS in include
        self._container: StoredContainer | None = None
        self._id = ""
        self._names: list[str] = []
        self._there: list[dict[str, Any]] = []
        self._copied = False
        self._known: dict[str, tuple[int, int]] | None = None
        self._opening = asyncio.Lock()

    async def prepare(self) -> None:
        """See ``HostedTool.prepare``: find the container, or the files for a new one.

        Raises InvalidRequest for a container that is not there, or has expired.
        """
        if isinstance(self._asked, str):
            self._container = await self._named(self._asked)
        else:
            self._container = await self._used_before()
            names = await self._containers.files.names(
                self._owner, self._asked.file_ids, f"{self._where}.container."
            )
            self._names = [f"{DATA}/{name}" for name in names]
        if self._container is None:
            self._id = new_id(CONTAINER_PREFIX)  # it is made when there is code to run
            return
        self._id = self._container.id
        self._names = [file["path"] for file in self._there] + self._names

    async def _named(self, ident: str) -> StoredContainer:
        param = f"{self._where}.container"
        try:
            container = await self._containers.find(self._owner, ident)
            self._there = await self._files(container)
        except NotFound as error:
            raise InvalidRequest(
                f"Invalid '{param}': {error.message}",
                code=error.code or "container_not_found",
                param=param,
            ) from None
        return container

    async def _used_before(self) -> StoredContainer | None:
        """The container that this history used last, if it is still there."""
        history = self._history if isinstance(self._history, list) else []
        for item in reversed(history):
            if item.get("type") == self.type and isinstance(item.get("container_id"), str):
                try:
                    found = await self._containers.find(self._owner, item["container_id"])
                    if not self._containers.access.reachable(found):
                        return None
                    self._there = await self._files(found)
                except NotFound:  # it may have ended without anybody having noticed
                    return None
                return found
        return None

    def listed(self) -> Sequence[Item]:
        """See ``HostedTool.listed``: everybody knows what it can do."""
        return ()

    def functions(self) -> Sequence[Mapping[str, Any]]:
        """See ``HostedTool.functions``."""
        description = _DESCRIPTION
        if self._names:
            names = ", ".join(dict.fromkeys(self._names[:_MOST_NAMED]))
            description = f"{description} Files that are there: {names}."
        parameters = {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "The Python code."}},
            "required": ["code"],
            "additionalProperties": False,
        }
        return (
            {
                "type": "function",
                "name": CODE_INTERPRETER,
                "description": description,
                "parameters": parameters,
                "strict": True,
            },
        )

    def loaded(self) -> Sequence[Mapping[str, Any]]:
        """See ``HostedTool.loaded``: it finds no tools."""
        return ()

    def chosen(self, choice: Mapping[str, Any]) -> Sequence[str] | None:
        """See ``HostedTool.chosen``."""
        return (CODE_INTERPRETER,) if choice.get("type") == CODE_INTERPRETER else None

    def needs_approval(self, call: HostedCall) -> bool:
        """See ``HostedTool.needs_approval``: it reaches nothing but its container."""
        return False

    def item(self, call: HostedCall) -> Item:
        """See ``HostedTool.item``."""
        return {"container_id": self._id, "code": _code(call.arguments) or "", "outputs": None}

    async def run(self, call: HostedCall, deadline: float) -> ToolResult:
        """See ``HostedTool.run``."""
        code = _code(call.arguments)
        if code is None:
            message = 'The arguments have to be an object with the code, like {"code": "1 + 1"}.'
            return self.failed(call, message, "invalid_arguments")
        try:
            container = await self._opened()
            seconds = deadline - asyncio.get_running_loop().time() - _MARGIN_SECONDS
            outcome = await self._containers.execute(container, code, max(seconds, _LEAST_SECONDS))
            files = await self._files(container)
        except RouterError as error:
            if isinstance(error, NotFound) and isinstance(self._asked, NewContainer):
                # It has ended, by what the code did, say: the next call has another one.
                self._container = self._known = None
                self._id = new_id(CONTAINER_PREFIX)
            return self.failed(call, error.message, error.code or "code_interpreter_failed")
        settings = self._containers.settings
        assert settings is not None
        result = ToolResult(
            self._told(outcome, files),
            {
                "container_id": container.id,
                "outputs": self._outputs(outcome, images=settings.images),
            },
            outcome.outcome if outcome.outcome in _WHY else None,
            cost=settings.price_per_call,
        )
        result.made = [
            NamedFile(file["id"], container.id, _path(file))
            for file in files
            if file["source"] == _NAMED_SOURCE
        ]
        return result

    async def _opened(self) -> StoredContainer:
        """The container, which is made for the first of the calls; raises RouterError."""
        async with self._opening:
            asked = self._asked
            if self._container is None:
                assert isinstance(asked, NewContainer)
                ident, self._id = self._id, new_id(CONTAINER_PREFIX)  # another one, if this fails
                self._container = await self._containers.create(
                    self._owner,
                    ident=ident,
                    name=asked.name,
                    memory=asked.memory,
                    file_ids=asked.file_ids,
                    where=f"{self._where}.container.",
                )
                self._id = ident
                await self._files(self._container)
            elif isinstance(asked, NewContainer) and not self._copied:
                await self._containers.files.copy_new(
                    self._container, asked.file_ids, f"{self._where}.container."
                )
            self._copied = True
            return self._container

    async def _files(self, container: StoredContainer) -> list[dict[str, Any]]:
        files = await self._containers.files.all(container)
        if self._known is None:
            self._known = {file["path"]: _version(file) for file in files}
        return files

    def _told(self, outcome: CodeOutcome, files: Sequence[Mapping[str, Any]]) -> str:
        """What the model is told: what was printed, and which files are new."""
        known = self._known or {}
        changed = [file for file in files if known.get(file["path"]) != _version(file)]
        self._known = {file["path"]: _version(file) for file in files}
        lines = [outcome.logs.rstrip("\n")]
        if why := _WHY.get(outcome.outcome):
            lines.append(why)
        if outcome.lost:
            lines.append(LOST)
        if outcome.images:
            lines.append(f"[{len(outcome.images)} image(s) shown to the user]")
        if changed:
            names = ", ".join(f"{file['path']} ({file['bytes']} bytes)" for file in changed[:20])
            lines.append(f"[new files: {names}]")
        return "\n".join(line for line in lines if line) or "(no output)"

    def _outputs(self, outcome: CodeOutcome, *, images: bool) -> list[Item] | None:
        if not self._shows_outputs:
            return None
        return list(_output_parts(outcome, images=images))

    def failed(self, call: HostedCall, message: str, error: str) -> ToolResult:
        """See ``HostedTool.failed``."""
        logs = [{"type": "logs", "logs": message}] if self._shows_outputs else None
        return ToolResult(f"Error: {message}", {"outputs": logs}, error)


def _output_parts(outcome: CodeOutcome, *, images: bool) -> Iterator[Item]:
    why = _WHY.get(outcome.outcome, "")
    if logs := "\n".join(filter(None, (outcome.logs, why))):
        yield {"type": "logs", "logs": logs}
    for data in outcome.images if images else ():
        yield {"type": "image", "url": f"data:image/png;base64,{data}"}


def _code(arguments: str) -> str | None:
    """The code of a call; None where there is none."""
    try:
        given = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return None
    code = given.get("code") if isinstance(given, dict) else None
    return code if isinstance(code, str) else None


def _path(file: Mapping[str, Any]) -> str:
    path: str = file["path"]
    return path.removeprefix(f"{DATA}/")


def _version(file: Mapping[str, Any]) -> tuple[int, int]:
    return file["bytes"], file["created_at"]
