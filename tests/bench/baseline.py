"""The yardstick: a bare reverse proxy of aiohttp's server and client, bytes passed through.

    python -m tests.bench.baseline --port PORT --upstream URL

No keys, no log, no metrics, no ids rewritten: what any aiohttp proxy costs at least.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator

import uvloop
from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web

__all__ = ["build"]

_SESSION = web.AppKey("session", ClientSession)
_HOP_BY_HOP = frozenset({"connection", "content-length", "date", "server", "transfer-encoding"})


def build(upstream: str) -> web.Application:
    """The proxy in front of ``upstream``, a URL without a path."""

    async def session(app: web.Application) -> AsyncIterator[None]:
        connector = TCPConnector(limit=0, keepalive_timeout=60)
        async with ClientSession(
            connector=connector,
            timeout=ClientTimeout(total=None),  # timers cost; the load generator has the deadline
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
        ) as client:
            app[_SESSION] = client
            yield

    async def forward(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {"Content-Type": request.content_type, "Accept": "*/*"}
        async with request.app[_SESSION].request(
            request.method, upstream + request.path, data=body or None, headers=headers
        ) as answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
            if answer.content_length is not None:
                data = await answer.read()
                return web.Response(status=answer.status, headers=kept, body=data)
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response

    app = web.Application(client_max_size=32 << 20)
    app.cleanup_ctx.append(session)
    app.router.add_route("*", "/{path:.*}", forward)
    return app


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="The benchmark's bare proxy.")
    arguments.add_argument("--port", type=int, required=True)
    arguments.add_argument("--upstream", required=True)
    options = arguments.parse_args()
    web.run_app(
        build(options.upstream),
        host="127.0.0.1",
        port=options.port,
        access_log=None,
        print=None,
        backlog=4096,
        loop=uvloop.new_event_loop(),
    )
