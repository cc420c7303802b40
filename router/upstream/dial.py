"""Makes connections to one endpoint: name resolution, TCP, TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from aiohappyeyeballs import AddrInfoType, start_connection

from router.errors import NoFileDescriptors
from router.settings.schema import EndpointSettings, TlsSettings
from router.telemetry.descriptors import is_shortage, shortage

__all__ = ["CannotConnect", "Dialer"]

_HAPPY_EYEBALLS_DELAY: Final = 0.25
_RESOLVED_SECONDS: Final = 10.0


class CannotConnect(Exception):
    """No connection, and why not, in words that follow "No connection to endpoint 'x': "."""


class Dialer:
    """Connects to the host of an endpoint's URL.

    ``authority`` is the value of the Host header, ``path`` what precedes every path.
    """

    def __init__(self, endpoint: EndpointSettings) -> None:
        url = urlsplit(endpoint.url)
        assert url.hostname is not None
        self._tls = endpoint.tls if url.scheme == "https" else None
        default = 443 if self._tls is not None else 80
        self._host = url.hostname
        self._port = url.port or default
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.authority = host if self._port == default else f"{host}:{self._port}"
        self.path = url.path.rstrip("/")
        self._context: ssl.SSLContext | None = None
        self._addresses: Sequence[AddrInfoType] = _literal(self._host, self._port)
        self._fixed = bool(self._addresses)
        self._resolved_until = 0.0
        self._resolving = asyncio.Lock()

    async def dial(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        """Connect ``protocol`` to the endpoint; raises CannotConnect, or NoFileDescriptors.

        The caller bounds the time.
        """
        try:
            context = self._tls_context()
            sock = await start_connection(
                await self._resolve(loop), happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY, loop=loop
            )
            try:
                await loop.create_connection(
                    lambda: protocol,
                    sock=sock,
                    ssl=context,
                    server_hostname=self._host if context is not None else None,
                )
            finally:
                if not isinstance(loop, asyncio.BaseEventLoop):
                    # uvloop owns the descriptor from here on. It does not always tell the socket,
                    # which would then close that number again, by then somebody else's.
                    sock.detach()
        except (OSError, RuntimeError) as exc:  # uvloop has RuntimeError for some of them
            self._resolved_until = 0.0
            if is_shortage(exc):
                raise NoFileDescriptors from exc
            raise CannotConnect(_reason(exc)) from exc

    def _tls_context(self) -> ssl.SSLContext | None:
        """Without file descriptors one is made that trusts nobody, and no error says so."""
        if self._tls is None or self._context is not None:
            return self._context
        if shortage() is not None:
            raise NoFileDescriptors
        context = _context(self._tls)
        if shortage() is not None:
            raise NoFileDescriptors
        self._context = context
        return context

    async def _resolve(self, loop: asyncio.AbstractEventLoop) -> Sequence[AddrInfoType]:
        """The host's addresses, asked for once when many connections are made at a time."""
        if self._fixed or loop.time() < self._resolved_until:
            return self._addresses
        async with self._resolving:
            if loop.time() >= self._resolved_until:
                self._addresses = await loop.getaddrinfo(
                    self._host, self._port, type=socket.SOCK_STREAM
                )
                self._resolved_until = loop.time() + _RESOLVED_SECONDS
        return self._addresses


def _literal(host: str, port: int) -> Sequence[AddrInfoType]:
    """The address of a host that is one; empty for a name."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return []


def _context(tls: TlsSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=str(tls.ca_file) if tls.ca_file else None)
    except OSError as exc:
        raise CannotConnect(f"its tls.ca_file cannot be loaded ({exc.strerror or exc})") from exc
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def _reason(exc: Exception) -> str:
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"TLS certificate verification failed: {exc.verify_message}"
    if isinstance(exc, ssl.SSLError):
        reason = exc.reason or exc.strerror or "for an unknown reason"
        return f"TLS handshake failed: {reason.replace('_', ' ').lower()}"
    if isinstance(exc, socket.gaierror):
        return f"its host name could not be resolved ({exc.strerror})"
    if isinstance(exc, ConnectionRefusedError):
        return "connection refused"
    if isinstance(exc, TimeoutError):
        return "timed out"
    if isinstance(exc, ConnectionError):
        return "the connection was closed while it was made"
    if isinstance(exc, OSError) and exc.errno and exc.strerror:
        return exc.strerror
    return "none of its addresses could be reached"
