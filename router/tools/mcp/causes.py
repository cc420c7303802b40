"""What an error that the SDK raises means, by what the HTTP client saw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import httpx2
import mcp_types as types
from mcp.shared.exceptions import MCPError

from router.tools.mcp.content import cut
from router.tools.mcp.errors import McpError, McpProtocolError, McpToolError, McpUnreachable
from router.tools.mcp.request import McpRequest
from router.tools.mcp.server import McpServer, Transport

__all__ = ["why_not_opened", "why_refused"]

_LONGEST: Final = 1000
"""Bytes of a server's own words."""

_SHORTEST: Final = 6
"""Characters of a secret: shorter ones are in many words."""

_CLOSED: Final = ("Connection closed", "SSE stream ")
"""What the SDK says with a code that servers use, too."""

_LATER: Final = (408, 425, 429)
"""Statuses of a server that may speak MCP, but not now."""

_ANSWERS: Final = ("application/json", "text/event-stream")


def why_refused(
    error: MCPError, request: McpRequest, server: McpServer, transport: Transport
) -> McpError:
    """What a request failed with: the server's own error, or one that the SDK made up."""
    who = f"The MCP server {server.label!r}"
    if error.code == types.CONNECTION_CLOSED and error.message.startswith(_CLOSED):
        said = f"{who} ended the session, or the stream, before it answered."
        return McpUnreachable(said, sent=request.sent)
    if error.code == types.PARSE_ERROR:
        return McpProtocolError(f"{who} answers with something that is not MCP.")
    if transport == "http":
        status = request.status
        if status == 202 or (0 < status < 300 and request.media_type not in _ANSWERS):
            return McpProtocolError(f"{who} answers with something that is not MCP.")
        if status == 404 and error.code != types.METHOD_NOT_FOUND:
            return McpUnreachable(f"{who} no longer knows the session.", sent=request.sent)
        if status >= 402 and status != 404:
            return McpUnreachable(f"{who} answered with status {status}.")
    return McpToolError(f"{who} refuses: {_words(error.message, server)}", error.code)


def why_not_opened(
    failure: BaseException | None, opening: McpRequest, server: McpServer, transport: Transport
) -> McpError:
    """What opening a session failed with; ``failure`` is what the SDK raised, if it did."""
    who = f"The MCP server {server.label!r}"
    leaves = list(_leaves(failure))
    for leaf in (opening.error, *leaves):
        if isinstance(leaf, McpError):
            return leaf
    if opening.status >= 500 or opening.status in _LATER:
        return McpUnreachable(f"{who} answered with status {opening.status}.")
    if opening.status >= 400:
        said = f"{who} does not speak MCP there: it answered with status {opening.status}."
        return McpProtocolError(said)
    for leaf in leaves:
        if isinstance(leaf, httpx2.InvalidURL):
            return McpUnreachable(f"The URL of {server.label!r} cannot be used.", sent=False)
        if isinstance(leaf, MCPError):
            return why_refused(leaf, opening, server, transport)
    return McpProtocolError(f"{who} opens no session as MCP wants it.")


def _leaves(error: BaseException | None) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    elif error is not None:
        yield error


def _words(text: str, server: McpServer) -> str:
    """What a server wrote, short, and without the secrets that it was sent."""
    secrets = [word for header in server.all_headers.values() for word in (header, *header.split())]
    for secret in sorted({*secrets, *server.env.values()}, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, "***")
    return cut(text, _LONGEST)
