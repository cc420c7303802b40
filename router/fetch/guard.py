"""The one way to fetch what a client names.

A client's URL may point anywhere, and the router stands where clients cannot reach: it would be
asked for metadata of the cloud, for databases, for its own admin routes (server-side request
forgery). So a host is resolved once, every one of its addresses must be public, and the connection
goes to exactly such an address, whatever the name resolves to a moment later. No proxy and no
password file of the environment is used. Each redirect is looked at like the first URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from yarl import URL

from router.errors import NoFileDescriptors
from router.fetch.hosts import PORTS, Address, HostCheck, HostNotFound, HostRefused
from router.settings.fetch import FetchSettings
from router.telemetry.descriptors import is_shortage

__all__ = ["FetchGuard", "Fetched", "NotFetched"]

_MIB: Final = 1024 * 1024
_AT_ONCE: Final = 32
"""Fetches under way in one router; more wait, on their own time."""

_MOST_REDIRECTS: Final = 5
_CONNECT: Final = 5.0
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CODINGS: Final = frozenset({"gzip", "x-gzip", "deflate"})
_HEADERS: Final = {"Accept-Encoding": "identity", "User-Agent": "Pointsman"}


class NotFetched(Exception):
    """Nothing was fetched, and why: a sentence for whoever gave the URL.

    ``code`` is what OpenAI calls it for images: ``invalid_image_url``,
    ``failed_to_download_image``, ``image_too_large`` or ``unsupported_image_media_type``. The
    sentence holds no address, and nothing of the URL, which may hold a secret.
    """

    def __init__(self, message: str, code: str = "failed_to_download_image") -> None:
        super().__init__(message)
        self.message = message
        self.code = code


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file, and its media type without parameters, in lower case ("" where none is given).
    ``charset`` is what its server says of the encoding, unchecked, and "" where it says nothing.
    """

    media_type: str
    body: bytes
    charset: str = field(default="", compare=False)


class FetchGuard:
    """Fetches within the limits of its ``settings``, which may be changed at any time.

    ``hosts`` knows which hosts there are and which may be fetched from; ``tls`` is for https, None
    for the system's authorities.
    """

    def __init__(
        self,
        settings: FetchSettings,
        *,
        hosts: HostCheck | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.settings = settings
        self.hosts = hosts or HostCheck()
        self._tls = tls
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def fetch(
        self,
        url: str,
        *,
        types: Collection[str] | None,
        count: Callable[[int], None] = lambda size: None,
        headers: Mapping[str, str] | None = None,
        check: Callable[[str], None] = lambda url: None,
    ) -> Fetched:
        """GET ``url``; raises NotFetched.

        ``types`` are the media types that are accepted, None for all. ``count`` is told the bytes
        of every piece that arrives, and may raise. ``headers`` go to the origin of ``url``, not to
        another one that it redirects to. ``check`` is told each URL before it is asked for, those
        of redirects included, and may raise.
        """
        settings = self.settings
        try:
            async with asyncio.timeout(settings.timeout), self._slots:
                return await self._follow(url, types, count, check, headers or {}, settings)
        except TimeoutError:
            raise NotFetched(f"It could not be fetched within {settings.timeout:g} s.") from None

    def close(self) -> None:
        """Look up no more names."""
        self.hosts.close()

    async def _follow(
        self,
        url: str,
        types: Collection[str] | None,
        count: Callable[[int], None],
        check: Callable[[str], None],
        headers: Mapping[str, str],
        settings: FetchSettings,
    ) -> Fetched:
        place = _parsed(url)
        for _ in range(_MOST_REDIRECTS + 1):
            check(str(place))
            async with self._answer(place, headers, settings) as answer:
                if answer.status not in _REDIRECTS:
                    return await _file(answer, types, count, int(settings.max_mb * _MIB))
                location = answer.headers.get("Location")
            if location is None:
                raise NotFetched("Its server redirects, but does not say where to.")
            origin, place = place.origin(), _parsed(location, place)
            if place.origin() != origin:
                headers = {}  # and not again for who is redirected back
        raise NotFetched(f"Its server redirects more than {_MOST_REDIRECTS} times.")

    @contextlib.asynccontextmanager
    async def _answer(
        self, url: URL, headers: Mapping[str, str], settings: FetchSettings
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The head of the answer, from one of the addresses that were looked at."""
        addresses = await self._addresses(url, settings)
        # The address stands in the URL: nothing is left for the client to look up.
        sent = {**_HEADERS, **headers, "Host": url.raw_authority}
        connector = aiohttp.TCPConnector(force_close=True, ssl=self._tls or True)
        async with aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT),
        ) as session:
            answer = await _connected(session, url, addresses, sent)
            try:
                yield answer
            except (aiohttp.ClientError, OSError) as error:
                raise NotFetched("The connection to its server broke.") from error
            finally:
                answer.close()

    async def _addresses(self, url: URL, settings: FetchSettings) -> Sequence[Address]:
        host, port = url.raw_host, url.port
        assert host is not None
        assert port is not None
        try:
            return await self.hosts.addresses(host, port, url.scheme, settings.hosts)
        except HostRefused as error:
            raise NotFetched(str(error), "invalid_image_url") from None
        except HostNotFound as error:
            raise NotFetched(str(error)) from None


async def _connected(
    session: aiohttp.ClientSession,
    url: URL,
    addresses: Sequence[Address],
    headers: Mapping[str, str],
) -> aiohttp.ClientResponse:
    for address in addresses:
        try:
            return await session.get(
                url.with_host(str(address)),
                headers=headers,
                allow_redirects=False,
                server_hostname=url.raw_host if url.scheme == "https" else None,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            failure: Exception = error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = error
            break
    if is_shortage(failure):
        raise NoFileDescriptors from failure
    if isinstance(failure, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        raise NotFetched("The certificate of its server is not trusted.") from failure
    raise NotFetched("Its server could not be reached, or did not speak HTTP.") from failure


async def _file(
    answer: aiohttp.ClientResponse,
    types: Collection[str] | None,
    count: Callable[[int], None],
    limit: int,
) -> Fetched:
    if answer.status != 200:
        raise NotFetched(f"Its server answered with status {answer.status}.")
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if types is not None and kind not in types:
        raise NotFetched(
            "Its server says that it is no file of an accepted type: "
            f"{', '.join(sorted(t for t in types if t))}.",
            "unsupported_image_media_type",
        )
    too_large = NotFetched(f"It is larger than {limit / _MIB:g} MiB.", "image_too_large")
    if (answer.content_length or 0) > limit:
        raise too_large
    inflate = _inflater(answer.headers.get("Content-Encoding", "").strip().lower())
    pieces = []
    arrived = size = 0
    async for data in answer.content.iter_any():
        arrived += len(data)
        try:
            piece = data if inflate is None else inflate.decompress(data, limit - size + 1)
        except zlib.error:
            raise NotFetched("Its compression is broken.") from None
        size += len(piece)
        if max(arrived, size) > limit:
            raise too_large
        count(len(piece))
        pieces.append(piece)
    if inflate is not None and not inflate.eof:
        raise NotFetched("Its compression is broken.")
    return Fetched(kind, b"".join(pieces), answer.charset or "")


def _inflater(coding: str) -> zlib._Decompress | None:
    """What undoes the compression that was not asked for; a bound goes with every piece."""
    if coding in ("", "identity"):
        return None
    if coding not in _CODINGS:
        raise NotFetched("Its server compresses it in a way that was not asked for.")
    return zlib.decompressobj(zlib.MAX_WBITS | 32)


def _parsed(text: str, base: URL | None = None) -> URL:
    """The URL, and a redirect's relative to where it comes from."""
    try:
        # As it stands where that is possible: a signature may be over its very bytes.
        url = URL(text, encoded=text.isascii() and text.isprintable() and " " not in text)
        if base is not None:
            url = base.join(url)
        usable = url.scheme in PORTS and url.raw_host and url.port
    except ValueError:
        usable = False
    if not usable:
        raise NotFetched("It is not a valid http or https URL.", "invalid_image_url")
    if url.raw_user is not None or url.raw_password is not None:
        raise NotFetched("A URL with a user or password is not fetched.", "invalid_image_url")
    return url.with_fragment(None)
