"""Responses as messages, and messages as history, over both databases and every dialect."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from router.settings.schema import Dialect
from tests.support.calling import answering, call, finished
from tests.support.response_messages import message, told
from tests.support.response_messages import said as answered
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream
from tests.support.upstream import Upstream, streamed

HELLO = "Hello, wörld!"
ASKS: dict[str, Any] = {"enable_response_messages": True}
SYSTEM = message("system", "")
HI = message("user", "hi")
OPENING = ("response.created", "response.queued", "response.in_progress")
FIELDS = ("enable_response_messages", "previous_input_messages", "input_messages")


async def asked(router: Router, *, stream: bool, **fields: Any) -> dict[str, Any]:
    """The final Response; what a stream shows of it earlier has the same input and no output."""
    reply = await router.ask(stream=stream, **fields)
    assert reply.status == 200, reply.body
    if not stream:
        return reply.json
    check_responses_stream(reply.events)
    final = reply.events[-1].response
    for event in reply.events:
        if event.type in OPENING:
            assert event.response["input_messages"] == final["input_messages"]
            assert event.response["output_messages"] == []
    return final


@pytest.mark.parametrize("stream", [False, True])
async def test_both_are_in_the_response_and_stay_there(
    router: Router, upstream: Upstream, stream: bool
) -> None:
    answer = await asked(router, stream=stream, instructions="Be brief.", **ASKS)
    assert answer["input_messages"] == [message("system", "Be brief."), HI]
    assert answer["output_messages"] == [answered(HELLO)]
    assert (await call(router, "GET", f"/responses/{answer['id']}")).json == answer
    assert not set(FIELDS) & upstream.requests[-1].json.keys()
    assert answer["instructions"] == "Be brief."
    assert "enable_response_messages" not in answer


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fields", [{}, {"enable_response_messages": False}])
async def test_who_does_not_ask_has_none(
    router: Router, stream: bool, fields: dict[str, Any]
) -> None:
    reply = await router.ask(stream=stream, **fields)
    assert b"_messages" not in reply.body


@pytest.mark.parametrize("stream", [False, True])
async def test_a_history_is_in_them_even_when_it_is_gone(router: Router, stream: bool) -> None:
    one = (await router.ask(input="one", instructions="first only")).json
    two = await asked(router, stream=stream, previous_response_id=one["id"], **ASKS)
    assert two["input_messages"] == [SYSTEM, message("user", "one"), answered(HELLO), HI]
    assert (await call(router, "DELETE", f"/responses/{one['id']}")).status == 200
    assert (await call(router, "GET", f"/responses/{two['id']}")).json == two


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_is_in_them(router: Router, stream: bool) -> None:
    given = {"items": [{"role": "user", "content": "before"}]}
    conversation = (await call(router, "POST", "/conversations", given)).json["id"]
    one = await asked(router, stream=stream, conversation=conversation, **ASKS)
    two = await asked(router, stream=stream, conversation=conversation, input="next", **ASKS)
    assert one["input_messages"] == [SYSTEM, message("user", "before"), HI]
    assert two["input_messages"] == [
        *one["input_messages"], answered(HELLO), message("user", "next")
    ]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
async def test_background_runs_have_them_from_the_start(router: Router, stream: bool) -> None:
    one = (await router.ask(input="one")).json
    fields = {"background": True, "previous_response_id": one["id"], **ASKS}
    begun = await asked(router, stream=stream, **fields)
    given = [SYSTEM, message("user", "one"), answered(HELLO), HI]
    assert begun["input_messages"] == given
    done = await finished(router, begun["id"])
    assert (done["input_messages"], done["output_messages"]) == (given, [answered(HELLO)])
    if stream:
        assert begun == done
    else:
        assert (begun["status"], begun["output_messages"]) == ("queued", [])
    events = (
        await call(router, "GET", f"/responses/{done['id']}", params={"stream": "true"})
    ).events
    assert [event.type for event in events][:3] == list(OPENING)
    assert [event.response["input_messages"] for event in events[:3]] == [given] * 3


async def test_what_was_said_before_it_broke_off_is_told(dialect: Dialect) -> None:
    speech = SPEECH[dialect]
    broken = streamed(speech.opening, *speech.words[:2], kind=speech.kind)
    async with Upstream(broken) as upstream, routing(endpoint(upstream, dialect)) as router:
        reply = await router.ask(stream=True, **ASKS)
        failed = reply.events[-1].response
        assert failed["status"] == "failed"
        assert failed["output_messages"] == [answered("Hello, ")]
        assert failed["input_messages"] == [SYSTEM, HI]
        assert (await call(router, "GET", f"/responses/{failed['id']}")).json == failed


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cancelled_run_has_what_it_is_given(dialect: Dialect, stream: bool) -> None:
    speech = SPEECH[dialect]
    slow = streamed(*speech.pieces, kind=speech.kind, pause=5.0)
    async with Upstream(slow) as upstream, routing(endpoint(upstream, dialect)) as router:
        begun = (await router.ask(background=True, **ASKS)).json
        cancelled = (await call(router, "POST", f"/responses/{begun['id']}/cancel")).json
        assert (cancelled["status"], cancelled["output_messages"]) == ("cancelled", [])
        assert cancelled["input_messages"] == [SYSTEM, HI]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("first_asks", [False, True])
async def test_an_answer_of_the_cache_has_those_of_its_own_request(
    dialect: Dialect, stream: bool, first_asks: bool
) -> None:
    async with (
        answering(dialect) as upstream,
        routing(endpoint(upstream, dialect), cache={"mode": "always"}) as router,
    ):
        first = await router.ask(stream=stream, **(ASKS if first_asks else {}))
        assert (b"_messages" in first.body) is first_asks
        reply = await router.ask(stream=stream, **({} if first_asks else ASKS))
        assert reply.headers["X-Cache"] == "HIT"
        assert (b"_messages" in reply.body) is not first_asks
        hit = await asked(router, stream=stream, user="ann", **ASKS)
        assert hit["output_messages"] == [answered(HELLO)]
        assert hit["input_messages"] == [SYSTEM, HI]
        assert (await call(router, "GET", f"/responses/{hit['id']}")).json == hit
        # What was made of an earlier hit is a history like any other.
        history = [*hit["input_messages"], *hit["output_messages"]]
        again = await asked(
            router, stream=stream, previous_input_messages=history, input="more", **ASKS
        )
        same = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": HELLO},
                {"role": "user", "content": "more"}]  # fmt: skip
        assert (await router.ask(input=same, stream=stream)).headers["X-Cache"] == "HIT"
        assert again["input_messages"] == [*history, message("user", "more")]
        assert len(upstream.requests) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_shared_call_shows_each_client_what_it_asked_for(
    dialect: Dialect, stream: bool
) -> None:
    speech = SPEECH[dialect]
    async with (
        Upstream(default=speech.script(pause=0.05)) as upstream,
        routing(endpoint(upstream, dialect), cache={"mode": "always"}) as router,
    ):
        fields: list[dict[str, Any]] = [ASKS, {}, ASKS, {}]
        replies = await asyncio.gather(*(router.ask(stream=stream, **each) for each in fields))
        assert len(upstream.requests) == 1
        for each, reply in zip(fields, replies, strict=True):
            assert (b"_messages" in reply.body) is bool(each)
            answer = reply.events[-1].response if stream else reply.json
            if each:
                assert answer["output_messages"] == [answered(HELLO)]
                assert answer["input_messages"] == [SYSTEM, HI]


HISTORY: list[dict[str, Any]] = [
    message("system", "of the request before"),
    message("user", "What is 6 x 7?"),
    message("assistant", "They want a product.", channel="analysis"),
    {"role": "assistant", "channel": "commentary", "recipient": "functions.times",
     "content": '{"a":6,"b":7}'},
    {"role": "tool", "name": "functions.times", "content": [{"type": "text", "text": "42"}]},
    {"author": {"role": "assistant"}, "recipient": "wiki.look_up", "content": "{}"},
    told("wiki.look_up", "The answer."),
]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
async def test_messages_are_the_history(
    router: Router, upstream: Upstream, dialect: Dialect, stream: bool
) -> None:
    fields = {"previous_input_messages": HISTORY, "input": "Sure?", "instructions": "Be brief."}
    answer = await asked(router, stream=stream, **fields, **ASKS)
    sent = upstream.requests[-1].json
    assert not set(FIELDS) & sent.keys()
    assert "of the request before" not in repr(sent)
    if dialect == "responses":
        kinds = [item["type"] for item in sent["input"]]
        assert kinds == [
            *("message", "reasoning", "function_call", "function_call_output", "mcp_call"),
            "message",
        ]
    elif dialect == "messages":
        assert [one["text"] for one in sent["system"]] == ["Be brief."]
        assert [one["role"] for one in sent["messages"]] == ["user", *("assistant", "user") * 2]
        blocks = [block for one in sent["messages"] for block in one["content"]]
        calls = [block["name"] for block in blocks if block["type"] == "tool_use"]
        assert calls == ["times", "wiki__look_up"]
        results = [block["content"] for block in blocks if block["type"] == "tool_result"]
        assert [[part["text"] for part in parts] for parts in results] == [["42"], ["The answer."]]
    else:
        roles = [one["role"] for one in sent["messages"]]
        assert roles == ["system", "user", *("assistant", "tool") * 2, "user"]
        calls = [c["function"]["name"] for m in sent["messages"] for c in m.get("tool_calls", ())]
        assert calls == ["times", "wiki__look_up"]
        assert [m["content"] for m in sent["messages"] if m["role"] == "tool"] == [
            *("42", "The answer.")
        ]
    shown = answer["input_messages"]
    assert [one["role"] for one in shown] == [
        *("system", "user", "assistant", "assistant", "tool", "assistant", "tool", "user")
    ]
    # It is the response's own input: what goes on from here has it, too.
    await asked(router, stream=stream, input="x", previous_response_id=answer["id"], **ASKS)
    whole = repr(upstream.requests[-1].json)
    assert all(text in whole for text in ("What is 6 x 7?", "The answer.", "Sure?", "'x'"))


async def test_background_runs_have_messages_as_history(router: Router) -> None:
    fields: dict[str, Any] = {"previous_input_messages": HISTORY[:2], "input": "Sure?"}
    begun = (await router.ask(background=True, **fields, **ASKS)).json
    done = await finished(router, begun["id"])
    assert done["input_messages"] == [SYSTEM, HISTORY[1], message("user", "Sure?")]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/responses", "/responses/input_tokens", "/responses/compact"])
async def test_what_is_wrong_is_said_before_anything_is_looked_up(
    router: Router, upstream: Upstream, path: str, stream: bool
) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"previous_input_messages": [HISTORY[1], {"role": "robot", "content": "x"}]},
         "previous_input_messages[1].role"),
        ({"previous_input_messages": HISTORY, "previous_response_id": "resp_0"},
         "previous_input_messages"),
        ({"previous_input_messages": HISTORY, "conversation": "conv_0"}, "previous_input_messages"),
        ({"previous_input_messages": HISTORY[4:]}, "previous_input_messages[0]"),
    ]  # fmt: skip
    for fields, param in bad:
        body = {"model": "m", "input": "hi", "stream": stream, **fields}
        reply = await call(router, "POST", path, body)
        assert (reply.status, reply.error["param"]) == (400, param)
    assert upstream.requests == []


async def test_the_messages_count(router: Router) -> None:
    body = {"model": "m", "input": "hi"}
    short = (await call(router, "POST", "/responses/input_tokens", body)).json["input_tokens"]
    body["previous_input_messages"] = HISTORY  # type: ignore[assignment]
    long = (await call(router, "POST", "/responses/input_tokens", body)).json["input_tokens"]
    assert long > short
