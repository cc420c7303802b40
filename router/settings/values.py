"""The values that settings are made of: their types, and what is wrong with a value.

No message carries the value itself, since it could be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

__all__ = [
    "UNIQUE_IN_ENDPOINTS",
    "UNIQUE_IN_KEYS",
    "BaseUrl",
    "CacheUrl",
    "Count",
    "CountOrZero",
    "DaysOrForever",
    "Fault",
    "HeaderName",
    "HeaderValue",
    "HostPattern",
    "KeepAlive",
    "KeyName",
    "LimitsUrl",
    "Name",
    "Origin",
    "PluginName",
    "Port",
    "Positive",
    "Seconds",
    "SecondsOrZero",
    "Secret",
    "Share",
    "StateUrl",
    "Text",
    "Usd",
    "fail_at",
    "http_url",
    "not_empty",
    "plugin_name",
    "repetitions",
    "wrong",
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:-]{0,63}")
_KEEP_ALIVE = re.compile(r"-?\d{1,9}(\.\d{1,9})?(ns|us|µs|ms|s|m|h)")
_PLUGIN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*|[A-Za-z0-9]([\w.-]*\w)?")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HOST = re.compile(r"\*|(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_ORIGIN = re.compile(r"\*|null|[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#@*\\]+")
_CACHE_URL = re.compile(r"(disk|rediss?|unix)://.")
_REDIS_URL = re.compile(r"(rediss?|unix)://.")
_OPERATIONS = ("/responses", "/chat/completions", "/models", "/api/chat", "/api/tags")


def wrong(message: str) -> PydanticCustomError:
    """What a validator raises; ``message`` continues the name of the field."""
    return PydanticCustomError("rule", message)


Fault = tuple[tuple[int | str, ...], str]
"""Where a mistake is, and a message that continues the name of that field."""


def fail_at(title: str, faults: Iterable[Fault]) -> None:
    """Raise one ``ValidationError`` for all ``faults``; none is fine."""
    errors = [
        InitErrorDetails(type=wrong(message), loc=place, input=None) for place, message in faults
    ]
    if errors:
        raise ValidationError.from_exception_data(title, errors, hide_input=True)


UNIQUE_IN_ENDPOINTS = {"name": "is already the name of another endpoint"}
UNIQUE_IN_KEYS = {
    "name": "is already the name of another key",
    "key": "is the same as another key",
}


def repetitions(items: Iterable[Mapping[str, object]], unique: Mapping[str, str]) -> list[Fault]:
    """Where an item repeats an earlier one in a field of ``unique`` (field -> message).

    Returns (index, field) and the message. Only texts count, so that items which are not
    validated yet can be compared too.
    """
    found: list[Fault] = []
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


def _header_name(value: str) -> str:
    if not _HEADER.fullmatch(value):
        raise wrong("must be the name of an HTTP header")
    return value


def _header_value(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not (text.isascii() and text.isprintable()):
        raise wrong("contains line ends or characters outside ASCII")
    return value


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise wrong("must be a number")
    return value


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise wrong("must be 1 to 64 letters, digits or . _ @ : - and begin with a letter or digit")
    return value


def _key_name(value: str) -> str:
    if value.startswith("tag:"):
        raise wrong('must not begin with "tag:", which stands for what keys share')
    return _name(value)


def _secret(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text:
        raise wrong("is empty")
    if not (text.isascii() and text.isprintable()) or " " in text:
        raise wrong("contains blanks, line ends or characters outside ASCII")
    return value


def plugin_name(value: str) -> str:
    """A validator for names of plugins."""
    if not _PLUGIN.fullmatch(value):
        raise wrong('must be a name, or have the form "package.module:factory"')
    return value


def _keep_alive(value: str | int) -> str | int:
    if isinstance(value, str) and not _KEEP_ALIVE.fullmatch(value):
        raise wrong('must be a number of seconds or a duration such as "30m"; -1 is for ever')
    return value


def http_url(value: str, like: str, secret: str) -> SplitResult:
    """The parts of an http(s) URL without user and password; raises ValueError for anything else.

    ``like`` is a URL to show there, ``secret`` where a password belongs.
    """
    if not (value.isascii() and value.isprintable()) or " " in value:
        raise wrong("contains blanks, line ends or characters outside ASCII")
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise wrong(f'must be a URL like "{like}"')
    if "@" in parts.netloc:
        raise wrong(f"must not contain a user or password; {secret}")
    return parts


def _base_url(value: str) -> str:
    """An http(s) URL that paths can be appended to, without its trailing slash."""
    http_url(value, "https://host:port/v1", "a key belongs in api_key")
    if "?" in value or "#" in value:
        raise wrong("must not contain a query or fragment")
    base = value.rstrip("/")
    if base.endswith(_OPERATIONS):
        raise wrong("must be the base of the API, without the path of an operation")
    return base


def _state_url(value: SecretStr) -> SecretStr:
    url = value.get_secret_value()
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        return value
    if url.startswith(("postgresql://", "postgres://")):
        return value
    raise wrong('must be like "sqlite:///FILE" or "postgresql://USER:PASSWORD@HOST/DATABASE"')


def _cache_url(value: SecretStr) -> SecretStr:
    url = value.get_secret_value()
    if url == "memory://" or _CACHE_URL.match(url):
        return value
    raise wrong('must be "memory://", or like "disk://DIRECTORY" or "redis://HOST:PORT/0"')


def _limits_url(value: SecretStr) -> SecretStr:
    url = value.get_secret_value()
    if url == "memory://" or _REDIS_URL.match(url):
        return value
    raise wrong('must be "memory://", or like "redis://HOST:PORT/0"')


def _host_pattern(value: str) -> str:
    """A host name, also with ``*.`` before it, an address, a network, or ``*``."""
    try:
        ip_network(value.strip("[]"), strict=False)
    except ValueError:
        if not _HOST.fullmatch(value):
            raise wrong(
                'must be a host name without port, "*." and a name, an address or a network'
            ) from None
    return value


def _origin(value: str) -> str:
    """An origin as browsers write it: in lower case, without the port that its scheme implies."""
    if not _ORIGIN.fullmatch(value):
        raise wrong('must be an origin like "https://app.example", without a path, or "*"')
    value = value.lower()
    for scheme, port in (("http://", ":80"), ("https://", ":443")):
        if value.startswith(scheme):
            value = value.removesuffix(port)
    return value


def _forever(value: object) -> object:
    # A word, since a null counts as the field left out.
    return None if value == "forever" else value


def not_empty(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """A validator for lists that must have an entry."""
    # Not min_length: that also complains about a list whose only item is wrong.
    if not value:
        raise wrong("must have at least one entry")
    return value


Positive = Annotated[float, BeforeValidator(_number), Field(gt=0, allow_inf_nan=False)]
Seconds = Positive
SecondsOrZero = Annotated[float, BeforeValidator(_number), Field(ge=0, allow_inf_nan=False)]
Usd = SecondsOrZero
Count = Annotated[int, BeforeValidator(_number), Field(ge=1)]
CountOrZero = Annotated[int, BeforeValidator(_number), Field(ge=0)]
Port = Annotated[int, BeforeValidator(_number), Field(ge=0, le=65535)]
Share = Annotated[float, BeforeValidator(_number), Field(ge=0, le=1)]
Text = Annotated[str, Field(min_length=1)]
KeepAlive = Annotated[str | int, BeforeValidator(_number), AfterValidator(_keep_alive)]
Name = Annotated[str, AfterValidator(_name)]
KeyName = Annotated[str, AfterValidator(_key_name)]
Secret = Annotated[SecretStr, AfterValidator(_secret)]
HeaderName = Annotated[str, AfterValidator(_header_name)]
HeaderValue = Annotated[SecretStr, AfterValidator(_header_value)]
BaseUrl = Annotated[str, AfterValidator(_base_url)]
HostPattern = Annotated[str, AfterValidator(_host_pattern)]
Origin = Annotated[str, AfterValidator(_origin)]
StateUrl = Annotated[SecretStr, AfterValidator(_state_url)]
CacheUrl = Annotated[SecretStr, AfterValidator(_cache_url)]
LimitsUrl = Annotated[SecretStr, AfterValidator(_limits_url)]
PluginName = Annotated[str, AfterValidator(plugin_name)]
DaysOrForever = Annotated[Positive | None, BeforeValidator(_forever)]
