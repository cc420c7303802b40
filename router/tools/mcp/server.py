"""A server, its tools and what they give back: plain values."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

import orjson

from router.settings.mcp import McpServerSettings
from router.tools.mcp.errors import McpInvalid

__all__ = ["McpResult", "McpServer", "McpTool", "Transport"]

Transport = Literal["auto", "http", "sse"]

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_LONGEST_LABEL: Final = 256
_MOST_HEADERS: Final = 64
_LONGEST_HEADER: Final = 8192
_LONGEST_URL: Final = 8192
_OURS: Final = frozenset(
    {
        "accept", "accept-encoding", "connection", "content-encoding", "content-length",
        "content-type", "expect", "host", "keep-alive", "last-event-id", "mcp-method", "mcp-name",
        "mcp-protocol-version", "mcp-session-id", "proxy-authorization", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip
"""Headers that the connection and the protocol are made of."""


@dataclass(frozen=True, slots=True, repr=False)
class McpServer:
    """One server, by URL or by command, and the credentials to use it with.

    ``url`` is http or https; ``command`` (with ``args``, ``env`` beside the few variables that
    every command gets, and ``cwd``) is for ``trusted`` servers only. ``headers`` and
    ``authorization`` (a token, sent as ``Bearer``, or with its scheme) go with every request.
    ``trusted`` is a server of the configuration: its address is not checked. Sessions are shared by
    those who name the same server with the same credentials for the same ``owner``.

    Raises McpInvalid. Everything but the label may hold a secret: a ``repr`` shows none of it.
    """

    label: str
    url: str | None = None
    transport: Transport = "auto"
    headers: Mapping[str, str] = field(default_factory=dict)
    authorization: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    trusted: bool = False
    owner: str = ""

    def __post_init__(self) -> None:
        if not 0 < len(self.label) <= _LONGEST_LABEL:
            said = f"The label of an MCP server has 1 to {_LONGEST_LABEL} characters."
            raise McpInvalid("server_label", said)
        if (self.url is None) == (self.command is None):
            raise McpInvalid("server_url", "An MCP server is named by its URL.")
        if self.command is not None and not self.trusted:
            raise McpInvalid("server_url", "A command as MCP server is for the configuration only.")
        if self.url is not None:
            _check_url(self.url)
        _check_headers(self.headers, self.authorization)

    @classmethod
    def configured(cls, settings: McpServerSettings) -> Self:
        """A server of the configuration."""
        token = settings.authorization
        return cls(
            label=settings.label,
            url=None if settings.url is None else settings.url.get_secret_value(),
            transport=settings.transport,
            headers={name: text.get_secret_value() for name, text in settings.headers.items()},
            authorization=None if token is None else token.get_secret_value(),
            command=settings.command,
            args=settings.args,
            env={name: text.get_secret_value() for name, text in settings.env.items()},
            cwd=settings.cwd,
            trusted=True,
        )

    @property
    def all_headers(self) -> dict[str, str]:
        """``headers`` and what ``authorization`` makes."""
        if self.authorization is None:
            return dict(self.headers)
        token = self.authorization
        return {**self.headers, "Authorization": token if " " in token else f"Bearer {token}"}

    def fingerprint(self, key: bytes) -> str:
        """The same for the same server, credentials and owner. Without ``key`` (up to 64 bytes) it
        tells nothing of them.
        """
        parts = [
            self.url, self.transport, sorted(self.all_headers.items()), self.command, self.args,
            sorted(self.env.items()), self.cwd, self.trusted, self.owner,
        ]  # fmt: skip
        return hashlib.blake2b(orjson.dumps(parts), key=key, digest_size=16).hexdigest()

    def __repr__(self) -> str:
        return f"McpServer({self.label!r})"


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool as its server describes it.

    ``input_schema`` is a JSON schema, ``annotations`` are the server's hints by their names in MCP
    (``readOnlyHint`` …): nothing to rely on where the server is not trusted.
    """

    name: str
    description: str | None
    input_schema: dict[str, Any]
    annotations: dict[str, Any] | None = None

    @property
    def read_only(self) -> bool:
        """Whether the server says that the tool changes nothing."""
        return (self.annotations or {}).get("readOnlyHint") is True


@dataclass(frozen=True, slots=True)
class McpResult:
    """What a tool gave back: ``text``, within the bound of the settings, for the model.

    ``is_error`` is the tool's own word that it failed. ``structured`` is its structured content as
    it came; None where there is none, or where it is larger than ``text`` may be.
    """

    text: str
    is_error: bool = False
    structured: Any = None


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = (
            len(url) <= _LONGEST_URL
            and url.isascii()
            and url.isprintable()
            and " " not in url
            and parts.scheme in ("http", "https")
            and parts.hostname
            and parts.port != 0
        )
    except ValueError:
        usable = False
    if not usable:
        raise McpInvalid(
            "server_url", "The URL of an MCP server must be valid, with http or https."
        )
    if "@" in parts.netloc:
        raise McpInvalid(
            "server_url",
            "The URL of an MCP server must not hold a user or password; use `authorization`.",
        )


def _check_headers(headers: Mapping[str, str], authorization: str | None) -> None:
    if len(headers) > _MOST_HEADERS:
        raise McpInvalid("headers", f"An MCP server gets at most {_MOST_HEADERS} headers.")
    for name, text in headers.items():
        if not _HEADER.fullmatch(name):
            raise McpInvalid("headers", "A header has no valid name.")
        if name.lower() in _OURS:
            raise McpInvalid("headers", f"The header {name} is the router's to send.")
        if not _is_header(text):
            raise McpInvalid("headers", f"The header {name} has no valid value.")
    if authorization is None:
        return
    if not _is_header(authorization) or not authorization:
        raise McpInvalid("authorization", "It is not a valid token.")
    if any(name.lower() == "authorization" for name in headers):
        raise McpInvalid(
            "authorization", "It is given twice: in `authorization`, and as a header in `headers`."
        )


def _is_header(text: str) -> bool:
    return len(text) <= _LONGEST_HEADER and text.isascii() and text.isprintable()
