"""The settings of MCP servers whose tools run here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from router.settings.fetch import FetchHost
from router.settings.section import Section
from router.settings.values import (
    Count,
    Fault,
    HeaderName,
    HeaderValue,
    Name,
    Positive,
    Seconds,
    Secret,
    Text,
    Usd,
    fail_at,
    http_url,
    not_empty,
    repetitions,
    wrong,
)

__all__ = ["CLIENT", "Approval", "McpServerSettings", "McpSettings"]

Approval = Literal["never", "always"]

CLIENT: Final = "client"
"""Whose a server is that a client names, in metrics and in the rules of keys."""

_BY_URL: Final = ("headers", "authorization", "transport")
_BY_COMMAND: Final = ("args", "env", "cwd")


def _url(value: SecretStr) -> SecretStr:
    secret = "a token belongs in authorization"
    http_url(value.get_secret_value(), "https://host:port/mcp", secret)
    return value


def _environment_name(value: str) -> str:
    if not value or "=" in value or "\0" in value:
        raise wrong("is not the name of an environment variable")
    return value


McpUrl = Annotated[SecretStr, AfterValidator(_url)]
EnvironmentName = Annotated[str, AfterValidator(_environment_name)]


class McpServerSettings(Section):
    """One MCP server, by URL or by command. Clients use it by its label, without its credentials.

    ``transport`` is how a server at a URL is spoken to: ``http`` is streamable HTTP, ``sse`` its
    predecessor; ``auto`` finds out. ``env`` is what a command gets beside PATH, HOME and the like:
    it does not inherit the router's environment.
    """

    label: Name
    """What clients call it in `server_label`."""
    url: McpUrl | None = None
    """Where it is; this or `command`."""
    command: Text | None = None
    """The program to run as the server, which speaks MCP on its standard input and output."""
    args: tuple[str, ...] = ()
    """The arguments of the command."""
    env: dict[EnvironmentName, SecretStr] = Field(default_factory=dict)
    """Environment variables of the command."""
    cwd: Text | None = None
    """The directory that the command runs in."""
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict)
    """Headers that it is sent."""
    authorization: Secret | None = None
    """The bearer token that it is sent."""
    transport: Literal["auto", "http", "sse"] = "auto"
    """`http` (streamable HTTP) or `sse`; `auto` finds out."""
    allowed_tools: Annotated[tuple[Text, ...], AfterValidator(not_empty)] | None = None
    """The only tools that are offered; without it, all that it has."""
    require_approval: Approval = "never"
    """Whether its calls wait for the client's approval, where the client does not say."""
    price_per_call: Usd = 0.0
    """What a call that it answers costs in US dollars; it counts in budgets."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.url is None) == (self.command is None):
            raise wrong("needs either url or command")
        fail_at("McpServer", self._out_of_place())
        return self

    def _out_of_place(self) -> Iterator[Fault]:
        others, needed = (_BY_URL, "url") if self.url is None else (_BY_COMMAND, "command")
        for name in others:
            if name in self.model_fields_set:
                yield (name,), f"is for servers with {needed} only"
        if self.authorization is not None:
            for name in self.headers:
                if name.lower() == "authorization":
                    yield ("headers", name), "is given by authorization, too"


class McpSettings(Section):
    """MCP servers, and the bounds of what is done with them.

    Servers that clients name by URL must have public addresses, or be on a host of ``hosts``
    (``fetch.hosts`` where that is left out), which then are the only ones. A session is shared by
    the requests of one owner with the same credentials; idle ones are closed.
    """

    servers: tuple[McpServerSettings, ...] = ()
    """Servers that every client may use by their labels."""
    client_servers: bool = True
    """Whether clients may name other servers by `server_url`."""
    hosts: Annotated[tuple[FetchHost, ...], AfterValidator(not_empty)] | None = None
    """The only hosts of servers that clients may name; without it those of `fetch.hosts`."""
    require_approval: Approval = "never"
    """Whether calls to servers that clients name wait for approval, where the client does not say.
    """
    connect_timeout: Seconds = 15.0
    """The longest that it may take to open a session: connection and handshake."""
    max_result_kb: Count = 256
    """The longest result of a call, in KiB of text; what is longer is cut."""
    max_message_mb: Positive = 4.0
    """The largest answer that is read from a server, in MiB."""
    max_sessions: Count = 64
    """Sessions at once; past that, the one that has been idle longest is closed."""
    max_calls: Count = 32
    """Calls at once in one session; more wait, on their own time."""
    idle_seconds: Seconds = 300.0
    """A session that was not used for this time is closed."""

    def labelled(self, label: object) -> McpServerSettings | None:
        """The configured server of this label."""
        return next((server for server in self.servers if server.label == label), None)

    @field_validator("servers", mode="after")
    @classmethod
    def _labels_differ(cls, value: tuple[McpServerSettings, ...]) -> tuple[McpServerSettings, ...]:
        labels = ({"label": server.label} for server in value)
        unique = {"label": "is already the label of another MCP server"}
        faults = repetitions(labels, unique)
        for index, server in enumerate(value):
            if server.label == CLIENT:
                faults.append(((index, "label"), "is what servers that clients name are called"))
        fail_at("Mcp", faults)
        return value
