"""What a request's web search tool says: domains, the user's location, how much to show."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from yarl import URL

from router.dialects.parameters import bad_value, object_, string, wrong_type
from router.errors import InvalidRequest

__all__ = [
    "ContextSize",
    "DomainFilter",
    "SearchOptions",
    "UserLocation",
    "read_options",
]

_MOST_DOMAINS: Final = 100
_LONGEST: Final = 253
"""Characters of a name in the DNS; more than any city or time zone needs."""

ContextSize = Literal["low", "medium", "high"]
_SIZES: Final[tuple[ContextSize, ...]] = ("low", "medium", "high")


@dataclass(frozen=True, slots=True)
class _Domain:
    """A host, which stands for those below it too, and how the paths on it begin."""

    host: str
    path: str

    def has(self, host: str, path: str) -> bool:
        if host != self.host and not host.endswith(f".{self.host}"):
            return False
        below = self.path.rstrip("/")
        return not below or path == below or path.startswith(f"{below}/")


@dataclass(frozen=True, slots=True)
class DomainFilter:
    """Which pages may be shown: those on ``allowed``, or all, without those on ``blocked``."""

    allowed: tuple[_Domain, ...] | None = None
    blocked: tuple[_Domain, ...] = ()

    def admits(self, url: str) -> bool:
        """Whether a page may be shown; of what is no http(s) URL with a host none may."""
        try:
            place = URL(url)
            host = (place.raw_host or "").rstrip(".").lower()
        except ValueError:
            return False
        if place.scheme not in ("http", "https") or not host:
            return False
        if any(domain.has(host, place.path) for domain in self.blocked):
            return False
        return self.allowed is None or any(d.has(host, place.path) for d in self.allowed)

    @property
    def allowed_hosts(self) -> list[str]:
        """For search services, each once."""
        return list(dict.fromkeys(domain.host for domain in self.allowed or ()))

    @property
    def blocked_hosts(self) -> list[str]:
        """The hosts that are blocked whole."""
        return list(dict.fromkeys(domain.host for domain in self.blocked if not domain.path))


@dataclass(frozen=True, slots=True)
class UserLocation:
    """Where the user is, as far as the request says so. ``country`` is an ISO code of two letters,
    in upper case; ``timezone`` an IANA name.
    """

    country: str | None = None
    region: str | None = None
    city: str | None = None
    timezone: str | None = None


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """``live`` is false where the client wants nothing fetched (``external_web_access``)."""

    domains: DomainFilter = DomainFilter()
    location: UserLocation = UserLocation()
    size: ContextSize = "medium"
    max_uses: int | None = None
    live: bool = True


def read_options(tool: Mapping[str, Any], where: str) -> SearchOptions:
    """The options of a tool at the path ``where``; raises InvalidRequest that names the field.

    ``filters.blocked_domains`` and ``max_uses`` are Anthropic's; fields that nobody knows are left
    alone.
    """
    filters = tool.get("filters")
    if filters is None:
        filters = {}
    object_(filters, f"{where}.filters")
    allowed = _domains(filters, "allowed_domains", f"{where}.filters")
    blocked = _domains(filters, "blocked_domains", f"{where}.filters")
    return SearchOptions(
        # OpenAI's default is an empty list, which stands for all domains.
        DomainFilter(allowed or None, blocked),
        _location(tool.get("user_location"), f"{where}.user_location"),
        _size(tool.get("search_context_size"), f"{where}.search_context_size"),
        _max_uses(tool.get("max_uses"), f"{where}.max_uses"),
        tool.get("external_web_access") is not False,
    )


def _domains(filters: Mapping[str, Any], name: str, where: str) -> tuple[_Domain, ...]:
    given, path = filters.get(name), f"{where}.{name}"
    if given is None:
        return ()
    if type(given) is not list:
        raise wrong_type(path, "an array of strings", given)
    if len(given) > _MOST_DOMAINS:
        raise _invalid(path, f"no more than {_MOST_DOMAINS} domains are taken")
    return tuple(_domain(text, f"{path}[{index}]") for index, text in enumerate(given))


def _domain(text: Any, where: str) -> _Domain:
    string(text, where)
    fault = _invalid(where, 'expected a domain such as "example.com", or one with a path')
    bare = re.sub(r"\Ahttps?://", "", text.strip(), flags=re.IGNORECASE)
    if "*" in bare or "@" in bare or len(bare) > 2 * _LONGEST:
        raise fault
    try:
        parts = urlsplit(f"//{bare}")
        host = URL.build(scheme="http", host=(parts.hostname or "").rstrip(".")).raw_host
        path = URL(parts.path).path
        unusable = parts.port is not None
    except ValueError:
        raise fault from None
    if unusable or not host or len(host) > _LONGEST or re.search(r"[\s\\%]", host):
        raise fault
    return _Domain(host.lower(), path.rstrip("/"))


def _location(given: Any, where: str) -> UserLocation:
    if given is None:
        return UserLocation()
    object_(given, where)
    found: dict[str, str | None] = {}
    for name in ("country", "region", "city", "timezone"):
        value = given.get(name)
        if value is None:
            continue
        string(value, f"{where}.{name}")
        if len(value) > _LONGEST or not value.isprintable():
            raise _invalid(f"{where}.{name}", "it is too long, or has characters that no name has")
        found[name] = value.strip() or None
    country = found.get("country")
    if country is not None and not re.fullmatch(r"[A-Za-z]{2}", country):
        raise _invalid(f"{where}.country", 'expected an ISO code of two letters, such as "US"')
    return UserLocation(**{**found, "country": country.upper() if country else None})


def _size(given: Any, where: str) -> ContextSize:
    if given is None:
        return "medium"
    string(given, where)
    for size in _SIZES:
        if size == given:
            return size
    raise bad_value(where, given, _SIZES)


def _max_uses(given: Any, where: str) -> int | None:
    if given is None:
        return None
    if type(given) is not int:
        raise wrong_type(where, "an integer", given)
    if given < 1:
        raise _invalid(where, "expected at least 1")
    return given


def _invalid(where: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid '{where}': {why}.", code="invalid_value", param=where)
