"""Whole answers that are asked for as streams: what happens when the client leaves, when something
breaks, and which of them are not asked for so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from openai import AsyncOpenAI

from router.core.usage_record import Provenance, Tokens
from router.settings.schema import Dialect
from tests.support.pair import by, pair, single
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH, Speech
from tests.support.upstream import (
    Script,
    Upstream,
    Wire,
    paced,
    reset_now,
    silent,
    streamed,
    whole,
)
from tests.support.waiting import until

ON: dict[str, Any] = {"stream_whole_answers": True}
SOME = 5
"""Tokens after which nobody wants more."""


class Engine:
    """Writes tokens until its connection is closed, which it notices only while it streams.

    ``written`` counts them. Asked for a whole answer, it is never done with it.
    """

    def __init__(self) -> None:
        self.upstream = Upstream(default=self._answer)
        self.written = 0
        self.stopped = asyncio.Event()

    async def _answer(self, wire: Wire) -> None:
        request = wire.request
        chat = request.path.endswith("/chat/completions")
        speech = next(
            s for d, s in SPEECH.items() if s.path == request.path or (chat and d == "chat")
        )
        streams = bool(request.json["stream"])
        if streams:
            wire.head(200, {"Content-Type": speech.kind})
            wire.piece(speech.opening)
            wire.piece(speech.words[0])
        while not (streams and wire.gone.is_set()):
            if streams:
                wire.piece(speech.words[1])
            self.written += 1
            await asyncio.sleep(0.002)
        self.stopped.set()


@contextlib.asynccontextmanager
async def engine_behind(dialect: Dialect) -> AsyncIterator[tuple[Router, Engine, AsyncOpenAI]]:
    """An engine behind a router, and OpenAI's client in front of it."""
    engine = Engine()
    async with (
        engine.upstream as upstream,
        routing(endpoint(upstream, dialect, **ON)) as router,
        AsyncOpenAI(base_url=f"{router.url}/v1", api_key="any", max_retries=0) as client,
    ):
        yield router, engine, client


async def given_up(engine: Engine, asking: asyncio.Task[Any]) -> None:
    """Have the client leave in the midst of the answer, and wait until the engine stops."""
    await until(lambda: engine.written >= SOME or asking.done())
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    async with asyncio.timeout(60):
        await engine.stopped.wait()


async def test_the_endpoint_stops_when_the_client_of_a_whole_response_leaves(
    dialect: Dialect,
) -> None:
    async with engine_behind(dialect) as (router, engine, client):
        asking = asyncio.create_task(client.responses.create(model="m", input="hi"))
        await given_up(engine, asking)
        await router.idle()
        [row] = router.rows
        assert (row.outcome, row.stream, row.provenance) == (
            "cancelled",
            False,
            Provenance.ESTIMATED,
        )
        assert row.tokens.output > 0
        assert row.response is not None
        kept = await client.responses.retrieve(row.response)
        assert kept.status == "cancelled"
        assert kept.output_text.startswith("Hello, ")
    [request] = engine.upstream.requests
    assert request.json["stream"] is True


async def test_the_endpoint_stops_when_the_client_of_a_whole_chat_leaves(dialect: Dialect) -> None:
    async with engine_behind(dialect) as (router, engine, client):
        asking = asyncio.create_task(
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        )
        await given_up(engine, asking)
        await router.idle()
        [row] = router.rows
        assert (row.outcome, row.stream) == ("cancelled", False)
        assert row.tokens.output > 0


def failing(speech: Speech) -> dict[str, Script]:
    """What another endpoint takes over from, although the answer had begun."""
    begun = (speech.opening, speech.words[0])
    kind = speech.kind
    return {
        "status": whole(b"{}", 500),
        "error at once": streamed(speech.error, kind=kind),
        "error": streamed(*begun, speech.error, kind=kind),
        "cut": streamed(*begun, kind=kind),
        "reset": streamed(*begun, kind=kind, then=reset_now),
        "nonsense": streamed(*begun, b"data: {\n\n{\n", kind=kind),
    }


@pytest.mark.parametrize("case", failing(SPEECH["chat"]))
@pytest.mark.parametrize("chat", [False, True], ids=["responses", "chat"])
async def test_another_endpoint_takes_over_in_the_midst_of_an_answer(
    dialect: Dialect, case: str, chat: bool
) -> None:
    spoken: Dialect = "chat" if chat and dialect == "responses" else dialect
    script = failing(SPEECH[spoken])[case]
    async with pair(script, dialect=dialect, fields=ON) as (router, one, two):
        two.default = whole(SPEECH[spoken].whole)
        reply = await router.ask(chat=chat)
        assert (by(reply), reply.headers["X-Pointsman-Attempts"]) == ("two", "2")
        assert SPEECH[dialect].text in reply.body.decode()
        assert (one.requests[0].json["stream"], two.requests[0].json.get("stream", False)) == (
            True,
            False,
        )


async def test_a_response_that_failed_in_the_midst_goes_to_another_endpoint() -> None:
    speech = SPEECH["responses"]
    failed = {"status": "failed", "error": {"code": "server_error", "message": "on fire"}}
    event = {"type": "response.failed", "response": {"id": "r", "output": [], **failed}}
    last = b"data: %b\n\n" % orjson.dumps(event)
    script = streamed(speech.opening, speech.words[0], last)
    async with pair(script, dialect="responses", fields=ON) as (router, _, _two):
        assert by(await router.ask()) == "two"


async def test_what_fails_is_an_http_error(dialect: Dialect, speech: Speech) -> None:
    script = streamed(speech.opening, speech.words[0], speech.error, kind=speech.kind)
    async with single(script, dialect=dialect, **ON) as (router, _):
        reply = await router.ask()
        assert reply.status == 502
        assert "the GPU is on fire" in reply.error["message"]


async def test_a_refusal_in_the_stream_keeps_its_status() -> None:
    refusal = {
        "message": "no such voice",
        "type": "invalid_request_error",
        "code": "bad",
        "param": "x",
    }
    script = streamed(b"data: %b\n\n" % orjson.dumps({"error": refusal}))
    async with single(script, **ON) as (router, upstream):
        for chat in (False, True):
            upstream.scripts.append(script)
            reply = await router.ask(chat=chat)
            assert (reply.status, reply.error["code"]) == (400, "bad")


async def test_the_first_byte_is_awaited_as_that_of_a_whole_answer(
    dialect: Dialect, speech: Speech
) -> None:
    late = paced(streamed(*speech.pieces, kind=speech.kind), 0.2)
    async with single(late, dialect=dialect, timeouts={"first_byte": 0.05}, **ON) as (router, _):
        reply = await router.ask()
        assert (reply.status, reply.json["output_text"]) == (200, speech.text)


async def test_silence_in_the_midst_ends_it(dialect: Dialect, speech: Speech) -> None:
    quiet = streamed(speech.opening, speech.words[0], kind=speech.kind, then=silent)
    async with single(quiet, dialect=dialect, timeouts={"idle": 0.1}, **ON) as (router, upstream):
        reply = await router.ask()
        assert reply.status == 504
        assert "timeouts.idle" in reply.error["message"]
        await until(upstream.requests[0].wire.gone.is_set)


async def test_it_is_booked_and_its_connection_is_kept(dialect: Dialect, speech: Speech) -> None:
    good = streamed(*speech.pieces, kind=speech.kind)
    async with single(good, good, dialect=dialect, **ON) as (router, upstream):
        for _ in range(2):
            assert (await router.ask()).json["output_text"] == speech.text
        assert [(row.tokens, row.outcome, row.provenance) for row in router.rows] == [
            (Tokens(7, 0, 4, 0), "ok", Provenance.REPORTED)
        ] * 2
        first, second = upstream.requests
        assert first.wire is second.wire


async def test_an_endpoint_that_streams_nothing_is_understood(
    dialect: Dialect, speech: Speech
) -> None:
    async with single(dialect=dialect, **ON) as (router, _):
        assert (await router.ask()).json["output_text"] == speech.text


async def test_a_large_answer(dialect: Dialect, speech: Speech) -> None:
    flood = [speech.words[1] * 2000] * 20
    script = streamed(speech.opening, speech.words[0], *flood, speech.closing, kind=speech.kind)
    async with single(script, dialect=dialect, **ON) as (router, _):
        reply = await router.ask()
        assert reply.status == 200
        if dialect != "responses":  # whose last event says it all again, and here less
            assert reply.json["output_text"] == "Hello" + ", " * 40_000


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"n": 2}),
        ("/v1/chat/completions", {"modalities": ["text", "audio"], "audio": {"format": "wav"}}),
        ("/v1/completions", {"prompt": ["one", "two"]}),
        ("/v1/completions", {"prompt": "one", "best_of": 2}),
    ],
)
async def test_what_cannot_be_put_together_is_asked_for_as_a_whole(
    path: str, fields: dict[str, Any]
) -> None:
    choice = {"index": 0, "text": "", "message": {"content": "hi"}, "finish_reason": "stop"}
    answer = whole(orjson.dumps({"model": "m", "choices": [choice]}))
    async with single(answer, **ON) as (router, upstream):
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
        async with router.http.post(router.url + path, json=body) as response:
            assert response.status == 200, await response.text()
        assert not upstream.requests[0].json.get("stream")
        assert "stream_options" not in upstream.requests[0].json


@pytest.mark.parametrize("chat", [False, True], ids=["responses", "chat"])
@pytest.mark.parametrize("how", ["configured", "learned"])
async def test_without_token_counts_in_streams_it_is_asked_for_as_a_whole(
    how: str, chat: bool
) -> None:
    refused = whole(b'{"error": {"message": "Unknown parameter: \'stream_options\'."}}', 400)
    scripts = [refused] if how == "learned" else []
    known: dict[str, Any] = {}
    if how == "configured":
        known["capabilities"] = {"m": {"stream_usage": False}}
    async with single(*scripts, **ON, **known) as (router, upstream):
        reply = await router.ask(chat=chat)
        assert reply.status == 200
        assert reply.json["usage"]["total_tokens"] == 11
        assert [request.json.get("stream", False) for request in upstream.requests] == [
            *[True] * len(scripts),
            False,
        ]


async def test_without_the_setting_whole_answers_are_asked_for(dialect: Dialect) -> None:
    async with single(dialect=dialect) as (router, upstream):
        assert (await router.ask()).status == 200
        assert not upstream.requests[0].json.get("stream")
