"""Requests as they leave, answers as they arrive: framing, compression, statuses, limits."""

from __future__ import annotations

import asyncio
import gzip
import os

import pytest

from router.core.upstream import LoadRequest, UpstreamRequest
from router.errors import (
    UpstreamError,
    UpstreamFailure,
    UpstreamModelMissing,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from router.upstream.connection import MAX_HEAD_BYTES
from tests.support.http1 import KEY, bytes_of, everything, post, transport_to
from tests.support.upstream import Framing, Upstream, Wire, silent, streamed, whole

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_the_request_as_it_arrives() -> None:
    async with Upstream(whole(b"{}")) as upstream, transport_to(upstream.address + "/v1/") as http:
        answer = await http.send(UpstreamRequest("/responses", b'{"a":1}', stream=False))
        assert await answer.body() == b"{}"
        answer.close()
    (request,) = upstream.requests
    assert (request.method, request.path, request.body) == ("POST", "/v1/responses", b'{"a":1}')
    assert request.headers == {
        "host": upstream.address.removeprefix("http://"),
        "accept": "*/*",
        "accept-encoding": "identity",
        "user-agent": "pointsman",
        "authorization": f"Bearer {KEY}",
        "content-type": "application/json",
        "content-length": "7",
    }


async def test_get() -> None:
    async with Upstream() as upstream, transport_to(upstream) as http:
        status, body = await http.get("/models", 5.0)
        assert (status, b'"id":"m"' in body) == (200, True)
    (probe,) = upstream.probes
    assert (probe.method, probe.path) == ("GET", "/models")
    assert "content-length" not in probe.headers
    assert "content-type" not in probe.headers


@pytest.mark.parametrize(
    ("base", "unversioned", "path"),
    [
        ("", False, "/models/load"),
        ("/v1", False, "/v1/models/load"),
        ("/v1", True, "/models/load"),
        ("/gateway/v1/", True, "/gateway/models/load"),
        ("/v10", True, "/v10/models/load"),
        ("", True, "/models/load"),
    ],
)
async def test_post(base: str, unversioned: bool, path: str) -> None:
    load = LoadRequest("/models/load", b'{"a":1}', unversioned=unversioned)
    script = whole(b"no such model", 404)
    async with Upstream(script) as upstream, transport_to(upstream.address + base) as http:
        assert await http.post(load, 5.0) == (404, b"no such model")
    (request,) = upstream.requests
    assert (request.method, request.path, request.body) == ("POST", path, b'{"a":1}')
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"


async def test_post_has_a_deadline_of_its_own() -> None:
    async with Upstream(silent) as upstream, transport_to(upstream) as http:
        with pytest.raises(UpstreamTimeout, match=r"did not answer within 0\.05 s"):
            await http.post(LoadRequest("/load", b""), 0.05)
        await upstream.wires[0].gone.wait()


@pytest.mark.parametrize("status", [204, 302, 404, 503])
async def test_get_gives_other_statuses_as_they_are(status: int) -> None:
    body = b"" if status == 204 else b"away"
    raw = b"HTTP/1.1 %d Whatever\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body

    async def answer(decoder: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await decoder.readuntil(b"\r\n\r\n")
        writer.write(raw)
        await decoder.read()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with transport_to(f"http://127.0.0.1:{port}") as http:
            assert await http.get("/models", 5.0) == (status, body)


@pytest.mark.parametrize("path", ["/a b", "/a\r\nX: y", "/ä"])
async def test_a_path_cannot_carry_anything_else(path: str) -> None:
    async with transport_to("http://127.0.0.1:1") as http:
        with pytest.raises(ValueError, match="not a path"):
            await http.send(UpstreamRequest(path, b"", stream=False))
        with pytest.raises(ValueError, match="not a path"):
            await http.get(path, 1.0)


@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 64 * 1024 + 1, 5_000_000])
async def test_bodies_of_any_size(size: int) -> None:
    body = os.urandom(size)
    async with Upstream(whole(b"ok")) as upstream, transport_to(upstream) as http:
        assert await everything(await http.send(post(body))) == b"ok"
    assert upstream.requests[0].body == body


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
@pytest.mark.parametrize("as_body", [False, True])
async def test_framings(framing: Framing, as_body: bool) -> None:
    pieces = [b"one", b"two " * 1000, b"three"]
    script = streamed(*pieces, framing=framing, pause=0.001)
    async with Upstream(script) as upstream, transport_to(upstream) as http:
        answer = await http.send(post())
        assert answer.headers["content-TYPE"] == "text/event-stream"
        assert await (answer.body() if as_body else everything(answer)) == b"".join(pieces)
        assert await answer.read() == b""
        answer.close()


async def test_cut_at_every_byte() -> None:
    raw = CHUNKED + b"5;ext=1\r\nhello\r\n7\r\n, world\r\n0\r\nX-Trailer: yes\r\n\r\n"
    cuts = range(1, len(raw))
    scripts = [bytes_of(raw[:cut], raw[cut:]) for cut in cuts]
    async with Upstream(*scripts) as upstream, transport_to(upstream) as http:
        for _ in cuts:
            answer = await http.send(post())
            assert dict(answer.headers) == {
                "content-type": "text/event-stream",
                "transfer-encoding": "chunked",
            }
            assert await everything(answer) == b"hello, world"
        assert len(upstream.wires) == 1


async def test_byte_by_byte() -> None:
    raw = CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"
    script = bytes_of(*(bytes([byte]) for byte in raw))
    async with Upstream(script, script) as upstream, transport_to(upstream) as http:
        for _ in range(2):
            assert await everything(await http.send(post())) == b"hello"
        assert len(upstream.wires) == 1


async def test_what_arrived_together_is_read_together() -> None:
    raw = CHUNKED + b"1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n"
    async with Upstream(bytes_of(raw)) as upstream, transport_to(upstream) as http:
        answer = await http.send(post())
        assert await answer.read() == b"abc"
        assert await answer.read() == b""
        answer.close()


@pytest.mark.parametrize(
    "interim",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nContent-Type: text/plain\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\n\r\n" * 3,
    ],
)
async def test_interim_answers_are_skipped(interim: bytes) -> None:
    final = HEAD + b"Content-Length: 2\r\n\r\nok"
    scripts = [bytes_of(interim + final), bytes_of(interim, final)]
    async with Upstream(*scripts) as upstream, transport_to(upstream) as http:
        for _ in scripts:
            answer = await http.send(post())
            assert dict(answer.headers) == {"content-length": "2"}
            assert await everything(answer) == b"ok"
        assert len(upstream.wires) == 1


async def test_a_header_sent_twice() -> None:
    raw = HEAD + b"X-A: 1\r\nx-a: 2\r\nContent-Length: 0\r\n\r\n"
    async with Upstream(bytes_of(raw)) as upstream, transport_to(upstream) as http:
        answer = await http.send(post())
        assert answer.headers["X-A"] == "1, 2"
        assert await everything(answer) == b""


REFUSALS: list[tuple[int, bytes, type[UpstreamError], str]] = [
    (400, b'{"error":{"message":"bad field","param":"x"}}', UpstreamRejected, "bad field"),
    (404, b'{"error":{"message":"no such model"}}', UpstreamModelMissing, "no such model"),
    (429, b"slow down", UpstreamRateLimited, "limits its rate"),
    (401, b"", UpstreamFailure, "credentials"),
    (500, b"<html>", UpstreamFailure, "HTTP 500"),
    (503, b"", UpstreamUnavailable, "HTTP 503"),
    (504, b"", UpstreamTimeout, "HTTP 504"),
    (302, b"", UpstreamFailure, "HTTP 302"),
    (201, b"{}", UpstreamFailure, "HTTP 201"),
]


@pytest.mark.parametrize(("status", "body", "error", "words"), REFUSALS)
async def test_statuses(status: int, body: bytes, error: type[UpstreamError], words: str) -> None:
    headers = {"Retry-After": "7"} if status == 429 else {"Location": "/elsewhere"}
    script = whole(body, status, headers)
    async with Upstream(script, whole(b"ok")) as upstream, transport_to(upstream) as http:
        with pytest.raises(error, match=words) as caught:
            await http.send(post())
        assert type(caught.value) is error
        assert caught.value.headers == ({"Retry-After": "7"} if status == 429 else {})
        assert await everything(await http.send(post())) == b"ok"
        assert len(upstream.wires) == 1
        assert len(upstream.requests) == 2


@pytest.mark.parametrize("status", [204, 304])
async def test_statuses_without_a_body(status: int) -> None:
    raw = b"HTTP/1.1 %d Nothing\r\nContent-Length: 5\r\n\r\n" % status
    async with Upstream(bytes_of(raw)) as upstream, transport_to(upstream) as http:
        with pytest.raises(UpstreamFailure, match=f"HTTP {status}"):
            await http.send(post())


async def test_a_refusal_counts_even_when_its_words_are_lost() -> None:
    raw = b"HTTP/1.1 429 Slow\r\nRetry-After: 3\r\nContent-Length: 99\r\n\r\n{"

    async def broken(wire: Wire) -> None:
        wire.raw(raw)
        wire.close()

    brotli = whole(b"?", 400, {"Content-Encoding": "br"})
    endless = bytes_of(b"HTTP/1.1 500 No\r\nContent-Length: 9999999\r\n\r\n" + bytes(1_100_000))
    async with Upstream(broken, brotli, endless) as upstream, transport_to(upstream) as http:
        with pytest.raises(UpstreamRateLimited) as caught:
            await http.send(post())
        assert caught.value.headers == {"Retry-After": "3"}
        with pytest.raises(UpstreamRejected, match="HTTP 400"):
            await http.send(post())
        with pytest.raises(UpstreamFailure, match="HTTP 500"):
            await http.send(post())
        await upstream.wires[-1].gone.wait()


async def test_an_endpoint_that_repeats_the_key() -> None:
    script = whole(b'{"error":{"message":"wrong: %b"}}' % KEY.encode(), 400)
    async with Upstream(script) as upstream, transport_to(upstream) as http:
        with pytest.raises(UpstreamRejected, match=r"wrong: \[api_key\]"):
            await http.send(post())


async def test_a_compressed_refusal() -> None:
    body = gzip.compress(b'{"error":{"message":"too long"}}')
    script = whole(body, 400, {"Content-Encoding": "gzip"})
    async with Upstream(script) as upstream, transport_to(upstream) as http:
        with pytest.raises(UpstreamRejected, match="too long"):
            await http.send(post())


@pytest.mark.parametrize(
    "raw",
    [
        HEAD[:-7],
        HEAD + b"Content-Type: text/",
        HEAD + b"Content-Length: 10\r\n\r\n",
        HEAD + b"Content-Length: 10\r\n\r\nhalf",
        CHUNKED,
        CHUNKED + b"5\r\nhel",
        CHUNKED + b"5\r\nhello\r\n",
        CHUNKED + b"5\r\nhello\r\n0\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
)
async def test_broken_off(raw: bytes) -> None:
    async def script(wire: Wire) -> None:
        wire.raw(raw)
        wire.close()

    async with Upstream(script) as upstream, transport_to(upstream) as http:
        with pytest.raises(UpstreamFailure, match=r"'box' broke off its answer\.") as caught:
            await everything(await http.send(post()))
        assert caught.value.again
        assert len(upstream.requests) == 1


async def test_what_arrived_before_the_break_is_read_first() -> None:
    async def script(wire: Wire) -> None:
        wire.raw(CHUNKED + b"5\r\nhello\r\n")
        wire.close()

    async with Upstream(script) as upstream, transport_to(upstream) as http:
        answer = await http.send(post())
        await upstream.wires[0].gone.wait()
        await asyncio.sleep(0.01)
        assert await answer.read() == b"hello"
        with pytest.raises(UpstreamFailure, match="broke off"):
            await answer.read()
        answer.close()


NONSENSE = {
    "html": b"<html>no</html>",
    "lf only": b"HTTP/1.1 200 OK\nContent-Length: 1\n\na",
    "both lengths": HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\na",
    "negative length": HEAD + b"Content-Length: -1\r\n\r\n",
    "chunk size": CHUNKED + b"zz\r\n",
    "chunk end": CHUNKED + b"1\r\naa\r\n",
    "chunk overflow": CHUNKED + b"fffffffffffffffff\r\n",
    "transfer-encoding": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "not chunked": HEAD + b"Transfer-Encoding: gzip\r\n\r\n",
    "switching": b"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nabc",
    "status": b"HTTP/1.1 099 What\r\nContent-Length: 0\r\n\r\n",
    "blank in name": HEAD + b"Content-Length : 0\r\n\r\n",
    "folded": HEAD + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("raw", NONSENSE.values(), ids=NONSENSE)
async def test_nonsense(raw: bytes) -> None:
    async with Upstream(bytes_of(raw)) as upstream, transport_to(upstream) as http:
        with pytest.raises(UpstreamFailure, match="Endpoint 'box'") as caught:
            await everything(await http.send(post()))
        assert not caught.value.again
        assert "broke off" not in caught.value.message
        await upstream.wires[0].gone.wait()


LINE = b"X-Filler: " + b"x" * 1000 + b"\r\n"
ENDLESS = {
    "many headers": (HEAD, LINE),
    "one header": (HEAD + b"X: ", b"x" * 1000),
    "header name": (HEAD, b"x" * 1000),
    "reason": (b"HTTP/1.1 200 ", b"x" * 1000),
    "interim": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 40),
    "empty lines": (b"", b"\r\n" * 500),
    "extension": (CHUNKED + b"1;", b"x" * 1000),
    "trailers": (CHUNKED + b"0\r\n", LINE),
}


@pytest.mark.parametrize(("begin", "more"), ENDLESS.values(), ids=ENDLESS)
async def test_endless_overhead(begin: bytes, more: bytes) -> None:
    async def script(wire: Wire) -> None:
        wire.raw(begin)
        while not wire.gone.is_set():
            wire.raw(more)
            assert wire.written < 1_000_000
            await asyncio.sleep(0)

    async with Upstream(script) as upstream, transport_to(upstream) as http:
        with pytest.raises(UpstreamFailure, match=f"more than {MAX_HEAD_BYTES} bytes of headers"):
            await everything(await http.send(post()))


async def test_too_large_a_head_in_one_piece() -> None:
    script = bytes_of(HEAD + LINE * 70 + b"Content-Length: 0\r\n\r\n")
    fine = bytes_of(HEAD + LINE * 50 + b"Content-Length: 0\r\n\r\n")
    async with Upstream(script, fine) as upstream, transport_to(upstream) as http:
        with pytest.raises(UpstreamFailure, match="bytes of headers"):
            await http.send(post())
        assert await everything(await http.send(post())) == b""


async def test_much_framing_is_no_overhead() -> None:
    """Servers that write the size of a chunk on its own make reads without content."""

    async def script(wire: Wire) -> None:
        wire.raw(CHUNKED)
        for _ in range(30):
            for part in (b"1;" + b"x" * 4000 + b"\r\n", b"a\r\n"):
                wire.raw(part)
                for _ in range(4):
                    await asyncio.sleep(0)
        wire.raw(b"0\r\n\r\n")

    async with Upstream(script) as upstream, transport_to(upstream) as http:
        assert await everything(await http.send(post())) == b"a" * 30
        assert upstream.wires[0].written > MAX_HEAD_BYTES
