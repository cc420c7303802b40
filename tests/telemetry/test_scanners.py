"""Whoever asks for ever new paths and names finds that nothing grows."""

from __future__ import annotations

import asyncio
from itertools import islice
from urllib.parse import urlsplit

import orjson

from tests.support.fetch import fetch
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, whole

_SCANNED = 10_000
_AT_ONCE = 500


def _requests(kind: str, number: int) -> bytes:
    """One request for something that nobody has asked for before."""
    if kind == "path":
        return b"GET /v1/%x/%d.php HTTP/1.1\r\nHost: localhost\r\n\r\n" % (
            number * 7919 % 65536,
            number,
        )
    if kind == "admin":
        return b"GET /admin/%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % number
    if kind == "id":
        return b"GET /v1/responses/resp_%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % number
    body = orjson.dumps({"model": f"gpt-{number}", "input": "hi", "stream": bool(number & 4)})
    head = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: scan-%d\r\n" % number
    return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


KINDS = ("path", "admin", "id", "model")


async def _scan(router: Router, first: int, count: int) -> None:
    """Send so many requests, many at once on one connection; all have to be answered."""
    address = urlsplit(router.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    numbers = iter(range(first, first + count))
    while batch := list(islice(numbers, _AT_ONCE)):
        writer.write(b"".join(_requests(KINDS[n % len(KINDS)], n) for n in batch))
        async with asyncio.timeout(30):
            for _ in batch:
                head = await reader.readuntil(b"\r\n\r\n")
                assert b" 40" in head.partition(b"\r\n")[0], head
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
    writer.close()
    await writer.wait_closed()


async def _series(router: Router) -> set[str]:
    reply = await fetch(router.http, "GET", f"{router.url}/metrics")
    lines = reply.body.decode().splitlines()
    return {line.rpartition(" ")[0] for line in lines if not line.startswith("#")}


async def test_ten_thousand_random_paths_and_models_add_no_series() -> None:
    async with (
        Upstream(default=whole(SPEECH["chat"].whole)) as upstream,
        routing(endpoint(upstream, "chat", models=["m", "listed-*"])) as router,
    ):
        await router.ask()
        await _scan(router, 0, 2 * len(KINDS))
        before = await _series(router)
        await _scan(router, 2 * len(KINDS), _SCANNED)
        assert await _series(router) == before
        assert sum(await router.metric("pointsman_requests_total")) > _SCANNED
