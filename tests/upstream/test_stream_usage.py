"""When a chat endpoint is asked for the token counts of a stream, and what is learned of that."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.core.exchange import Exchange
from router.core.upstream import UpstreamCall
from router.errors import UpstreamRejected
from router.settings.schema import EndpointSettings
from router.upstream.chat import ChatAdapter
from tests.support.exchanges import an_exchange
from tests.support.reading import make_builder
from tests.support.router import endpoint, routing
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream
from tests.support.upstream import Upstream, Wire, streamed, whole

REFUSAL = "Unknown parameter: 'stream_options'."


def adapter(**capabilities: dict[str, Any]) -> ChatAdapter:
    return ChatAdapter(
        EndpointSettings.model_validate(
            {
                "name": "one",
                "url": "http://localhost/v1",
                "dialect": "chat",
                "capabilities": capabilities,
            }
        )
    )


def exchange(*, stream: bool = True, **body: Any) -> Exchange:
    made = an_exchange()
    made.body = {"model": "m", "input": "x", **body}
    made.stream = stream
    return made


def respond(subject: ChatAdapter, model: str = "m", **fields: Any) -> UpstreamCall:
    return subject.respond(exchange(**fields), model, make_builder())


def chat(subject: ChatAdapter, model: str = "m", **fields: Any) -> UpstreamCall:
    return subject.chat(exchange(messages=[], **fields), model)


def options(call: UpstreamCall) -> Any:
    return orjson.loads(call.request.body).get("stream_options", "left out")


def teach(call: UpstreamCall, message: str = REFUSAL, param: str | None = None) -> bool:
    assert call.retry is not None
    return call.retry(UpstreamRejected(message, param=param))


@pytest.mark.parametrize("make", [respond, chat])
def test_a_stream_is_asked_for_its_usage(make: Any) -> None:
    call = make(adapter(m={"tools": False}))
    assert options(call) == {"include_usage": True}
    assert call.dropped == ()
    assert call.retry is not None
    call = make(adapter(), stream=False)
    assert (options(call), call.retry) == ("left out", None)


@pytest.mark.parametrize("make", [respond, chat])
def test_not_where_it_is_configured_that_there_is_none(make: Any) -> None:
    subject = adapter(**{"*": {"stream_usage": False}, "good*": {"stream_usage": True}})
    call = make(subject, "bad")
    assert (options(call), call.dropped, call.retry) == ("left out", (), None)
    assert options(make(subject, "good-1")) == {"include_usage": True}


@pytest.mark.parametrize("make", [respond, chat])
def test_a_refusal_is_learned_for_the_model(make: Any) -> None:
    subject = adapter()
    calls = [make(subject), make(subject)]
    assert [teach(call) for call in calls] == [True, True]
    for again in (respond(subject), chat(subject)):
        assert (options(again), again.dropped, again.retry) == ("left out", (), None)
    assert options(make(subject, "another")) == {"include_usage": True}
    assert options(make(adapter())) == {"include_usage": True}


def test_a_client_is_told_that_its_wish_was_not_sent() -> None:
    subject = adapter(m={"stream_usage": False})
    call = chat(subject, stream_options={"include_usage": True})
    assert (options(call), call.dropped) == ("left out", ("stream_options",))
    call = chat(subject, stream_options={"include_usage": False})
    assert (options(call), call.dropped) == ("left out", ())
    # Without a stream they are the client's own affair.
    call = chat(subject, stream=False, stream_options={"include_usage": True})
    assert (options(call), call.dropped) == ({"include_usage": True}, ())


def test_other_options_of_the_client_may_be_what_is_refused() -> None:
    subject = adapter()
    call = chat(subject, stream_options={"include_usage": True, "bogus": 1})
    assert (options(call), call.retry) == ({"include_usage": True, "bogus": 1}, None)
    for given in (None, {}, {"include_usage": True}, {"include_usage": False}):
        assert chat(subject, stream_options=given).retry is not None


def test_what_is_learned_is_bounded() -> None:
    subject = adapter()
    assert all(teach(respond(subject, f"m{number}")) for number in range(3000))
    known = [n for n in range(3000) if options(respond(subject, f"m{n}")) == "left out"]
    assert 100 < len(known) < 2000
    assert known[-1] == 2999


FASTAPI = (
    '[{"type":"extra_forbidden","loc":["body","stream_options","include_usage"],'
    '"msg":"Extra inputs are not permitted","input":true}]'
)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (REFUSAL, None),
        (REFUSAL, "stream_options"),
        ("Unrecognized request argument supplied: stream_options", None),
        ("stream_options is not supported", ""),
        ("Unsupported parameter: 'stream_options.include_usage'", "stream_options.include_usage"),
        (FASTAPI, None),
        (
            "[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs "
            "are not permitted', 'input': {'include_usage': True}}]",
            None,
        ),
    ],
)
def test_what_is_a_refusal(message: str, param: str | None) -> None:
    assert teach(respond(adapter()), message, param)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("The 'stream_options' parameter is only allowed when 'stream' is enabled.", None),
        ("Unknown parameter: 'foo'.", None),
        ("Unknown parameter: 'foo'.", "stream_options"),
        (REFUSAL, "messages"),
        ("tools are not supported in streams", "tools"),
        (
            '[{"type":"missing","loc":["body","prompt"],"msg":"Field required","input":'
            '{"stream":true,"stream_options":{"include_usage":true}}}]',
            None,
        ),
    ],
)
def test_what_is_none(message: str, param: str | None) -> None:
    """A model's token counts are not given up for the fault of one request."""
    subject = adapter()
    assert not teach(respond(subject), message, param)
    assert options(respond(subject)) == {"include_usage": True}


async def test_a_refused_stream_is_asked_for_once_more_and_its_usage_estimated() -> None:
    speech = SPEECH["chat"]
    usage = speech.closing.index(b'data: {"id"', 1)
    without = speech.closing[:usage] + b"data: [DONE]\n\n"

    async def strict(wire: Wire) -> None:
        if "stream_options" in upstream.requests[-1].json:
            await whole(orjson.dumps({"error": {"message": REFUSAL}}), 400)(wire)
        else:
            await streamed(speech.opening, *speech.words, without, kind=speech.kind)(wire)

    async with (
        Upstream(default=strict) as upstream,
        routing(endpoint(upstream, "chat")) as router,
    ):
        for asked in (2, 3):
            reply = await router.ask(stream=True)
            final = check_responses_stream(reply.events)
            assert final["output_text"] == speech.text
            assert final["usage"]["estimated"]
            assert reply.headers["X-Pointsman-Attempts"] == "1"
            assert len(upstream.requests) == asked
        reply = await router.ask(stream=True, chat=True, stream_options={"include_usage": True})
        assert reply.status == 200
        assert reply.headers["X-Pointsman-Dropped-Parameters"] == "stream_options"
        assert b'"usage"' not in reply.body
        assert len(upstream.requests) == 4
