"""Tools of MCP servers: listed and called, on sessions that are shared.

``McpClients`` is the whole of it, and belongs to an application. A server that a client names is
dialled through the guard of ``router.fetch``, at public or listed addresses only; one of the
configuration may be anywhere, and may be a command that runs here. The official SDK speaks the
protocol; it is the extra ``tools``, and is imported with the first session.

    clients.py     McpClients: a session per server and credentials, at most so many
    session.py     one session, in a task of its own
    request.py     one request under way in it
    connect.py     which transport a server speaks, and the handshake
    http.py        the SDK's HTTP client: one origin, checked addresses
    body.py        an answer on its way to the SDK, within bounds
    stdio.py       a command as a server
    watched.py     the SDK's streams and its log
    causes.py      what an error that the SDK raises means
    content.py     what a tool gives back, as text
    server.py      McpServer, McpTool, McpResult
    errors.py      what goes wrong
"""

from router.tools.mcp.clients import McpClients
from router.tools.mcp.errors import (
    McpError,
    McpInvalid,
    McpNotInstalled,
    McpProtocolError,
    McpTimeout,
    McpToolError,
    McpUnauthorized,
    McpUnreachable,
)
from router.tools.mcp.server import McpResult, McpServer, McpTool

__all__ = [
    "McpClients",
    "McpError",
    "McpInvalid",
    "McpNotInstalled",
    "McpProtocolError",
    "McpResult",
    "McpServer",
    "McpTimeout",
    "McpTool",
    "McpToolError",
    "McpUnauthorized",
    "McpUnreachable",
]
