"""How a search service is asked: one request, within bounds, and JSON back.

The service is the operator's choice and may be anywhere, unlike the pages that it finds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import aiohttp
import orjson
from yarl import URL

from router.tools.web_search.outcome import SearchFailed

__all__ = ["SearchService", "ServiceRequest"]

_MIB: Final = 1024 * 1024
_MOST_BYTES: Final = 4 * _MIB
_CONNECT_SECONDS: Final = 5.0
_AT_ONCE: Final = 32
"""Searches under way in one router; more wait, on their own time."""

_LONGEST_REST: Final = 60.0
"""Seconds for which a service that has had enough is not asked, whatever it says."""


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """``url`` is whole and encoded; ``body`` is sent as JSON."""

    url: str
    method: Literal["GET", "POST"] = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


class SearchService:
    """Asks the service, each time within ``timeout`` seconds."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None
        self._resting_until = 0.0

    async def ask(self, request: ServiceRequest) -> Any:
        """The JSON of the answer; raises SearchFailed, which names neither the address nor a key.

        After a 429 the service is left alone for as long as it says, up to a minute.
        """
        left = self._resting_until - asyncio.get_running_loop().time()
        if left > 0:
            raise _too_many(left)
        try:
            async with asyncio.timeout(self._timeout):
                return _decoded(await self._body(request))
        except TimeoutError:
            raise SearchFailed(
                f"The search service did not answer within {self._timeout:g} s.", "timeout"
            ) from None
        except SearchFailed as failure:
            rest = min(failure.retry_after or 0.0, _LONGEST_REST)
            self._resting_until = asyncio.get_running_loop().time() + rest
            raise
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError):
            raise SearchFailed("The certificate of the search service is not trusted.") from None
        except (aiohttp.ClientError, OSError, ValueError):
            # Their own words may quote the URL, and with it a key.
            raise SearchFailed(
                "The search service could not be reached, or did not speak HTTP."
            ) from None

    async def close(self) -> None:
        """End the connections."""
        if self._session is not None:
            await self._session.close()

    async def _body(self, request: ServiceRequest) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_AT_ONCE),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
                trust_env=False,
            )
        headers = {"Accept": "application/json", "User-Agent": "Pointsman", **request.headers}
        data = None
        if request.body is not None:
            data = orjson.dumps(request.body)
            headers.setdefault("Content-Type", "application/json")
        async with self._session.request(
            request.method,
            URL(request.url, encoded=True),
            headers=headers,
            data=data,
            allow_redirects=False,  # a key goes to the host that it was configured for
        ) as answer:
            _check_status(answer)
            pieces, size = [], 0
            async for piece in answer.content.iter_any():
                size += len(piece)
                if size > _MOST_BYTES:
                    answer.close()
                    raise SearchFailed(
                        f"The search service's answer is larger than {_MOST_BYTES // _MIB} MiB."
                    )
                pieces.append(piece)
            return b"".join(pieces)


def _check_status(answer: aiohttp.ClientResponse) -> None:
    status = answer.status
    if status == 200:
        return
    if status == 429:
        raise _too_many(_seconds(answer.headers.get("Retry-After")))
    if status in (401, 403):
        raise SearchFailed(
            f"The search service refuses the router (status {status}): its key, or JSON as the "
            "format of answers, has to be allowed there."
        )
    if 300 <= status < 400:
        raise SearchFailed(
            f"The search service redirects (status {status}), which is not followed: its URL has "
            "to be configured as it is."
        )
    raise SearchFailed(f"The search service answered with status {status}.")


def _too_many(seconds: float | None) -> SearchFailed:
    wait = "" if seconds is None else f", and asks for a pause of {seconds:.0f} s"
    return SearchFailed(f"The search service has had too many requests{wait}.", retry_after=seconds)


def _seconds(header: str | None) -> float | None:
    """Of ``Retry-After``; its form with a date is rare, and counts as none."""
    try:
        seconds = float(header or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < 1e6 else None


def _decoded(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise SearchFailed("The search service answered with something else than JSON.") from None
