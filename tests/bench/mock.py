"""The mock upstream: as cheap as Python allows, so that what is measured is the proxy before it.

    python -m tests.bench.mock --port PORT

Speaks POST /v1/responses, /v1/chat/completions, /api/chat and /v1/messages, streamed and not, and
the GETs with which a router asks what is there. Answers are made once per model and kept as bytes.
``GET /counts`` tells how many answers were begun on each path.

It is not ``tests.support.upstream``, which costs three times as much: of a whole answer this makes
82,000 a second with 5 µs of its own each, that one 37,000 with 15 µs.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

import httptools
import orjson
import uvloop

from . import messages, shapes
from .shapes import VARIANTS, Shape

__all__ = ["Mock", "serve"]

_MODEL = re.compile(rb'"model"\s*:\s*"([^"]{1,80})"')
_STREAM = re.compile(rb'"stream"\s*:\s*(true|false)')
_USAGE = re.compile(rb'"include_usage"\s*:\s*true')
_LISTED = [
    Shape(deltas, delay, variant).model
    for deltas, delay in ((64, 0), (64, 20), (2, 2))
    for variant in range(VARIANTS)
]
_MAX_KEPT: Final = 256


def _whole(body: bytes, status: bytes = b"200 OK") -> bytes:
    head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (status, len(body)) + body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _ollama_model(name: str) -> dict[str, Any]:
    details = {"format": "gguf", "family": "mock", "parameter_size": "1B"}
    return {
        "name": name,
        "model": name,
        "modified_at": "2026-01-01T00:00:00Z",
        "size": 1,
        "digest": "0" * 64,
        "details": details,
        "expires_at": "2036-01-01T00:00:00Z",
        "size_vram": 1,
    }


def _fixed_answers() -> dict[bytes, bytes]:
    models = [
        {"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "mock"}
        for name in _LISTED
    ]
    local = orjson.dumps({"models": [_ollama_model(name) for name in _LISTED]})
    return {
        b"/v1/models": _whole(orjson.dumps({"object": "list", "data": models})),
        b"/api/tags": _whole(local),
        b"/api/ps": _whole(local),
        b"/api/version": _whole(b'{"version":"0.13.0"}'),
    }


@dataclass(frozen=True, slots=True)
class _Answer:
    """``first`` is written at once, each of ``rest`` after ``delay`` seconds."""

    first: bytes
    rest: tuple[bytes, ...] = ()
    delay: float = 0.0


def _streamed(writes: list[bytes], content_type: bytes, delay: float) -> _Answer:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nCache-Control: no-cache\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n" % content_type
    )
    chunks = [_chunk(data) for data in writes]
    chunks[-1] += b"0\r\n\r\n"
    return _Answer(head + chunks[0], tuple(chunks[1:]), delay)


_SSE: Final = b"text/event-stream; charset=utf-8"
_FORMS: Final[
    dict[bytes, tuple[Callable[[Shape], bytes], Callable[[Shape, bool], list[bytes]]]]
] = {
    b"/v1/responses": (shapes.responses_body, lambda shape, _: shapes.responses_writes(shape)),
    b"/v1/chat/completions": (shapes.chat_body, shapes.chat_writes),
    b"/api/chat": (shapes.ollama_body, lambda shape, _: shapes.ollama_writes(shape)),
    b"/v1/messages": (messages.messages_body, lambda shape, _: messages.messages_writes(shape)),
}
"""By path: a whole answer, and a stream's writes, with token counts where they are asked for."""


class Mock:
    """The answers, and how many of them were begun on each path."""

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = dict.fromkeys(_FORMS, 0)
        self._fixed = _fixed_answers()
        self._kept: dict[tuple[bytes, bytes, bool, bool], _Answer] = {}

    def get(self, path: bytes) -> bytes:
        if path == b"/counts":
            return _whole(orjson.dumps({key.decode(): n for key, n in self.counts.items()}))
        answer = self._fixed.get(path)
        return answer or _whole(b'{"error":{"message":"no such path"}}', b"404 Not Found")

    def post(self, path: bytes, body: bytes) -> _Answer:
        if path not in self.counts:
            return _Answer(_whole(b'{"error":{"message":"no such path"}}', b"404 Not Found"))
        self.counts[path] += 1
        model = _MODEL.search(body)
        said = _STREAM.search(body)
        # Ollama streams unless told otherwise.
        stream = said[1] == b"true" if said else path == b"/api/chat"
        key = (path, model[1] if model else b"", stream, _USAGE.search(body) is not None)
        answer = self._kept.get(key)
        if answer is None:
            answer = self._make(*key)
            if len(self._kept) < _MAX_KEPT:
                self._kept[key] = answer
        return answer

    def _make(self, path: bytes, model: bytes, stream: bool, usage: bool) -> _Answer:
        try:
            shape = Shape.parse(model.decode())
        except ValueError as error:
            body = orjson.dumps({"error": {"message": str(error)}})
            return _Answer(_whole(body, b"400 Bad Request"))
        whole, writes = _FORMS[path]
        if not stream:
            return _Answer(_whole(whole(shape)))
        kind = b"application/x-ndjson" if path == b"/api/chat" else _SSE
        return _streamed(writes(shape, usage), kind, shape.delay_ms / 1000)


class _Connection(asyncio.Protocol):
    """One connection; requests come one after the other."""

    def __init__(self, mock: Mock, loop: asyncio.AbstractEventLoop) -> None:
        self._mock = mock
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._path = b""
        self._body: list[bytes] = []
        self._answer: _Answer | None = None
        self._next = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if self._transport is not None:
                self._transport.close()

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        transport = self._transport
        path, body = self._path.partition(b"?")[0], b"".join(self._body)
        self._path, self._body = b"", []
        if transport is None:
            return
        if self._parser.get_method() == b"GET":
            transport.write(self._mock.get(path))
            return
        self._answer = self._mock.post(path, body)
        self._next = 0
        transport.write(self._answer.first)
        self._schedule()

    def _schedule(self) -> None:
        answer = self._answer
        if answer is None or self._next >= len(answer.rest):
            return
        if answer.delay:
            self._loop.call_later(answer.delay, self._step)
        else:
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        if self._transport is None or self._answer is None:
            return
        self._transport.write(self._answer.rest[self._next])
        self._next += 1
        self._schedule()


async def serve(host: str, port: int) -> asyncio.Server:
    """Listen on ``host``:``port`` (0 takes a free one)."""
    loop, mock = asyncio.get_running_loop(), Mock()
    return await loop.create_server(lambda: _Connection(mock, loop), host, port, backlog=4096)


async def _main(port: int) -> None:
    async with await serve("127.0.0.1", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="The benchmark's mock upstream.")
    arguments.add_argument("--port", type=int, required=True)
    uvloop.run(_main(arguments.parse_args().port))
