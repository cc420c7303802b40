"""A command as an MCP server: JSON-RPC by line on its standard input and output.

The SDK's own transport for this bounds no line, and its error stream is the router's. Here a line
is bounded, and what the command writes to standard error is dropped, since it may hold what was
asked and answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from router.tools.mcp.errors import McpError, McpProtocolError, McpUnreachable
from router.tools.mcp.server import McpServer

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

__all__ = ["running_command"]

_GRACE: Final = 2.0
"""Seconds that a command has to end once its input is closed, and again once it is asked to."""

_POLL: Final = 0.01
_MOST_IGNORED: Final = 1000
"""Lines that are no messages."""


@contextlib.asynccontextmanager
async def running_command(
    server: McpServer, max_bytes: int, lost: Callable[[McpError], None]
) -> AsyncIterator[TransportStreams]:
    """Run it, in a process group of its own that ends with the context, whatever it does.

    ``max_bytes`` bounds a line; ``lost`` is told of one that is longer, and of one too many that is
    no message, after which nothing comes any more. Raises McpUnreachable where the command cannot
    be run.
    """
    process = await _started(server, max_bytes)

    def why(what: str) -> None:
        lost(McpProtocolError(f"The MCP server {server.label!r} {what}."))

    incoming_send, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, outgoing_receive = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_read, process, incoming_send, why)
            group.start_soon(_write, process, outgoing_receive, incoming_send)
            try:
                yield incoming, outgoing
            finally:
                group.cancel_scope.cancel()
    finally:
        for stream in (incoming_send, incoming, outgoing, outgoing_receive):
            stream.close()
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _started(server: McpServer, max_bytes: int) -> asyncio.subprocess.Process:
    assert server.command is not None
    try:
        return await asyncio.create_subprocess_exec(
            server.command,
            *server.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**get_default_environment(), **server.env},
            cwd=server.cwd,
            start_new_session=True,
            limit=max_bytes,
        )
    except (OSError, ValueError) as error:
        said = f"The command of the MCP server {server.label!r} cannot be run."
        raise McpUnreachable(said, sent=False) from error


async def _read(
    process: asyncio.subprocess.Process,
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
    lost: Callable[[str], None],
) -> None:
    assert process.stdout is not None
    ignored = 0
    async with incoming:  # closed at its end, so that the session knows
        while True:
            try:
                line = await process.stdout.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return
            except asyncio.LimitOverrunError:
                lost("sent too much")
                return
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:  # not a message: a library that prints, most likely
                ignored += 1
                if ignored > _MOST_IGNORED:
                    lost("writes what is not MCP")
                    return
                await anyio.lowlevel.checkpoint()  # reading what has arrived already does not wait
                continue
            await incoming.send(SessionMessage(message))


async def _write(
    process: asyncio.subprocess.Process,
    outgoing: MemoryObjectReceiveStream[SessionMessage],
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    assert process.stdin is not None
    async with outgoing:
        async for item in outgoing:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            try:
                await process.stdin.drain()
            except OSError:
                incoming.close()
                return


async def _end(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        await _ended(process)
        # Also where it has ended: what it started belongs to the group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
    await _ended(process)
    # What left the group may hold the pipes open. There is no public way to close this end.
    process._transport.close()  # type: ignore[attr-defined]


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Not ``process.wait()``, which also waits until nobody has the pipes any more."""
    with anyio.move_on_after(_GRACE):
        while process.returncode is None:  # noqa: ASYNC110 -- nothing public announces it
            await anyio.sleep(_POLL)
