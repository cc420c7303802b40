"""The HTTP client that the SDK is given: to one origin, at checked addresses, within bounds.

It follows no environment (proxies, ``.netrc``). What it meets at the server it does not raise into
the SDK, where an error of one exchange would end the whole session: the request that the exchange
belongs to is told, and the SDK gets an answer without content.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import anyio
import httpcore2
import httpx2

from router.errors import NoFileDescriptors
from router.fetch.hosts import HostCheck, HostNotFound, HostRefused
from router.telemetry.descriptors import is_shortage
from router.tools.mcp.body import BROKEN, Body, stream_starts_at
from router.tools.mcp.errors import (
    McpError,
    McpProtocolError,
    McpTimeout,
    McpUnauthorized,
    McpUnreachable,
)
from router.tools.mcp.request import CURRENT, McpRequest
from router.tools.mcp.server import McpServer

__all__ = ["Listed", "McpHttp"]

Listed = tuple[HostCheck, Sequence[str] | None]
"""Who decides of a host, and the only ones that are allowed."""

_CONNECT: Final = 5.0
"""Seconds to connect to one address, or for TLS."""

_AFTERWARDS: Final = 2.0
"""Seconds for what is sent when a request is over: that it is cancelled, that a session ends."""

_MOST_REDIRECTS: Final = 3
_MOST_RESUMED: Final = 50
"""The SDK goes deeper each time, without an end of its own."""

_BESIDE: Final = 8
"""Connections beside those of calls: cancellations, the stream of a session."""

_HEADERS: Final = {"Accept-Encoding": "identity", "User-Agent": "Pointsman"}


class McpHttp(httpx2.AsyncBaseTransport):
    """The transport of one session's client.

    ``sse`` is for the older transport, where a session is a stream. ``max_bytes`` bounds the answer
    to one request, ``calls`` is how many there are at once, ``lost`` is told what ends that stream.
    With ``hosts`` None any address will do.
    """

    def __init__(
        self,
        server: McpServer,
        *,
        sse: bool,
        hosts: Listed | None,
        tls: ssl.SSLContext,
        max_bytes: int,
        calls: int,
        lost: Callable[[McpError], None],
    ) -> None:
        assert server.url is not None
        self._server = server
        self._who = f"The MCP server {server.label!r}"
        self._url = httpx2.URL(server.url)
        self._moved: dict[httpx2.URL, httpx2.URL] = {}
        self._settled = False
        self._sse = sse
        self._max_bytes = max_bytes
        self._lost = lost
        self._room = max_bytes
        self._posts = 0
        self._quiet = anyio.Event()
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=calls + _BESIDE,
            max_keepalive_connections=_BESIDE,
            keepalive_expiry=30.0,
            network_backend=_CheckedNetwork(self._url.scheme, hosts),
        )

    def client(self) -> httpx2.AsyncClient:
        """The client, for whoever enters it; the transport is closed with it."""
        return httpx2.AsyncClient(
            transport=self,
            headers={**_HEADERS, **self._server.all_headers},
            trust_env=False,
            timeout=None,
            max_redirects=_MOST_REDIRECTS,
        )

    def settle(self) -> None:
        """The session is open: where its server is, is known, and it redirects no more."""
        self._settled = True

    def begin(self) -> None:
        """Another request: the stream of a session may bring so much more."""
        self._room += self._max_bytes

    def rest(self) -> None:
        """No request is under way."""
        self._room = self._max_bytes

    async def quiet(self) -> None:
        """Wait until nothing is being sent or answered."""
        while self._posts:
            self._quiet = anyio.Event()
            await self._quiet.wait()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """See ``httpx2.AsyncBaseTransport``."""
        current = CURRENT.get()
        done = self._count(request)
        response = None
        try:
            response = await self._exchange(request, current, done)
        except McpError as error:
            current.fail(error)
        finally:
            if response is None:
                done()
        return response or httpx2.Response(503, request=request)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    def _count(self, request: httpx2.Request) -> Callable[[], None]:
        """Count what is under way; what is returned ends it."""
        if request.method == "GET":
            return lambda: None
        self._posts += 1

        def done() -> None:
            self._posts -= 1
            self._quiet.set()

        return done

    async def _exchange(
        self, request: httpx2.Request, current: McpRequest, done: Callable[[], None]
    ) -> httpx2.Response:
        stream = self._sse and request.method == "GET"
        if request.method == "GET":
            if current.over:
                raise McpUnreachable(f"{self._who} ended the stream.")  # resumed for nobody
            if not self._sse and "last-event-id" not in request.headers:
                # What a server sends of its own accord is of no use here.
                done()
                return httpx2.Response(405, request=request)
            current.resumed += not stream
            if current.resumed > _MOST_RESUMED:
                raise McpProtocolError(f"{self._who} ends its stream again and again.")
        if _origin(request.url) != _origin(self._url):
            raise self._elsewhere()
        limit = anyio.current_time() + _AFTERWARDS if current.over else current.deadline
        answer = await self._send(request, limit)
        head = httpx2.Headers(answer.headers)
        current.status = answer.status
        current.media_type = head.get("content-type", "").partition(";")[0].strip().lower()
        try:
            self._check(request, answer.status, head)
            if stream and answer.status == 200 and current.media_type != "text/event-stream":
                raise McpProtocolError(f"{self._who} answers with something that is not MCP.")
        except McpError:
            await answer.aclose()
            raise
        if stream:
            check = stream_starts_at(str(self._url), self._who)
            body = Body(answer, self._who, fail=self._lost, take=self._take, check=check, done=done)
        else:
            take = _up_to(self._max_bytes)
            body = Body(answer, self._who, fail=current.fail, take=take, done=done, limit=limit)
        return httpx2.Response(answer.status, headers=head, stream=body, request=request)

    async def _send(self, request: httpx2.Request, limit: float) -> httpcore2.Response:
        url = self._moved.get(request.url, request.url)
        sent = httpcore2.Request(
            request.method,
            httpcore2.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions={"timeout": {"connect": _CONNECT}},
        )
        with anyio.CancelScope(deadline=limit):
            try:
                return await self._pool.handle_async_request(sent)
            except (HostRefused, HostNotFound) as error:
                raise McpUnreachable(f"{self._who} is not used. {error}", sent=False) from None
            except (*BROKEN, NoFileDescriptors) as error:
                raise self._failure(error) from error
        raise McpTimeout(f"{self._who} did not answer in time.")

    def _check(self, request: httpx2.Request, status: int, head: httpx2.Headers) -> None:
        if status in (401, 403):
            raise McpUnauthorized(f"{self._who} refuses these credentials, with status {status}.")
        if self._sse and request.method == "POST" and status >= 400:
            raise McpUnreachable(f"{self._who} answered with status {status}.")
        if 300 <= status < 400 and not self._stays(request, status, head.get("location", "")):
            raise self._elsewhere()
        if head.get("content-encoding", "identity").strip().lower() != "identity":
            raise McpProtocolError(f"{self._who} compresses its answers without being asked to.")

    def _stays(self, request: httpx2.Request, status: int, location: str) -> bool:
        """Whether a redirect is one that the SDK follows, and within the origin. Then it is gone to
        at once the next time: a call is not sent twice for a slash at the end of a URL.
        """
        try:
            url = request.url.join(location)
        except (httpx2.InvalidURL, ValueError):
            return False
        if self._settled or url.userinfo or _origin(url) != _origin(self._url):
            return False
        if request.method == "POST" and status in (307, 308) and location:
            self._moved[request.url] = url
        return status in (307, 308) or (request.method == "GET" and status in (301, 302, 303))

    def _elsewhere(self) -> McpError:
        return McpUnreachable(
            f"{self._who} redirects to another place, and the router does not follow it there."
        )

    def _failure(self, error: Exception) -> McpError:
        if isinstance(error, NoFileDescriptors) or is_shortage(error):
            return McpUnreachable("The router has no file descriptors left.", sent=False)
        if any(isinstance(cause, ssl.SSLError) for cause in error.args):
            said = f"{self._who} has no certificate that is trusted, or does not speak TLS."
            return McpUnreachable(said, sent=False)
        if isinstance(error, httpcore2.ConnectError | httpcore2.ConnectTimeout):
            return McpUnreachable(f"{self._who} could not be reached.", sent=False)
        if isinstance(error, httpcore2.ProtocolError) and "disconnected" not in str(error):
            return McpProtocolError(f"{self._who} does not speak HTTP.")
        return McpUnreachable(f"{self._who} broke the connection.")

    def _take(self, size: int) -> bool:
        self._room -= size
        return self._room >= 0


class _CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that were looked at, and to no other."""

    def __init__(self, scheme: str, hosts: Listed | None) -> None:
        self._scheme = scheme
        self._hosts = hosts
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """See ``httpcore2.AsyncNetworkBackend``; raises HostRefused and HostNotFound, too."""
        if self._hosts is None:
            return await self._network.connect_tcp(host, port, timeout=timeout)
        hosts, listed = self._hosts
        failure: Exception | None = None
        for address in await hosts.addresses(host, port, self._scheme, listed):
            try:
                return await self._network.connect_tcp(str(address), port, timeout=timeout)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure or HostNotFound("Its host was not found.")


def _up_to(most: int) -> Callable[[int], bool]:
    """For ``Body``: whether it is no larger than that."""
    taken = 0

    def take(size: int) -> bool:
        nonlocal taken
        taken += size
        return taken <= most

    return take


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
