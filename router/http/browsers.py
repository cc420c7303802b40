"""What web pages may ask of the router: the names it answers to, and the origins it trusts.

Without API keys whoever reaches the router may use it, and every page that is open in a browser on
this machine does: with a cross-site request, or under a host name that its owner points at this
machine (DNS rebinding). So a router without keys answers only to host names that are local or
configured, and refuses what a browser says comes from another site. With keys none of that is
needed, since a page does not have one.

CORS (``server.cors``) is the opposite: what lets pages of the configured origins read answers,
with keys or without. Sources: the Fetch standard (CORS protocol), Fetch Metadata (W3C), RFC 6454.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from router.errors import Forbidden, UnsupportedMediaType
from router.http.connection import HttpRequest
from router.http.description.headers import HEADERS
from router.settings.schema import ServerSettings

__all__ = ["BrowserRules"]

_AUTHORITY: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/?#@\\\[\]]+))(?::\d*)?")
_TOKENS: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+(\s*,\s*[A-Za-z0-9!#$%&'*+.^_`|~-]+)*")
_JSON: Final = re.compile(r"application/([\w.+-]+\+)?json\s*(;.*)?", re.IGNORECASE)
_MAX_KNOWN: Final = 64
_MAX_ASKED: Final = 2048
_SHOWN: Final = 100
_METHODS: Final = "GET, HEAD, POST, PUT, PATCH, DELETE"
_PREFLIGHT_SECONDS: Final = "600"
_EXPOSED: Final = ", ".join(HEADERS)


class BrowserRules:
    """``keyless``: nobody needs a key, so that the rules for web pages apply."""

    def __init__(self, server: ServerSettings, *, keyless: bool) -> None:
        self.keyless = keyless
        self._hosts = _Hosts((*server.allowed_hosts, *_own_name(server)))
        self._known: set[str] = set()
        self._origins = frozenset(server.cors)
        self._every_origin = "*" in self._origins

    @property
    def shares(self) -> bool:
        """Whether pages of other origins may read answers."""
        return bool(self._origins)

    def check(self, request: HttpRequest) -> None:
        """Raise Forbidden or UnsupportedMediaType for what a web page may have sent by itself. To
        be asked where the router is ``keyless``.
        """
        headers = request.headers
        host = headers.get(hdrs.HOST)
        if host is not None and host not in self._known:
            self._check_host(host)
        if not request.raw_path.startswith("/"):
            # A whole URL, which counts for more than Host (RFC 9112, section 3.2.2).
            self._check_host(request.raw_path.partition("://")[2].partition("/")[0])
        if hdrs.ORIGIN in headers or "Sec-Fetch-Site" in headers:
            self._check_page(request)

    def _check_host(self, host: str) -> None:
        if not self._hosts.include(host):
            raise Forbidden(
                "Without API keys this router answers to local host names and those in "
                f"server.allowed_hosts only, and '{host[:_SHOWN]}' is none of them.",
                code="host_not_allowed",
            )
        if len(self._known) < _MAX_KNOWN:
            self._known.add(host)

    def _check_page(self, request: HttpRequest) -> None:
        """For a request that a browser made, or says it did."""
        headers = request.headers
        # A browser sends one; several are judged as the list that they are, which is no origin.
        origin = ", ".join(headers.getall(hdrs.ORIGIN, ())) if hdrs.ORIGIN in headers else None
        elsewhere = headers.get("Sec-Fetch-Site") == "cross-site"
        if origin is not None:
            if not (self._may_read(origin) or self._is_local(origin, headers.get(hdrs.HOST))):
                raise Forbidden(
                    "Without API keys this router refuses requests by web pages of other origins; "
                    f"'{origin[:_SHOWN]}' is not in server.cors.",
                    code="origin_not_allowed",
                )
        elif elsewhere and not _is_navigation(request):
            raise Forbidden(
                "Without API keys this router refuses cross-site requests; the origins of web "
                "pages that may use it belong in server.cors.",
                code="origin_not_allowed",
            )
        # Other types need no preflight: any page can send them to anybody.
        if (origin is not None or elsewhere) and request.body_exists:
            declared = headers.get(hdrs.CONTENT_TYPE, "")
            if not _JSON.fullmatch(declared):
                raise UnsupportedMediaType(
                    "Without API keys the body of a web page's request must be declared as "
                    "'Content-Type: application/json'."
                )

    def _is_local(self, origin: str, host: str | None) -> bool:
        """Whether a page comes from this machine, or from where the request goes to."""
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        if parts.scheme not in ("http", "https"):
            return False
        return parts.netloc == host or _LOCAL.include(parts.netloc)

    def _may_read(self, origin: str) -> bool:
        return self._every_origin or origin in self._origins

    def preflight(self, request: HttpRequest) -> web.Response | None:
        """The answer to a CORS preflight of a configured origin; None for everything else."""
        headers = request.headers
        if (
            request.method != hdrs.METH_OPTIONS
            or hdrs.ACCESS_CONTROL_REQUEST_METHOD not in headers
            or not self._may_read(headers.get(hdrs.ORIGIN, ""))
        ):
            return None
        answer = web.Response(status=204)
        answer.headers[hdrs.ACCESS_CONTROL_ALLOW_METHODS] = _METHODS
        answer.headers[hdrs.ACCESS_CONTROL_MAX_AGE] = _PREFLIGHT_SECONDS
        # Named one by one, since "*" does not stand for Authorization.
        asked = headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, "").strip()
        if len(asked) <= _MAX_ASKED and _TOKENS.fullmatch(asked):
            answer.headers[hdrs.ACCESS_CONTROL_ALLOW_HEADERS] = asked
        if headers.get("Access-Control-Request-Private-Network") == "true":
            answer.headers["Access-Control-Allow-Private-Network"] = "true"
        return answer

    async def share(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the CORS headers to an answer that is about to leave (``on_response_prepare``).

        Keys travel in headers: there is no need for credentials, as the browser calls cookies.
        """
        if self._every_origin:
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = "*"
        else:
            vary = response.headers.get(hdrs.VARY)
            response.headers[hdrs.VARY] = hdrs.ORIGIN if vary is None else f"{vary}, {hdrs.ORIGIN}"
            origin = request.headers.get(hdrs.ORIGIN)
            if origin is None or origin not in self._origins:
                return
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
        response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = _EXPOSED


class _Hosts:
    """Local host names, and further ones: names, ``*.`` and a name, addresses, networks, ``*``."""

    def __init__(self, more: tuple[str, ...] = ()) -> None:
        self._names = {"localhost"}
        self._suffixes: tuple[str, ...] = (".localhost",)
        self._networks: list[IPv4Network | IPv6Network] = [
            ip_network("127.0.0.0/8"), ip_network("::1")
        ]  # fmt: skip
        self._all = "*" in more
        for entry in more:
            try:
                self._networks.append(ip_network(entry.strip("[]"), strict=False))
            except ValueError:
                name = entry.lower().rstrip(".")
                if name.startswith("*."):
                    self._suffixes += (name[1:],)
                else:
                    self._names.add(name)

    def include(self, authority: str) -> bool:
        """Whether the host of ``host[:port]`` is one of these."""
        if self._all:
            return True
        match = _AUTHORITY.fullmatch(authority)
        if match is None:
            return False
        name = (match[1] or match[2]).lower().removesuffix(".")
        if name in self._names or name.endswith(self._suffixes):
            return True
        address = _address(name)
        return address is not None and any(address in network for network in self._networks)


_LOCAL: Final = _Hosts()


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None


def _own_name(server: ServerSettings) -> tuple[str, ...]:
    """What the router listens on, unless that is every address."""
    address = _address(server.host)
    return () if address is not None and address.is_unspecified else (server.host,)


def _is_navigation(request: HttpRequest) -> bool:
    """Whether somebody follows a link: the page it stands on cannot read what comes of it."""
    headers = request.headers
    return (
        request.method == hdrs.METH_GET
        and headers.get("Sec-Fetch-Mode") == "navigate"
        and headers.get("Sec-Fetch-Dest") == "document"
    )
