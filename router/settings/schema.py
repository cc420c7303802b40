"""The settings, declared once.

    Settings
    ├── server      where Switchyard listens, and its limits
    ├── auth        the clients' API keys
    ├── endpoints   the backends, at least one
    ├── balance     attempts, queue, health checks
    ├── state       the database of stored responses, and background runs
    ├── logging     level and form of the log
    ├── metrics     who may read /metrics
    └── plugins     further plugins, as "package.module:factory"

Every duration is in seconds. Models are frozen and refuse unknown keys. A null counts as the
field left out. Rules that concern several fields raise a ``ValidationError`` that names the
field at fault; no message carries a value, since values can be secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

__all__ = [
    "UNIQUE_IN_ENDPOINTS",
    "UNIQUE_IN_KEYS",
    "ApiKey",
    "Auth",
    "Balance",
    "Dialect",
    "EndpointSettings",
    "Logging",
    "Metrics",
    "Server",
    "Settings",
    "State",
    "Timeouts",
    "Tls",
    "repetitions",
]

Dialect = Literal["responses", "chat", "ollama"]

UNIQUE_IN_ENDPOINTS = {"name": "is already the name of another endpoint"}
UNIQUE_IN_KEYS = {
    "name": "is already the name of another key",
    "key": "is the same as another key",
}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:-]{0,63}")
_PLUGIN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_OPERATIONS = ("/responses", "/chat/completions", "/models", "/api/chat", "/api/tags")


def _wrong(message: str) -> PydanticCustomError:
    return PydanticCustomError("rule", message)


def _fail(title: str, faults: Iterable[tuple[tuple[int | str, ...], str]]) -> None:
    """Raise one ``ValidationError`` for all ``faults`` (location, message); none is fine."""
    errors = [
        InitErrorDetails(type=_wrong(message), loc=place, input=None) for place, message in faults
    ]
    if errors:
        raise ValidationError.from_exception_data(title, errors, hide_input=True)


def repetitions(
    items: Iterable[Mapping[str, object]], unique: Mapping[str, str]
) -> list[tuple[tuple[int | str, ...], str]]:
    """Where an item repeats an earlier one in a field of ``unique`` (field -> message).

    Returns (index, field) and the message. Only texts count, so that items which are not
    validated yet can be compared too.
    """
    found: list[tuple[tuple[int | str, ...], str]] = []
    seen: set[tuple[str, str]] = set()
    for index, item in enumerate(items):
        for field, message in unique.items():
            value = item.get(field)
            if not isinstance(value, str):
                continue
            if (field, value) in seen:
                found.append(((index, field), message))
            seen.add((field, value))
    return found


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise _wrong("must be a number")
    return value


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise _wrong(
            "must be 1 to 64 letters, digits or . _ @ : - and begin with a letter or digit"
        )
    return value


def _secret(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text:
        raise _wrong("is empty")
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise _wrong("contains blanks, line ends or characters outside ASCII")
    return value


def _plugin(value: str) -> str:
    if not _PLUGIN.fullmatch(value):
        raise _wrong('must have the form "package.module:factory"')
    return value


def _base_url(value: str) -> str:
    """An http(s) URL that paths can be appended to, without its trailing slash."""
    if not (value.isascii() and value.isprintable()) or " " in value:
        raise _wrong("contains blanks, line ends or characters outside ASCII")
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise _wrong('must be a URL like "https://host:port/v1"')
    if "@" in parts.netloc:
        raise _wrong("must not contain a user or password; a key belongs in api_key")
    if "?" in value or "#" in value:
        raise _wrong("must not contain a query or fragment")
    base = value.rstrip("/")
    if base.endswith(_OPERATIONS):
        raise _wrong("must be the base of the API, without the path of an operation")
    return base


def _state_url(value: SecretStr) -> SecretStr:
    url = value.get_secret_value()
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        return value
    if url.startswith(("postgresql://", "postgres://")):
        return value
    raise _wrong('must be like "sqlite:///FILE" or "postgresql://USER:PASSWORD@HOST/DATABASE"')


def _forever(value: object) -> object:
    # A word, since a null counts as the field left out.
    return None if value == "forever" else value


def _not_empty(value: tuple[Any, ...]) -> tuple[Any, ...]:
    # Not min_length: that also complains about a list whose only item is wrong.
    if not value:
        raise _wrong("must have at least one entry")
    return value


Positive = Annotated[float, BeforeValidator(_number), Field(gt=0, allow_inf_nan=False)]
Seconds = Positive
SecondsOrZero = Annotated[float, BeforeValidator(_number), Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, BeforeValidator(_number), Field(ge=1)]
CountOrZero = Annotated[int, BeforeValidator(_number), Field(ge=0)]
Port = Annotated[int, BeforeValidator(_number), Field(ge=0, le=65535)]
Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, AfterValidator(_name)]
Secret = Annotated[SecretStr, AfterValidator(_secret)]
BaseUrl = Annotated[str, AfterValidator(_base_url)]
StateUrl = Annotated[SecretStr, AfterValidator(_state_url)]
PluginName = Annotated[str, AfterValidator(_plugin)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_left_out(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        return {k: v for k, v in data.items() if v is not None or k not in cls.model_fields}


class Server(_Section):
    """Where Switchyard listens. Port 0 takes a free one; sizes are in MiB."""

    host: Text = "127.0.0.1"
    port: Port = 8080
    keepalive_interval: Seconds = 15.0
    max_body_mb: Positive = 32.0
    drain_timeout: SecondsOrZero = 30.0

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach ``host``."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"


class ApiKey(_Section):
    """One client key; the name is its owner and survives a change of the key."""

    name: Name
    key: Secret


class Auth(_Section):
    """Who may use Switchyard; without keys everyone may, on loopback only."""

    keys: tuple[ApiKey, ...] = ()

    @model_validator(mode="after")
    def _keys_differ(self) -> Self:
        plain = ({"name": k.name, "key": k.key.get_secret_value()} for k in self.keys)
        faults = repetitions(plain, UNIQUE_IN_KEYS)
        _fail("Auth", [(("keys", *place), message) for place, message in faults])
        return self


class Timeouts(_Section):
    """Deadlines of one attempt, in seconds.

    ``connect`` to an open connection, ``first_byte`` from there to the first byte of the answer,
    ``idle`` between two reads, ``total`` for everything.
    """

    connect: Seconds = 5.0
    first_byte: Seconds = 60.0
    idle: Seconds = 60.0
    total: Seconds = 600.0


class Tls(_Section):
    """How the certificate of an https endpoint is checked; ``ca_file`` is PEM."""

    ca_file: Path | None = None
    verify: bool = True


class EndpointSettings(_Section):
    """One backend.

    ``models`` are names or shell-style patterns; None means that the endpoint is asked.
    ``aliases`` map the name a client uses to the name the endpoint knows. ``max_in_flight``
    counts requests per model. ``context_length`` is the context in tokens, input and output, that
    ``truncation: auto`` cuts to; ``num_ctx``, for Ollama only, is the one that it is told to use,
    and takes the place of ``context_length`` where that is left out.
    """

    name: Name
    url: BaseUrl
    dialect: Dialect
    api_key: Secret | None = None
    models: Annotated[tuple[Text, ...], AfterValidator(_not_empty)] | None = None
    aliases: dict[Text, Text] = Field(default_factory=dict)
    max_in_flight: Count = 32
    weight: Positive = 1.0
    timeouts: Timeouts = Timeouts()
    tls: Tls = Tls()
    context_length: Count | None = None
    num_ctx: Count | None = None

    @field_validator("num_ctx", mode="after")
    @classmethod
    def _only_ollama_has_num_ctx(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("dialect", "ollama") != "ollama":
            raise _wrong("is for endpoints with dialect: ollama only")
        return value


class Balance(_Section):
    """How requests are spread. ``queue_size`` 0 means that nobody waits for a free slot."""

    max_attempts: Count = 3
    queue_size: CountOrZero = 256
    queue_timeout: SecondsOrZero = 30.0
    health_interval: Seconds = 10.0


class State(_Section):
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

    url: StateUrl = SecretStr("sqlite:///switchyard.db")
    retention_days: Annotated[Positive | None, BeforeValidator(_forever)] = 30.0
    on_down: Literal["fail", "degrade"] = "fail"
    durability: Literal["process", "power"] = "process"
    timeout: Seconds = 5.0
    lease: Seconds = 5.0
    max_runs: Count = 64
    max_queued_runs: Count = 10_000


class Logging(_Section):
    """``auto`` is console on a terminal and JSON elsewhere; ``access`` is a line per request."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"
    access: bool = True


class Metrics(_Section):
    """Whether /metrics asks for a client key."""

    require_key: bool = False


class Settings(_Section):
    """All settings of one Switchyard."""

    server: Server = Server()
    auth: Auth = Field(default=Auth(), validate_default=True)
    endpoints: Annotated[tuple[EndpointSettings, ...], AfterValidator(_not_empty)]
    balance: Balance = Balance()
    state: State = State()
    logging: Logging = Logging()
    metrics: Metrics = Metrics()
    plugins: tuple[PluginName, ...] = ()

    @field_validator("auth", mode="after")
    @classmethod
    def _open_on_loopback_only(cls, value: Auth, info: ValidationInfo) -> Auth:
        server = info.data.get("server")
        if server is not None and not value.keys and not server.on_loopback:
            message = "needs at least one key, since server.host is not a loopback address"
            _fail("Settings", [(("keys",), message)])
        return value

    @field_validator("endpoints", mode="after")
    @classmethod
    def _endpoint_names_differ(
        cls, value: tuple[EndpointSettings, ...]
    ) -> tuple[EndpointSettings, ...]:
        names = ({"name": endpoint.name} for endpoint in value)
        _fail("Settings", repetitions(names, UNIQUE_IN_ENDPOINTS))
        return value
