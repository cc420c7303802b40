"""What the transport does, seen by a client of the router: compression, TLS, kept connections."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import zlib
from pathlib import Path
from typing import Any

import pytest
import trustme

from router.settings.schema import Dialect
from router.upstream.http1 import HttpTransport
from tests.support.client import Client
from tests.support.router import endpoint, routing
from tests.support.speech import DIALECTS, SPEECH
from tests.support.sse import check_responses_stream
from tests.support.upstream import Script, Upstream, Wire, silent, streamed, whole
from tests.support.waiting import until


def packed(coding: str, pieces: tuple[bytes, ...]) -> list[bytes]:
    """The pieces compressed, each flushed, so that each can be read when it arrives."""
    bits = {"gzip": 31, "deflate": 15, "raw deflate": -15}[coding]
    packer = zlib.compressobj(wbits=bits)
    flushed = [packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    return [*flushed, packer.flush()]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("coding", ["gzip", "deflate", "raw deflate"])
async def test_compressed_answers(dialect: Dialect, coding: str) -> None:
    """Nobody asks for compression; some do it all the same."""
    speech = SPEECH[dialect]
    headers = {"Content-Encoding": coding.removeprefix("raw ")}
    async with (
        Upstream(
            streamed(*packed(coding, speech.pieces), kind=speech.kind, headers=headers),
            whole(b"".join(packed(coding, (speech.whole,))), headers=headers),
        ) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(stream=True)
        assert check_responses_stream(reply.events)["output_text"] == speech.text
        reply = await router.ask()
        assert reply.json["output_text"] == speech.text
        asked_for = upstream.requests[0].headers["accept-encoding"]
        assert asked_for == "identity"


async def test_compressed_events_are_passed_on_as_they_come() -> None:
    speech = SPEECH["chat"]
    go_on = asyncio.Event()
    first, *rest = packed("gzip", speech.pieces)

    async def script(wire: Wire) -> None:
        wire.head(200, {"Content-Type": speech.kind, "Content-Encoding": "gzip"})
        wire.piece(first)
        wire.piece(rest[0])
        await go_on.wait()
        for piece in rest[1:]:
            wire.piece(piece)
        wire.end()

    async with (
        Upstream(script) as upstream,
        routing(endpoint(upstream, "chat", timeouts={"idle": 30})) as router,
        router.request(stream=True) as response,
    ):
        body = b""
        while b"Hello" not in body:
            body += await response.content.readany()
        go_on.set()
        assert b"response.completed" in await response.read()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_broken_compression(dialect: Dialect) -> None:
    speech = SPEECH[dialect]
    good = gzip.compress(speech.whole)
    async with (
        Upstream(
            *[
                whole(body, headers={"Content-Encoding": "gzip"})
                for body in (b"not compressed at all", good[: len(good) // 2], b"")
            ]
        ) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        for _ in range(3):
            reply = await router.ask()
            assert (reply.status, reply.error["code"]) == (502, "upstream_error")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Our own certificate authority."""
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> str:
    """Its certificate, as it is named in ``tls.ca_file``."""
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return str(path)


def certified(authority: trustme.CA, name: str = "127.0.0.1") -> ssl.SSLContext:
    """A server's side of TLS, with a certificate for ``name``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


async def over_tls(context: ssl.SSLContext, tls: dict[str, Any]) -> tuple[int, str]:
    """The status of an answer and of a stream over TLS, and the words of an error."""
    speech = SPEECH["chat"]
    scripts = [whole(speech.whole), streamed(*speech.pieces, kind=speech.kind)]
    async with (
        Upstream(*scripts, tls=context) as upstream,
        routing(endpoint(upstream, "chat", tls=tls)) as router,
    ):
        reply = await router.ask()
        again = await router.ask(stream=True)
        assert again.status == reply.status
        if reply.status == 200:
            assert check_responses_stream(again.events)["output_text"] == speech.text
            return 200, reply.json["output_text"]
        return reply.status, reply.error["message"]


async def test_tls_with_an_authority_of_ones_own(authority: trustme.CA, ca_file: str) -> None:
    status, text = await over_tls(certified(authority), {"ca_file": ca_file})
    assert (status, text) == (200, SPEECH["chat"].text)


async def test_tls_of_an_unknown_authority(ca_file: str) -> None:
    stranger = trustme.CA()
    for tls in ({}, {"ca_file": ca_file}):
        status, message = await over_tls(certified(stranger), tls)
        assert status == 503
        assert "'one'" in message
        assert "certificate" in message


async def test_tls_of_another_host(authority: trustme.CA, ca_file: str) -> None:
    status, message = await over_tls(
        certified(authority, "elsewhere.example"), {"ca_file": ca_file}
    )
    assert status == 503
    assert "certificate" in message


async def test_tls_unverified() -> None:
    status, text = await over_tls(certified(trustme.CA()), {"verify": False})
    assert (status, text) == (200, SPEECH["chat"].text)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("moment", [{"closes_after": 1}, {"closes_after": 3}, {"drops_request": 2}])
async def test_kept_connections_closed_at_the_wrong_moment(
    stream: bool, moment: dict[str, int]
) -> None:
    """The client never sees it, nor does it count as an attempt."""
    speech = SPEECH["chat"]
    good = streamed(*speech.pieces, kind=speech.kind) if stream else whole(speech.whole)
    async with (
        Upstream(default=good, **moment) as upstream,  # type: ignore[arg-type]
        routing(endpoint(upstream, "chat")) as router,
    ):
        for _ in range(60):
            reply = await router.ask(stream=stream)
            assert reply.status == 200
            assert reply.headers["X-Pointsman-Attempts"] == "1"
            if stream:
                assert check_responses_stream(reply.events)["status"] == "completed"
        for _ in range(5):
            replies = await asyncio.gather(*(router.ask(stream=stream) for _ in range(16)))
            assert {reply.status for reply in replies} == {200}
            assert {reply.headers["X-Pointsman-Attempts"] for reply in replies} == {"1"}
        assert await router.metric("pointsman_upstream_attempts_total", result="ok") == [140.0]
        if "drops_request" in moment:
            assert upstream.dropped > 20


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_streams_use_one_connection_after_another(dialect: Dialect) -> None:
    """Also when the end of the body comes a little later than the end of the answer."""
    speech = SPEECH[dialect]

    async def late(wire: Wire) -> None:
        await asyncio.sleep(0.02)
        wire.end()

    scripts: list[Script] = [
        streamed(*speech.pieces, kind=speech.kind),
        streamed(*speech.pieces, kind=speech.kind, then=late),
        streamed(*speech.pieces, kind=speech.kind, then=late),
        whole(speech.whole),
        whole(b'{"error": "too long"}', 400),
        streamed(*speech.pieces, kind=speech.kind),
    ]
    async with (
        Upstream(*scripts) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        for stream in (True, True, True, False, False, True):
            await router.ask(stream=stream)
            await router.idle()
        assert len(upstream.requests) == 6
        assert len({id(request.wire) for request in upstream.requests}) == 1


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_answer_that_goes_on_after_its_end_is_cut_off(dialect: Dialect) -> None:
    speech = SPEECH[dialect]

    async def never(wire: Wire) -> None:
        while not wire.gone.is_set():
            wire.piece(b": more\n\n")
            await asyncio.sleep(0.01)

    async with (
        Upstream(streamed(*speech.pieces, kind=speech.kind, then=never)) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(stream=True)
        assert check_responses_stream(reply.events)["output_text"] == speech.text
        await until(upstream.requests[0].wire.gone.is_set)
        await router.idle()


async def test_clients_that_leave_while_a_connection_is_made() -> None:
    """At whatever moment that is, the connection is not kept in mind for ever."""
    async with (
        Upstream(default=silent) as upstream,
        routing(endpoint(upstream, "chat", max_in_flight=1000)) as router,
    ):
        for turns in range(40):
            client = await Client.open(router.url)
            client.ask(stream=True)
            for _ in range(turns):
                await asyncio.sleep(0)
            client.leave("reset" if turns % 2 else "close")
        await router.idle()
        transport = router.deployment().endpoint.transport
        assert isinstance(transport, HttpTransport)
        pool = transport._pool
        assert pool is not None
        await until(lambda: not pool._open)
        await until(lambda: not upstream.open_wires)
