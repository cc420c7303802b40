"""The settings, declared once.

    Settings
    ├── server      where Pointsman listens, and its limits
    ├── auth        the clients' API keys
    ├── endpoints   the backends, at least one
    ├── balance     policy, attempts, queue, health
    ├── fallbacks   other models for a model that cannot be served
    ├── state       the database of stored responses, and background runs
    ├── cache       answers given again instead of asked for again
    ├── fetch       what is fetched because a client says so
    ├── accounts    prices, the usage ledger, where limits are counted
    ├── logging     level and form of the log
    ├── metrics     who may read /metrics
    ├── tracing     spans for an OpenTelemetry collector
    ├── admin       the key to the admin routes
    └── plugins     further plugins, as "package.module:factory"

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
from router.settings.endpoints import (
    CapabilitySettings,
    Dialect,
    EndpointSettings,
    TimeoutSettings,
    TlsSettings,
)
from router.settings.fallbacks import Fallback
from router.settings.fetch import FetchSettings
from router.settings.metrics import MetricsSettings
from router.settings.section import Section
from router.settings.tracing import TracingSettings
from router.settings.values import (
    UNIQUE_IN_ENDPOINTS,
    UNIQUE_IN_KEYS,
    Count,
    CountOrZero,
    DaysOrForever,
    HostPattern,
    Origin,
    PluginName,
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
    """Where Pointsman listens. Port 0 takes a free one; sizes are in MiB. A request with a field
    that its endpoint cannot be sent is, by ``unsupported``, served and the field named in a header
    (``lenient``), or refused (``strict``). A stream is opened with its first output, or after
    ``open_after`` seconds without any; what fails before is answered with an HTTP error. After
    SIGTERM requests are served for ``shutdown_delay`` seconds more, and those that run then get
    ``drain_timeout`` seconds. A router without keys answers to local host names and to
    ``allowed_hosts``; ``cors`` are the origins of web pages that may use it. With
    ``chat_truncation: auto`` a Chat Completions request that does not fit into its model's context
    loses its oldest turns instead of being refused.
    """

    host: Text = "127.0.0.1"
    port: Port = 8080
    open_after: SecondsOrZero = 0.1
    keepalive_interval: Seconds = 15.0
    max_body_mb: Positive = 32.0
    max_body_values: Count = 100_000
    shutdown_delay: SecondsOrZero = 5.0
    drain_timeout: SecondsOrZero = 30.0
    unsupported: Literal["lenient", "strict"] = "lenient"
    chat_truncation: Literal["disabled", "auto"] = "disabled"
    allowed_hosts: tuple[HostPattern, ...] = ()
    cors: tuple[Origin, ...] = ()

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach ``host``."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"


class AuthSettings(Section):
    """Who may use Pointsman; without keys everyone who reaches it, see ``ServerSettings``."""

    keys: tuple[ApiKey, ...] = ()

    @model_validator(mode="after")
    def _keys_differ(self) -> Self:
        plain = ({"name": k.name, "key": k.key.get_secret_value()} for k in self.keys)
        faults = repetitions(plain, UNIQUE_IN_KEYS)
        fail_at("Auth", [(("keys", *place), message) for place, message in faults])
        return self


class BreakerSettings(Section):
    """When an endpoint is left alone, and for how long.

    A breaker opens after ``failures`` in a row, or once ``ratio`` of recent requests failed (of
    at least ``min_requests``). It stays open for ``open_seconds``, twice as long each time it
    opens again, up to ``max_open_seconds``. When more than ``panic`` of a model's endpoints are
    open, the request is the likelier culprit and breakers are ignored. For ``slow_start`` seconds
    after it closed, traffic comes back step by step.
    """

    failures: Count = 3
    ratio: Share = 0.2
    min_requests: Count = 10
    open_seconds: Seconds = 1.0
    max_open_seconds: Seconds = 60.0
    panic: Share = 0.8
    slow_start: SecondsOrZero = 10.0


class RetryBudgetSettings(Section):
    """What a sick fleet may be asked beside what clients ask: for each request ``ratio`` of a
    retry, on top of a ``reserve`` that fills up again within a minute.
    """

    ratio: Share = 0.2
    reserve: CountOrZero = 100


class BalanceSettings(Section):
    """How requests are spread. ``queue_size`` 0 means that nobody waits for a free slot.

    ``affinity`` is how much more of its capacity may be in use at the endpoint that a conversation
    used last than elsewhere, for the conversation to stay there; 0 switches it off. ``hedge`` is
    the share of streams that may be asked a second time, elsewhere, when their first output is
    later than usual; 0 switches it off.
    """

    policy: PolicyName = "least-loaded"
    affinity: Share = 0.25
    max_attempts: Count = 3
    retry_budget: RetryBudgetSettings = RetryBudgetSettings()
    queue_size: CountOrZero = 256
    queue_timeout: SecondsOrZero = 30.0
    health_interval: Seconds = 10.0
    breaker: BreakerSettings = BreakerSettings()
    hedge: Share = 0.0


class StateSettings(Section):
    """Where responses, conversations and prompts are stored, and how background runs are limited.

    ``url`` is ``sqlite:///FILE`` (relative to the working directory; ``sqlite:////FILE`` is
    absolute), ``sqlite:///:memory:``, or ``postgresql://USER:PASSWORD@HOST/DATABASE``. Responses
    are deleted ``retention_days`` after they were made, once nothing builds on them any more;
    ``forever`` (None in here) keeps them.
    ``on_down`` says what happens to requests that want to be stored while the database is down:
    ``fail`` refuses them, ``degrade`` serves them with ``store: false``. What was acknowledged
    survives the end of the ``process``, or also a cut of ``power``. ``timeout`` is how long a
    write waits for the database to come back, ``lease`` after how long without a sign of life a
    router's runs are taken over. ``max_runs`` counts background runs at once in one router.
    """

    url: StateUrl = SecretStr("sqlite:///pointsman.db")
    retention_days: DaysOrForever = 30.0
    on_down: Literal["fail", "degrade"] = "fail"
    durability: Literal["process", "power"] = "process"
    timeout: Seconds = 5.0
    lease: Seconds = 5.0
    max_runs: Count = 64
    max_queued_runs: Count = 10_000


class LoggingSettings(Section):
    """``auto`` is console on a terminal and JSON elsewhere; ``access`` is a line per request."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"
    access: bool = True


class AdminSettings(Section):
    """The key to the admin routes; without one they are closed."""

    key: Secret | None = None


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
    accounts: AccountsSettings = AccountsSettings()
    logging: LoggingSettings = LoggingSettings()
    metrics: MetricsSettings = MetricsSettings()
    tracing: TracingSettings = TracingSettings()
    admin: AdminSettings = AdminSettings()
    fallbacks: dict[Text, Fallback] = Field(default_factory=dict)
    plugins: tuple[PluginName, ...] = ()

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
