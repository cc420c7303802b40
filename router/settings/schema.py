"""The settings, declared once.

    Settings
    ├── server      where Pointsman listens, and its limits
    ├── auth        the clients' API keys
    ├── endpoints   the backends, at least one
    ├── balance     policy, attempts, queue, health
    ├── fallbacks   other models for a model that cannot be served
    ├── state       the database of stored responses, and background runs
    ├── cache       answers given again instead of asked for again
    ├── tools       hosted tools that the router runs itself
    ├── fetch       what is fetched because a client says so
    ├── files       uploaded files, and the text of files
    ├── vector_stores  searches in uploaded files
    ├── accounts    prices, the usage ledger, where limits are counted
    ├── logging     level and form of the log
    ├── metrics     who may read /metrics
    ├── tracing     spans for an OpenTelemetry collector
    ├── admin       the key to the admin routes
    └── plugins     further plugins with their options, and the order of all

Every duration is in seconds. Models are frozen and refuse unknown keys. A null counts as the
field left out. Rules that concern several fields raise a ``ValidationError`` that names the
field at fault; no message carries a value, since values can be secrets.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from router.settings.accounts import AccountsSettings, ApiKey, unknown_endpoints
from router.settings.cache import CacheSettings
from router.settings.compaction import CompactionSettings
from router.settings.endpoints import (
    CapabilitySettings,
    Dialect,
    EndpointSettings,
    TimeoutSettings,
    TlsSettings,
)
from router.settings.fallbacks import Fallback
from router.settings.fetch import FetchSettings
from router.settings.files import FilesSettings
from router.settings.metrics import MetricsSettings
from router.settings.plugins import PluginSettings
from router.settings.section import Section
from router.settings.tools import ToolsSettings
from router.settings.tracing import TracingSettings
from router.settings.values import (
    UNIQUE_IN_ENDPOINTS,
    UNIQUE_IN_KEYS,
    Count,
    CountOrZero,
    DaysOrForever,
    HostPattern,
    Origin,
    Port,
    Positive,
    Seconds,
    SecondsOrZero,
    Secret,
    Share,
    StateUrl,
    Text,
    fail_at,
    not_empty,
    repetitions,
)
from router.settings.vector_stores import VectorStoresSettings

__all__ = [
    "AdminSettings",
    "ApiKey",
    "AuthSettings",
    "BalanceSettings",
    "BreakerSettings",
    "CapabilitySettings",
    "Dialect",
    "EndpointSettings",
    "LoggingSettings",
    "MetricsSettings",
    "PluginSettings",
    "PolicyName",
    "RetryBudgetSettings",
    "ServerSettings",
    "Settings",
    "StateSettings",
    "TimeoutSettings",
    "TlsSettings",
]

PolicyName = Literal["least-loaded", "fastest", "round-robin", "weighted", "priority"]


class ServerSettings(Section):
    """Where Pointsman listens, and what a client may send."""

    host: Text = "127.0.0.1"
    """The address to listen on. Any other than loopback needs `auth.keys`, or else
    `server.allowed_hosts`.
    """
    port: Port = 8080
    """The port to listen on; 0 takes a free one."""
    workers: Count | Literal["auto"] = 1
    """Processes that serve; `auto` is one for each processor that this one may use."""
    open_after: SecondsOrZero = 0.1
    """A stream begins with its first output, or after this time. What fails before is an HTTP
    error.
    """
    keepalive_interval: Seconds = 15.0
    """After so much silence a stream gets a comment, or what its API has for it."""
    max_body_mb: Positive = 32.0
    """The largest body of a request, in MiB; a larger one gets 413."""
    max_body_values: Count = 100_000
    """The most strings, objects and arrays in a body, ten numbers counting as one; more get 413."""
    websocket: bool = True
    """Whether `/v1/responses` can be spoken to over a WebSocket; if not, an upgrade gets 426."""
    websocket_max_age: Seconds = 3600.0
    """A WebSocket takes no further request after this time, and is closed."""
    websocket_idle: Seconds = 1800.0
    """A WebSocket on which nothing happens for this time is closed."""
    shutdown_delay: SecondsOrZero = 5.0
    """After SIGTERM `/ready` is 503 and requests are still served for this time."""
    drain_timeout: SecondsOrZero = 30.0
    """The time that running requests get when the router stops."""
    unsupported: Literal["lenient", "strict"] = "lenient"
    """A parameter that an endpoint cannot be sent is named in a header (`lenient`), or refused
    (`strict`).
    """
    chat_truncation: Literal["disabled", "auto"] = "disabled"
    """With `auto` a chat that does not fit its model's context loses its oldest turns."""
    allowed_hosts: tuple[HostPattern, ...] = ()
    """Without keys: host names, addresses and networks that the router answers to beside local
    ones.
    """
    cors: tuple[Origin, ...] = ()
    """Origins of web pages that may use the router, such as `https://app.example`; `*` is all."""

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach ``host``."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"


class AuthSettings(Section):
    """Who may use Pointsman."""

    keys: tuple[ApiKey, ...] = ()
    """The API keys of clients; without any, everybody who can reach the router may use it."""

    @model_validator(mode="after")
    def _keys_differ(self) -> Self:
        plain = ({"name": k.name, "key": k.key.get_secret_value()} for k in self.keys)
        faults = repetitions(plain, UNIQUE_IN_KEYS)
        fail_at("Auth", [(("keys", *place), message) for place, message in faults])
        return self


class BreakerSettings(Section):
    """When a model at an endpoint is left alone, and how it comes back."""

    failures: Count = 3
    """So many failures in a row open the breaker."""
    ratio: Share = 0.2
    """So does this share of recent requests."""
    min_requests: Count = 10
    """The recent requests that a share needs."""
    open_seconds: Seconds = 1.0
    """Then one request tries; each failure doubles the time."""
    max_open_seconds: Seconds = 60.0
    """The longest that a breaker stays open."""
    panic: Share = 0.8
    """Breakers are ignored where a larger share of a model's endpoints is open."""
    slow_start: SecondsOrZero = 10.0
    """The time until a recovered endpoint has its full share of the traffic."""


class RetryBudgetSettings(Section):
    """What a sick fleet may be asked beside what clients ask."""

    ratio: Share = 0.2
    """Retries per request."""
    reserve: CountOrZero = 100
    """Retries that are allowed on top."""


class BalanceSettings(Section):
    """How endpoints are chosen."""

    policy: PolicyName = "least-loaded"
    """How an endpoint is chosen among those that are ready."""
    affinity: Share = 0.25
    """How much fuller a conversation's last endpoint may be for it to stay there; 0 is off."""
    max_attempts: Count = 3
    """At how many endpoints a request is tried before its first output."""
    retry_budget: RetryBudgetSettings = RetryBudgetSettings()
    queue_size: CountOrZero = 256
    """The most requests that wait for a slot."""
    queue_timeout: SecondsOrZero = 30.0
    """The longest that a request waits for a slot."""
    health_interval: Seconds = 10.0
    """How often each endpoint is asked for its models, and so for its health."""
    breaker: BreakerSettings = BreakerSettings()
    hedge: Share = 0.0
    """The share of streams that may be sent to a second endpoint when the first output is late; 0
    is off.
    """


class StateSettings(Section):
    """Where responses, conversations and prompts are stored, and how background runs are run."""

    url: StateUrl = SecretStr("sqlite:///pointsman.db")
    """`sqlite:///FILE`, or `postgresql://USER:PASSWORD@HOST/DATABASE` for several routers."""
    retention_days: DaysOrForever = 30.0
    """Responses are deleted so long after they were made, once nothing continues them; or
    `forever`.
    """
    on_down: Literal["fail", "degrade"] = "fail"
    """While the database is down requests that store get 503 (`fail`), or are served unstored
    (`degrade`).
    """
    durability: Literal["process", "power"] = "process"
    """What a commit survives: the end of the `process`, or also a cut of `power`."""
    timeout: Seconds = 5.0
    """The longest that a write waits for a database that is down."""
    lease: Seconds = 5.0
    """A router that gives no sign of life for this time loses its background runs."""
    max_runs: Count = 64
    """Background runs at once in one router; the others are queued."""
    max_queued_runs: Count = 10_000
    """The most background runs that are queued."""


class LoggingSettings(Section):
    """The log, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is logged."""
    format: Literal["auto", "json", "console"] = "auto"
    """`console` or `json`; `auto` is console on a terminal."""
    access: bool = True
    """One line for each request."""


class AdminSettings(Section):
    """The routes under `/admin`."""

    key: Secret | None = None
    """The key to `/admin` and `pointsman endpoints`; without one they are closed."""


class Settings(Section):
    """All settings of one Pointsman.

    ``fallbacks`` are, by the clients' name for a model or a pattern of such names, the models to
    try when it cannot be served.
    """

    server: ServerSettings = ServerSettings()
    auth: AuthSettings = Field(default=AuthSettings(), validate_default=True)
    endpoints: Annotated[tuple[EndpointSettings, ...], AfterValidator(not_empty)]
    balance: BalanceSettings = BalanceSettings()
    state: StateSettings = StateSettings()
    cache: CacheSettings = CacheSettings()
    fetch: FetchSettings = FetchSettings()
    tools: ToolsSettings = ToolsSettings()
    files: FilesSettings = FilesSettings()
    vector_stores: VectorStoresSettings | None = None
    compaction: CompactionSettings = CompactionSettings()
    accounts: AccountsSettings = AccountsSettings()
    logging: LoggingSettings = LoggingSettings()
    metrics: MetricsSettings = MetricsSettings()
    tracing: TracingSettings = TracingSettings()
    admin: AdminSettings = AdminSettings()
    fallbacks: dict[Text, Fallback] = Field(default_factory=dict)
    """Models, or patterns of them, and those that stand in when all their endpoints fail."""
    default_model: Text | None = None
    """The model of requests that name none, once they continue nothing that had one; without it
    they get 400.
    """
    plugins: tuple[PluginSettings, ...] = ()
    """Plugins in their order: names, or mappings with `plugin` and `options`. Bundled ones that it
    does not name come first.
    """

    @model_validator(mode="after")
    def _keys_name_endpoints(self) -> Self:
        names = [endpoint.name for endpoint in self.endpoints]
        faults = [
            (("auth", "keys", index, *place), message)
            for index, key in enumerate(self.auth.keys)
            for place, message in unknown_endpoints(key.endpoints or (), names)
        ]
        fail_at("Settings", faults)
        return self

    @model_validator(mode="after")
    def _cached_tools_are_known(self) -> Self:
        known = {"web_search", *(f"mcp:{server.label}" for server in self.tools.mcp.servers)}
        faults = [
            (("cache", "tools", index), "names no server of tools.mcp.servers")
            for index, name in enumerate(self.cache.tools)
            if name not in known
        ]
        fail_at("Settings", faults)
        return self

    @field_validator("state", mode="after")
    @classmethod
    def _workers_share_it(cls, value: StateSettings, info: ValidationInfo) -> StateSettings:
        server = info.data.get("server")
        in_memory = value.url.get_secret_value() == "sqlite:///:memory:"
        if server is not None and server.workers != 1 and in_memory:
            message = "cannot be in memory with server.workers: each would have one of its own"
            fail_at("Settings", [(("url",), message)])
        return value

    @field_validator("auth", mode="after")
    @classmethod
    def _open_to_known_hosts_only(cls, value: AuthSettings, info: ValidationInfo) -> AuthSettings:
        server = info.data.get("server")
        if server is None or value.keys or server.on_loopback:
            return value
        if not server.allowed_hosts:
            message = (
                "needs at least one key, since server.host is not a loopback address; to serve "
                "everybody who reaches it, name the hosts it is known by in server.allowed_hosts"
            )
            fail_at("Settings", [(("keys",), message)])
        return value

    @field_validator("metrics", "admin", mode="after")
    @classmethod
    def _is_nobody_elses_key(
        cls, value: MetricsSettings | AdminSettings, info: ValidationInfo
    ) -> MetricsSettings | AdminSettings:
        auth, metrics = info.data.get("auth"), info.data.get("metrics")
        if auth is not None and value.key is not None and value.key in [k.key for k in auth.keys]:
            fail_at("Settings", [(("key",), "is the same as a client's key")])
        if metrics is not None and value.key is not None and value.key == metrics.key:
            fail_at("Settings", [(("key",), "is the same as metrics.key")])
        return value

    @field_validator("endpoints", mode="after")
    @classmethod
    def _endpoint_names_differ(
        cls, value: tuple[EndpointSettings, ...]
    ) -> tuple[EndpointSettings, ...]:
        names = ({"name": endpoint.name} for endpoint in value)
        fail_at("Settings", repetitions(names, UNIQUE_IN_ENDPOINTS))
        return value

    @field_validator("cache", mode="after")
    @classmethod
    def _embedder_is_an_endpoint(cls, value: CacheSettings, info: ValidationInfo) -> CacheSettings:
        embedder, endpoints = value.semantic.embedder, info.data.get("endpoints")
        if endpoints is None or isinstance(embedder, str):
            return value
        if embedder.endpoint not in [endpoint.name for endpoint in endpoints]:
            place = ("semantic", "embedder", "endpoint")
            fail_at("Settings", [(place, "is not the name of an endpoint")])
        return value

    @field_validator("vector_stores", mode="after")
    @classmethod
    def _has_files_and_an_embedder(
        cls, value: VectorStoresSettings | None, info: ValidationInfo
    ) -> VectorStoresSettings | None:
        files, endpoints = info.data.get("files"), info.data.get("endpoints")
        if value is None or files is None or endpoints is None:
            return value
        if files.path is None:
            fail_at("Settings", [((), "needs files.path, where the files are kept")])
        names = [endpoint.name for endpoint in endpoints]
        if value.embedder != "local" and value.embedder.endpoint not in names:
            fail_at("Settings", [(("embedder", "endpoint"), "is not the name of an endpoint")])
        return value
