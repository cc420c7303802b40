"""Another endpoint takes over as long as nothing of an answer has reached the client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from router.core.upstream import account_of
from router.dialects.responses.sealing import seal
from router.settings.schema import Dialect, EndpointSettings
from tests.support.router import Router, endpoint, routing
from tests.support.speech import DIALECTS, SPEECH, Speech
from tests.support.sse import check_responses_stream, text_of
from tests.support.upstream import (
    Script,
    Upstream,
    Wire,
    paced,
    refused_port,
    reset_now,
    silent,
    streamed,
    whole,
)


@contextlib.asynccontextmanager
async def fleet(
    *scripts: Script, dialects: tuple[Dialect, ...], **sections: Any
) -> AsyncIterator[tuple[Router, list[Upstream]]]:
    """A router before several upstreams; requests play the scripts in order, wherever they go."""
    async with contextlib.AsyncExitStack() as stack:
        upstreams = [await stack.enter_async_context(Upstream()) for _ in dialects]
        for upstream in upstreams:
            upstream.scripts = upstreams[0].scripts
        upstreams[0].scripts.extend(scripts)
        timeouts = {"first_byte": 0.1, "idle": 0.1}
        endpoints = [
            endpoint(upstream, dialect, f"e{number}", timeouts=timeouts)
            for number, (upstream, dialect) in enumerate(zip(upstreams, dialects, strict=True))
        ]
        yield await stack.enter_async_context(routing(*endpoints, **sections)), upstreams


def asked(upstreams: list[Upstream]) -> list[int]:
    """How many requests each got."""
    return [len(upstream.requests) for upstream in upstreams]


def failing(speech: Speech) -> dict[str, Script]:
    """Everything that can go wrong before the first output."""
    return {
        "401": whole(b"{}", 401),
        "404": whole(b"{}", 404),
        "408": whole(b"{}", 408),
        "429": whole(b"{}", 429),
        "500": whole(b"{}", 500),
        "503": whole(b"{}", 503),
        "reset": reset_now,
        "silent": silent,
        "opened, reset": streamed(speech.opening, kind=speech.kind, then=reset_now),
        "opened, silent": streamed(speech.opening, kind=speech.kind, then=silent),
        "opened, cut": streamed(speech.opening, kind=speech.kind),
        "error frame": streamed(speech.opening, speech.error, kind=speech.kind),
        "html": whole(b"<html></html>", kind="text/html"),
        "empty": whole(b"", kind=speech.kind),
    }


@pytest.mark.parametrize("fault", failing(SPEECH["chat"]))
async def test_unseen_by_a_stream(dialect: Dialect, speech: Speech, fault: str) -> None:
    good = streamed(*speech.pieces, kind=speech.kind)
    async with fleet(failing(speech)[fault], good, dialects=(dialect, dialect)) as (router, all_):
        reply = await router.ask(stream=True)
        assert reply.status == 200
        final = check_responses_stream(reply.events)
        assert (final["status"], text_of(reply.events)) == ("completed", speech.text)
        assert reply.headers["X-Pointsman-Attempts"] == "2"
        assert asked(all_) == [1, 1]


@pytest.mark.parametrize("fault", ["429", "500", "503", "reset", "html", "empty"])
async def test_unseen_by_an_answer_in_one_piece(
    dialect: Dialect, speech: Speech, fault: str
) -> None:
    scripts = (failing(speech)[fault], whole(speech.whole))
    async with fleet(*scripts, dialects=(dialect, dialect)) as (router, all_):
        reply = await router.ask()
        assert (reply.status, reply.json["output_text"]) == (200, speech.text)
        assert reply.headers["X-Pointsman-Attempts"] == "2"
        assert asked(all_) == [1, 1]


@pytest.mark.parametrize("spoken", ["chat", "ollama"])
@pytest.mark.parametrize("fault", ["429", "reset", "opened, cut"])
async def test_unseen_by_chat_completions(fault: str, spoken: Dialect) -> None:
    speech = SPEECH[spoken]
    bad = failing(speech)[fault]
    good = streamed(*speech.pieces, kind=speech.kind)
    async with fleet(bad, good, dialects=(spoken, spoken)) as (router, all_):
        reply = await router.ask(stream=True, chat=True)
        assert reply.headers["X-Pointsman-Attempts"] == "2"
        assert reply.events[-1].raw == b"[DONE]"
        assert asked(all_) == [1, 1]


@pytest.mark.parametrize("second", DIALECTS)
async def test_from_one_dialect_to_another(dialect: Dialect, second: Dialect) -> None:
    async with Upstream() as one, Upstream() as two:
        for upstream, spoken in ((one, dialect), (two, second)):
            speech = SPEECH[spoken]
            broken = streamed(speech.opening, kind=speech.kind, then=reset_now)
            upstream.default = streamed(*speech.pieces, kind=speech.kind)
            upstream.scripts.append(broken)
        async with routing(endpoint(one, dialect, "a"), endpoint(two, second, "b")) as router:
            # The first breaks, and so does the second: both have then used up their fault.
            reply = await router.ask(stream=True)
            assert reply.status == 502
            reply = await router.ask(stream=True)
            assert check_responses_stream(reply.events)["output_text"] == SPEECH["chat"].text


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_fault_of_the_request_is_nobody_elses(dialect: Dialect, status: int) -> None:
    async with fleet(whole(b"{}", status), dialects=(dialect, dialect)) as (router, all_):
        reply = await router.ask()
        assert reply.status == status
        assert sum(asked(all_)) == 1


@pytest.mark.parametrize("then", [reset_now, silent, Wire.end])
async def test_nothing_is_retried_after_output(dialect: Dialect, speech: Speech, then: Any) -> None:
    async def end(wire: Wire) -> None:
        result = then(wire)
        if result is not None:
            await result

    said = (speech.opening, speech.words[0])
    bad = streamed(*said, kind=speech.kind, pause=0.01, then=end)
    async with fleet(bad, dialects=(dialect, dialect)) as (router, all_):
        reply = await router.ask(stream=True)
        final = check_responses_stream(reply.events)
        assert (final["status"], final["output_text"]) == ("failed", "Hello")
        assert sum(asked(all_)) == 1


@pytest.mark.parametrize("most", [1, 2, 3, 5])
async def test_max_attempts(most: int) -> None:
    scripts = [whole(b"{}", 500)] * min(most, 4)
    async with fleet(*scripts, dialects=("chat",) * 4, balance={"max_attempts": most}) as (
        router,
        all_,
    ):
        reply = await router.ask()
        assert reply.status == 502
        assert reply.headers["X-Pointsman-Attempts"] == str(min(most, 4))
        assert sorted(asked(all_), reverse=True) == [1] * min(most, 4) + [0] * (4 - min(most, 4))


async def test_max_attempts_bounds_the_only_one_too() -> None:
    async with fleet(reset_now, reset_now, dialects=("chat",), balance={"max_attempts": 1}) as (
        router,
        _,
    ):
        reply = await router.ask()
        assert (reply.status, reply.headers["X-Pointsman-Attempts"]) == (502, "1")


async def test_one_is_down(dialect: Dialect, speech: Speech) -> None:
    async with (
        refused_port() as down,
        Upstream(default=whole(speech.whole)) as up,
        routing(endpoint(down, dialect, "down"), endpoint(up, dialect, "up")) as router,
    ):
        for _ in range(4):
            reply = await router.ask()
            assert (reply.status, reply.headers["X-Pointsman-Endpoint"]) == (200, "up")


async def test_all_are_down(dialect: Dialect, stream: bool) -> None:
    async with (
        refused_port() as one,
        refused_port() as two,
        routing(endpoint(one, dialect, "a"), endpoint(two, dialect, "b")) as router,
    ):
        reply = await router.ask(stream=stream)
        assert (reply.status, reply.error["code"]) == (503, "upstream_unavailable")
        assert reply.headers["X-Pointsman-Attempts"] == "2"


EARLY = {"open_after": 0.02, "keepalive_interval": 0.02}


def early(speech: Speech, then: Script, *, opened: bool) -> Script:
    """Silence for some keep-alive intervals, perhaps after the opening, and then ``then``."""
    if opened:
        return streamed(speech.opening, kind=speech.kind, then=paced(then, 0.08))
    return paced(then, 0.08)


@pytest.mark.parametrize("opened", [False, True], ids=["no head", "opened"])
@pytest.mark.parametrize("fault", ["reset", "429"])
async def test_after_created_went_out(
    dialect: Dialect, speech: Speech, opened: bool, fault: str
) -> None:
    bad = reset_now if opened else failing(speech)[fault]
    scripts = (early(speech, bad, opened=opened), streamed(*speech.pieces, kind=speech.kind))
    async with fleet(
        *scripts,
        dialects=(dialect, dialect),
        server=EARLY,
    ) as (router, all_):
        reply = await router.ask(stream=True)
        assert reply.status == 200
        final = check_responses_stream(reply.events)  # numbers go on, created_at is constant
        assert (final["status"], text_of(reply.events)) == ("completed", speech.text)
        assert asked(all_) == [1, 1]
        assert b": keep-alive\n\n" in reply.body
        assert reply.body.startswith(b"event: response.created\n"), "no comment comes before"


async def test_what_is_left_out_is_named_before_the_endpoint_answers() -> None:
    speech = SPEECH["ollama"]
    late = early(speech, streamed(*speech.pieces, kind=speech.kind), opened=False)
    async with fleet(late, dialects=("ollama",), server=EARLY) as (
        router,
        _,
    ):
        reply = await router.ask(stream=True, service_tier="flex")
        assert reply.headers["X-Pointsman-Dropped-Parameters"] == "service_tier"
        assert b": keep-alive\n\n" in reply.body


async def test_all_fail_after_created_went_out(dialect: Dialect, speech: Speech) -> None:
    bad = early(speech, whole(b"{}", 500), opened=False)
    async with fleet(
        bad,
        bad,
        dialects=(dialect, dialect),
        server=EARLY,
    ) as (router, _):
        reply = await router.ask(stream=True)
        final = check_responses_stream(reply.events)
        assert (final["status"], final["output"]) == ("failed", [])
        assert "HTTP 500" in final["error"]["message"]


async def test_a_fault_of_the_request_after_created_went_out(
    dialect: Dialect, speech: Speech
) -> None:
    bad = early(speech, whole(b'{"error": "too long"}', 400), opened=False)
    async with fleet(bad, dialects=(dialect, dialect), server=EARLY) as (
        router,
        all_,
    ):
        reply = await router.ask(stream=True)
        final = check_responses_stream(reply.events)
        assert (final["status"], final["error"]["message"]) == ("failed", "too long")
        assert sum(asked(all_)) == 1


async def test_chat_completions_after_the_head_went_out() -> None:
    speech = SPEECH["chat"]
    bad = paced(whole(b"{}", 500), 0.08)
    good = streamed(*speech.pieces, kind=speech.kind)
    sections = {"server": EARLY}
    async with fleet(bad, good, bad, bad, dialects=("chat", "chat"), **sections) as (router, _):
        reply = await router.ask(stream=True, chat=True)
        assert reply.events[-1].raw == b"[DONE]"
        reply = await router.ask(stream=True, chat=True)
        (only,) = reply.events
        assert only.data is not None
        assert only.data["error"]["code"] == "upstream_error"


async def test_an_answer_in_one_piece_is_never_opened_early(
    dialect: Dialect, speech: Speech
) -> None:
    """Keep-alive is for streams: a JSON answer waits as long as it takes."""
    async with fleet(
        paced(whole(speech.whole), 0.08),
        dialects=(dialect,),
        server=EARLY,
    ) as (router, _):
        reply = await router.ask()
        assert reply.headers["Content-Type"] == "application/json"
        assert reply.json["output_text"] == speech.text


async def test_waiting_for_a_slot_is_kept_alive_too(dialect: Dialect, speech: Speech) -> None:
    good = streamed(*speech.pieces, kind=speech.kind)
    async with Upstream(early(speech, good, opened=False), good) as upstream:
        one = endpoint(upstream, dialect, max_in_flight=1)
        async with routing(one, server=EARLY) as router:
            replies = await asyncio.gather(*(router.ask(stream=True) for _ in range(2)))
            for reply in replies:
                assert check_responses_stream(reply.events)["status"] == "completed"
                assert b": keep-alive\n\n" in reply.body


@pytest.mark.parametrize("fault", ["429", "500", "404"])
async def test_the_issuer_of_reasoning_is_not_asked_again(fault: str) -> None:
    """Encrypted reasoning prefers the account that issued it, but not after it has failed."""
    speech = SPEECH["responses"]
    async with (
        Upstream(failing(speech)[fault]) as one,
        Upstream(whole(speech.whole)) as two,
    ):
        issuer = endpoint(one, "responses", "issuer")
        account = account_of(EndpointSettings.model_validate(issuer))
        reasoning = {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "encrypted_content": seal("blob", account),
        }
        message = {"role": "user", "content": "go on"}
        async with routing(issuer, endpoint(two, "responses", "other")) as router:
            reply = await router.ask(input=[message, reasoning, message])
            assert reply.status == 200
            assert reply.headers["X-Pointsman-Endpoint"] == "other"
            assert reply.headers["X-Pointsman-Reasoning-Dropped"] == "1"
            assert asked([one, two]) == [1, 1]
