"""What goes wrong with an MCP server.

    McpError
    ├── McpInvalid         what names the server cannot be used: ``param`` says which field
    ├── McpNotInstalled    the extra ``tools`` is missing
    ├── McpUnreachable     refused by the guard, no such host, no connection, no certificate, gone
    ├── McpUnauthorized    it answered 401 or 403
    ├── McpTimeout         a deadline passed
    ├── McpProtocolError   what it answered is not MCP, too large, or a lie
    └── McpToolError       it answered, and refuses this request: no such tool, wrong arguments …

A message is a sentence for the client. It holds no secret, no URL and no address; of what a server
wrote, only a tool's error has its words, and those are cut.
"""

from __future__ import annotations

__all__ = [
    "McpError",
    "McpInvalid",
    "McpNotInstalled",
    "McpProtocolError",
    "McpTimeout",
    "McpToolError",
    "McpUnauthorized",
    "McpUnreachable",
]


class McpError(Exception):
    """See the module; ``message`` is the sentence."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class McpInvalid(McpError):
    """The fault of whoever named the server; ``param`` is the field: ``server_label``,
    ``server_url``, ``headers`` or ``authorization``.
    """

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


class McpNotInstalled(McpError):
    """The official SDK is not installed."""


class McpUnreachable(McpError):
    """No session with it, or not any more. ``sent``: whether the request may have reached it, so
    that a call may have been run.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class McpUnauthorized(McpError):
    """It wants other credentials."""


class McpTimeout(McpError):
    """It did not answer in time; a call under way was cancelled, and may have been run."""


class McpProtocolError(McpError):
    """It does not keep to the protocol, or to its bounds."""


class McpToolError(McpError):
    """It refuses the request, with a JSON-RPC error. ``code`` is that of JSON-RPC."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
