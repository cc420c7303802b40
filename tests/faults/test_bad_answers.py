"""Answers that are not what they should be."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from router.settings.schema import Dialect
from tests.support.router import endpoint, routing
from tests.support.speech import SPEECH, Speech
from tests.support.sse import check_responses_stream, text_of
from tests.support.upstream import Script, Upstream, Wire, silent, streamed, whole

HTML = b"<!doctype html><html><body><h1>It works!</h1></body></html>"


def raw(data: bytes) -> Script:
    """These very bytes, then the end of the connection."""

    async def script(wire: Wire) -> None:
        wire.raw(data)
        await asyncio.sleep(0.02)
        wire.close()

    return script


@pytest.mark.parametrize(
    "script",
    [
        raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc garbage \r\n\r\n"),
        raw(b"HTTP/9.9 OK\r\n\r\n"),
        raw(b"HTTP/1.1 200 OK\r\nContent-Le"),
        raw(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000 + b"\r\n\r\n"),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: minus\r\n\r\n{}"),
        whole(HTML, kind="text/html"),
        whole(HTML, kind="application/json"),
        whole(b""),
        whole(b"", kind="text/event-stream"),
        whole(b"null"),
        whole(b"[]"),
        whole(b"{}"),
        whole(b'{"choices": [], "output": null, "message": null}'),
        whole(b"\xff\xfe\xfd"),
        streamed(b"\xff\xfe\xfd\n\n"),
        streamed(b"data: \xff\xfe\n\n\xff\n"),
        streamed(b"data: {broken\n\n{broken\n"),
        streamed(b"data: 17\n\n17\n"),
        streamed(b'data: {"choices": 17, "type": 17}\n\n{"message": 17, "done": 17}\n'),
        streamed(b""),
        streamed(b": only comments\n\n\n\n"),
    ],
)
async def test_nonsense(dialect: Dialect, stream: bool, script: Script) -> None:
    async with (
        Upstream(default=script) as upstream,
        routing(endpoint(upstream, dialect, timeouts={"idle": 0.1})) as router,
    ):
        reply = await router.ask(stream=stream)
        assert reply.status in (502, 504), reply.body
        assert reply.error["type"] == "server_error"
        assert "Traceback" not in reply.body.decode()


async def test_nonsense_in_mid_stream(dialect: Dialect, speech: Speech) -> None:
    broken = b"{broken\n" if dialect == "ollama" else b"data: {broken\n\n"
    said = (speech.opening, speech.words[0], broken, *speech.words[1:], speech.closing)
    async with (
        Upstream(streamed(*said, kind=speech.kind)) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(stream=True)
        final = check_responses_stream(reply.events)
        assert (final["status"], final["output_text"]) == ("failed", "Hello")


async def test_a_broken_chunk_in_mid_stream(dialect: Dialect, speech: Speech) -> None:
    async def broken(wire: Wire) -> None:
        wire.raw(b"not a chunk size\r\n")
        await wire.gone.wait()

    said = (speech.opening, speech.words[0])
    async with (
        Upstream(streamed(*said, kind=speech.kind, pause=0.01, then=broken)) as upstream,
        routing(endpoint(upstream, dialect, timeouts={"idle": 0.1})) as router,
    ):
        reply = await router.ask(stream=True)
        final = check_responses_stream(reply.events)
        assert (final["status"], final["output_text"]) == ("failed", "Hello")


async def test_an_error_frame_before_output(dialect: Dialect, speech: Speech) -> None:
    async with (
        Upstream(streamed(speech.opening, speech.error, kind=speech.kind)) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(stream=True)
        assert (reply.status, reply.error["code"]) == (502, "upstream_error")
        assert reply.error["message"] == "the GPU is on fire"
        assert len(upstream.requests) == 1


async def test_an_error_frame_in_mid_stream(dialect: Dialect, speech: Speech) -> None:
    said = (speech.opening, *speech.words[:2], speech.error)
    async with (
        Upstream(streamed(*said, kind=speech.kind)) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(stream=True)
        final = check_responses_stream(reply.events)
        assert (final["status"], final["output_text"]) == ("failed", "Hello, ")
        assert final["error"]["message"] == "the GPU is on fire"


async def test_an_error_object_with_status_200(dialect: Dialect, stream: bool) -> None:
    async with (
        Upstream(whole(b'{"error": {"message": "the GPU is on fire"}}')) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(stream=stream)
        assert (reply.status, reply.error["code"]) == (502, "upstream_error")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
async def test_split_anywhere(dialect: Dialect, speech: Speech, size: int) -> None:
    data = b"".join(speech.pieces)
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    async with (
        Upstream(streamed(*pieces, kind=speech.kind)) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(stream=True)
        final = check_responses_stream(reply.events)
        assert (final["status"], final["output_text"]) == ("completed", speech.text)
        assert text_of(reply.events) == speech.text


async def test_split_inside_a_character(dialect: Dialect, speech: Speech) -> None:
    data = b"".join(speech.pieces)
    cut = data.index("ö".encode()) + 1
    async with (
        Upstream(streamed(data[:cut], data[cut:], kind=speech.kind, pause=0.03)) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(stream=True)
        assert check_responses_stream(reply.events)["output_text"] == speech.text


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
async def test_truncated_anywhere(dialect: Dialect, speech: Speech, framing: str) -> None:
    """However much of a stream is missing, the client learns that something is."""
    data = b"".join(speech.pieces)
    cuts = range(0, len(data) - len(speech.closing), 97)
    scripts = [streamed(data[:cut], kind=speech.kind, framing=framing) for cut in cuts]  # type: ignore[arg-type]
    async with (
        Upstream(*scripts) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        for _ in cuts:
            reply = await router.ask(stream=True)
            if reply.status == 200:
                assert check_responses_stream(reply.events)["status"] == "failed"
            else:
                assert (reply.status, reply.error["code"]) == (502, "upstream_error")


async def test_a_truncated_body(dialect: Dialect, speech: Speech) -> None:
    scripts = [whole(speech.whole[:cut]) for cut in range(0, len(speech.whole) - 2, 41)]
    async with (
        Upstream(*scripts) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        for _ in scripts:
            reply = await router.ask()
            assert (reply.status, reply.error["code"]) == (502, "upstream_error")


@pytest.mark.parametrize("good", ["chat", "ollama"])
async def test_a_whole_answer_where_a_stream_was_asked_for(good: Dialect) -> None:
    speech = SPEECH[good]
    async with (
        Upstream(whole(speech.whole)) as upstream,
        routing(endpoint(upstream, good)) as router,
    ):
        reply = await router.ask(stream=True)
        final = check_responses_stream(reply.events)
        assert (final["status"], final["output_text"]) == ("completed", speech.text)


async def test_a_body_past_the_limit(monkeypatch: pytest.MonkeyPatch, dialect: Dialect) -> None:
    monkeypatch.setattr("router.upstream.answer.MAX_BODY_BYTES", 100_000)
    monkeypatch.setattr("router.upstream.answer.MAX_BODY_BYTES", 100_000, raising=False)
    async with (
        Upstream(whole(orjson.dumps({"output": ["x" * 200_000]}))) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask()
        assert (reply.status, reply.error["code"]) == (502, "upstream_error")
        assert "100000 bytes" in reply.error["message"]


async def test_chat_completions_truncated() -> None:
    speech = SPEECH["chat"]
    async with (
        Upstream(
            streamed(speech.opening, speech.words[0]),
            streamed(*speech.pieces[:-1], speech.closing.removesuffix(b"data: [DONE]\n\n")),
            whole(b"{}"),
            whole(HTML),
        ) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        reply = await router.ask(stream=True, chat=True)
        assert reply.events[-1].data is not None
        assert "error" in reply.events[-1].data
        reply = await router.ask(stream=True, chat=True)
        assert reply.events[-1].raw == b"[DONE]", "only the marker was missing"
        for _ in range(2):
            reply = await router.ask(chat=True)
            assert (reply.status, reply.error["code"]) == (502, "upstream_error")


async def test_what_is_held_before_output_is_bounded() -> None:
    """An endpoint that goes on and on without ever beginning is not buffered for ever."""
    pondering = b'data: {"choices": [], "pondering": true}\n\n'
    async with (
        Upstream(streamed(*[pondering * 100] * 20, then=silent)) as upstream,
        routing(endpoint(upstream, "chat", timeouts={"idle": 0.1})) as router,
    ):
        reply = await router.ask(stream=True, chat=True)
        assert reply.status == 200
        *passed_on, last = reply.events
        assert len(passed_on) == 2000
        assert last.data is not None
        assert last.data["error"]["code"] == "upstream_timeout"
