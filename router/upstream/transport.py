"""The pooled connections to one endpoint, on aiohttp's client.

aiohttp's own timeouts cover the connection only; first byte, idle and total are a ``Deadline``.
Every foreign error is mapped here, once, to one of ``router.errors``.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Final

import aiohttp
from yarl import URL

from router.errors import UpstreamError, UpstreamFailure, UpstreamTimeout, UpstreamUnavailable
from router.settings.schema import EndpointSettings
from router.upstream.contract import UpstreamRequest
from router.upstream.deadline import Deadline
from router.upstream.refusals import refusal

__all__ = ["MAX_BODY_BYTES", "HttpTransport"]

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""An answer in one piece may be this large, decompressed."""

_KEEPALIVE_SECONDS: Final = 60.0
_SETTLE_SECONDS: Final = 0.25


class HttpTransport:
    """Implements ``router.upstream.contract.Transport``."""

    def __init__(self, endpoint: EndpointSettings) -> None:
        self._endpoint = endpoint
        self._timeouts = endpoint.timeouts
        self._urls: dict[str, URL] = {}
        self._headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "switchyard",
        }
        if endpoint.api_key is not None:
            self._headers["Authorization"] = f"Bearer {endpoint.api_key.get_secret_value()}"
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: UpstreamRequest) -> HttpAnswer:
        """See ``Transport.send``."""
        timeouts = self._timeouts
        deadline = Deadline(timeouts.total)
        # An answer in one piece has its first byte when all of it is there.
        seconds = timeouts.first_byte if request.stream else timeouts.total
        try:
            with deadline.wait(seconds, "the first byte"):
                response = await self._open().request(
                    "POST",
                    self._url(request.path),
                    data=request.body,
                    headers=self._headers,
                    allow_redirects=False,
                )
        except BaseException as exc:
            deadline.close()
            if (error := self._mapped(exc)) is exc:
                raise
            raise error from exc
        answer = HttpAnswer(response, deadline, timeouts.idle, self._mapped)
        if response.status != 200:
            try:
                body = await answer.body()
            finally:
                answer.close()
            raise refusal(self._endpoint.name, response.status, response.headers, body)
        return answer

    async def get(self, path: str, timeout: float) -> tuple[int, bytes]:
        """See ``Transport.get``."""
        try:
            async with (
                asyncio.timeout(timeout),
                self._open().get(
                    self._url(path), headers=self._headers, allow_redirects=False
                ) as response,
            ):
                return response.status, await read_limited(response)
        except TimeoutError as exc:
            raise UpstreamTimeout(f"No answer within {timeout:g} s.") from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise self._mapped(exc) from exc

    async def close(self) -> None:
        """See ``Transport.close``."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        """The session, made with the first request: it needs the running loop."""
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=0, keepalive_timeout=_KEEPALIVE_SECONDS, ssl=self._ssl()
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timeouts.connect),
            )
        return self._session

    def _ssl(self) -> ssl.SSLContext | bool:
        tls = self._endpoint.tls
        if not tls.verify:
            return False
        if tls.ca_file is None:
            return True
        return ssl.create_default_context(cafile=str(tls.ca_file))

    def _url(self, path: str) -> URL:
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = URL(self._endpoint.url.rstrip("/") + path)
        return url

    def _mapped(self, exc: BaseException) -> BaseException:
        """The router's error for a foreign one; anything else stays what it is."""
        name = self._endpoint.name
        if isinstance(exc, UpstreamError):
            return exc
        if isinstance(exc, aiohttp.ClientConnectorError):
            return UpstreamUnavailable(f"No connection to endpoint '{name}'.", again=True)
        if isinstance(exc, aiohttp.ServerTimeoutError):
            return UpstreamUnavailable(f"No connection to endpoint '{name}' in time.")
        if isinstance(exc, aiohttp.ClientConnectionError | ConnectionError):
            return UpstreamFailure(f"Endpoint '{name}' closed the connection.", again=True)
        if isinstance(exc, aiohttp.ClientPayloadError):
            return UpstreamFailure(f"Endpoint '{name}' broke off its answer.")
        if isinstance(exc, aiohttp.ClientError | OSError):
            return UpstreamFailure(f"Endpoint '{name}' sent an answer that is not HTTP.")
        return exc


class HttpAnswer:
    """Implements ``router.upstream.contract.Answer``."""

    __slots__ = ("_deadline", "_idle", "_map_error", "_response")

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        deadline: Deadline,
        idle: float,
        map_error: Callable[[BaseException], BaseException],
    ) -> None:
        self._response = response
        self._deadline = deadline
        self._idle = idle
        self._map_error = map_error

    @property
    def headers(self) -> Mapping[str, str]:
        """See ``Answer.headers``."""
        return self._response.headers

    async def read(self) -> bytes:
        """See ``Answer.read``."""
        try:
            with self._deadline.wait(self._idle, "the next piece of the answer"):
                return await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as exc:
            raise self._map_error(exc) from exc

    async def body(self) -> bytes:
        """See ``Answer.body``."""
        try:
            with self._deadline.wait(self._idle, "the rest of the answer"):
                return await read_limited(self._response)
        except (aiohttp.ClientError, OSError) as exc:
            raise self._map_error(exc) from exc

    async def settle(self) -> None:
        """See ``Answer.settle``."""
        try:
            with self._deadline.wait(_SETTLE_SECONDS, "the end of the answer"):
                while await self._response.content.readany():
                    pass
        except (aiohttp.ClientError, OSError, UpstreamTimeout):
            return  # close() then cuts it off

    def close(self) -> None:
        """See ``Answer.close``."""
        self._deadline.close()
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


async def read_limited(response: aiohttp.ClientResponse) -> bytes:
    """The whole body; raises UpstreamFailure past ``MAX_BODY_BYTES``."""
    pieces = []
    size = 0
    while piece := await response.content.readany():
        pieces.append(piece)
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise UpstreamFailure(f"The endpoint's answer exceeds {MAX_BODY_BYTES} bytes.")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
