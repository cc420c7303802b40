"""Another model answers, as configured, when nobody can serve the one that was asked for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from router.settings.schema import Dialect
from tests.support.calling import answering, finished
from tests.support.router import API_KEY, Reply, Router, endpoint, routing
from tests.support.speech import SPEECH, Speech
from tests.support.sse import check_responses_stream
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
from tests.support.waiting import until

IMAGE = [
    {
        "role": "user",
        "content": [{"type": "input_image", "image_url": "data:image/png;base64,aGk="}],
    }
]
QUICK = {"first_byte": 0.1, "idle": 0.1}
PATIENT = {"connect": 30.0, "first_byte": 30.0, "idle": 30.0, "total": 30.0}


@contextlib.asynccontextmanager
async def fleet(
    *scripts: Script,
    dialect: Dialect = "chat",
    fields: dict[str, Any] | None = None,
    small: dict[str, Any] | None = None,
    fallbacks: list[str] | None = None,
    **sections: Any,
) -> AsyncIterator[tuple[Router, Upstream, Upstream]]:
    """``big`` at one endpoint, which plays the scripts, and ``small`` at another, which answers.

    ``fields`` are settings of the endpoint of ``big``, ``small`` of the other one.
    """
    async with Upstream(*scripts) as one, answering(dialect) as two:
        big = {"models": ["big"], "timeouts": PATIENT, **(fields or {})}
        endpoints = [
            endpoint(one, dialect, "one", **big),
            endpoint(two, dialect, "two", models=["small"], **(small or {})),
        ]
        sections.setdefault("fallbacks", {"big": fallbacks or ["small"]})
        async with routing(*endpoints, **sections) as router:
            yield router, one, two


def served(reply: Reply, by: str | None = "small") -> dict[str, Any]:
    """The final Response object; ``by`` is the model that the header names."""
    assert reply.status == 200, reply.body
    assert reply.headers.get("X-Pointsman-Fallback") == by
    if reply.headers["Content-Type"] == "application/json":
        assert reply.json["status"] == "completed"
        return reply.json
    final = check_responses_stream(reply.events)
    assert final["status"] == "completed"
    return final


async def replaced(router: Router, by: str = "small") -> float:
    """How often ``big`` was replaced, as the metrics have it."""
    labels = {"model": "big", "fallback": by}
    return sum(await router.metric("pointsman_fallbacks_total", **labels))


FAULTS: dict[str, tuple[Script, ...]] = {
    "401": (whole(b"{}", 401),),
    "404": (whole(b"{}", 404),),
    "429": (whole(b"{}", 429),),
    "500": (whole(b"{}", 500),),
    "503": (whole(b"{}", 503),),
    "silent": (silent,),
    "reset": (reset_now, reset_now),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_every_endpoint_of_the_model_fails(
    dialect: Dialect, stream: bool, fault: str
) -> None:
    # Only who is never answered meets a deadline.
    timeouts = {**QUICK, "total": 0.2} if fault == "silent" else PATIENT
    async with fleet(*FAULTS[fault], dialect=dialect, fields={"timeouts": timeouts}) as scene:
        router, one, two = scene
        reply = await router.ask(stream=stream, model="big")
        final = served(reply)
        assert final["output_text"] == SPEECH[dialect].text
        assert reply.headers["X-Pointsman-Endpoint"] == "two"
        assert reply.headers["X-Pointsman-Attempts"] == str(len(FAULTS[fault]) + 1)
        assert [len(one.requests), len(two.requests)] == [len(FAULTS[fault]), 1]
        assert two.requests[0].json["model"] == "small"
        assert await replaced(router) == 1
        if dialect != "responses":  # there the endpoint says itself what it served
            assert final["model"] == "small"
        if stream and dialect != "responses":
            assert reply.events[0].response["model"] == "small"
        [line] = [line for line in router.log if line["event"] == "model replaced"]
        assert (line["model"], line["by"]) == ("big", "small")
        assert API_KEY not in repr(router.log)


async def test_a_connection_is_refused(stream: bool) -> None:
    async with refused_port() as address, answering("chat") as two:
        endpoints = [
            endpoint(address, "chat", "one", models=["big"]),
            endpoint(two, "chat", "two", models=["small"]),
        ]
        async with routing(*endpoints, fallbacks={"big": ["small"]}) as router:
            for _ in range(2):
                served(await router.ask(stream=stream, model="big"))
            assert await replaced(router) == 2


async def test_who_asked_for_a_pause_is_not_asked(stream: bool) -> None:
    async with fleet(whole(b"{}", 429, {"Retry-After": "60"})) as (router, one, _):
        for attempts in ("2", "1", "1"):
            reply = await router.ask(stream=stream, model="big")
            served(reply)
            assert reply.headers["X-Pointsman-Attempts"] == attempts
        assert len(one.requests) == 1


async def test_who_is_known_to_be_sick_is_not_asked() -> None:
    """Not even in panic: there is somebody who is well."""
    async with fleet(*[whole(b"{}", 500)] * 3) as (router, one, _):
        for _ in range(5):
            served(await router.ask(model="big"))
        assert len(one.requests) == 3


@pytest.mark.parametrize("balance", [{"queue_size": 0}, {"queue_timeout": 0.05}])
async def test_no_slot_is_free(balance: dict[str, Any]) -> None:
    elsewhere = asyncio.Event()

    async def slowly(wire: Wire) -> None:
        await elsewhere.wait()
        await whole(SPEECH["chat"].whole)(wire)

    patient = {"max_in_flight": 1, "timeouts": {"total": 30}}
    async with fleet(slowly, fields=patient, balance=balance) as scene:
        router, one, _ = scene
        first = asyncio.create_task(router.ask(model="big"))
        await until(lambda: one.requests)
        reply = await router.ask(model="big")
        served(reply)
        assert reply.headers["X-Pointsman-Attempts"] == "1"
        elsewhere.set()
        served(await first, by=None)


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({"capabilities": {"big": {"vision": False}}}, {"input": IMAGE}),
        ({"context_length": 100}, {"input": "word " * 1000}),
    ],
    ids=["vision", "context"],
)
async def test_the_model_cannot_do_what_is_needed(
    fields: dict[str, Any], body: dict[str, Any], stream: bool
) -> None:
    async with fleet(fields=fields) as (router, one, _):
        reply = await router.ask(model="big", stream=stream, **body)
        served(reply)
        assert reply.headers["X-Pointsman-Attempts"] == "1"
        assert one.requests == []


async def test_the_model_turns_out_not_to_do_what_is_needed() -> None:
    refusal = whole(b'{"error": "registry.ollama.ai/library/big does not support tools"}', 400)
    good = whole(SPEECH["ollama"].whole)
    async with fleet(refusal, good, dialect="ollama") as (router, one, two):
        tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
        for attempts in ("2", "1"):
            reply = await router.ask(model="big", tools=[tool])
            served(reply)
            assert reply.headers["X-Pointsman-Attempts"] == attempts
        served(await router.ask(model="big"), by=None)  # without tools it will do
        assert [len(one.requests), len(two.requests)] == [2, 2]


async def test_nobody_serves_the_model(stream: bool) -> None:
    async with fleet(fields={"models": ["another"]}) as (router, one, _):
        final = served(await router.ask(model="big", stream=stream))
        assert final["model"] == "small"
        assert one.requests == []


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_fault_of_the_request_is_no_reason(status: int, stream: bool) -> None:
    fault = whole(b'{"error": {"message": "too hot", "param": "temperature"}}', status)
    async with fleet(fault) as (router, _, two):
        reply = await router.ask(model="big", stream=stream)
        assert (reply.status, reply.error["param"]) == (status, "temperature")
        assert "X-Pointsman-Fallback" not in reply.headers
        assert two.requests == []
        assert await replaced(router) == 0


async def test_after_output_nothing_is_replaced(dialect: Dialect, speech: Speech) -> None:
    said = (speech.opening, speech.words[0])
    async with fleet(streamed(*said, kind=speech.kind, then=reset_now), dialect=dialect) as scene:
        router, _, two = scene
        reply = await router.ask(model="big", stream=True)
        final = check_responses_stream(reply.events)
        assert (final["status"], final["output_text"]) == ("failed", "Hello")
        assert "X-Pointsman-Fallback" not in reply.headers
        assert two.requests == []


@pytest.mark.parametrize("dialect", ["chat", "ollama"], indirect=True)
async def test_what_the_client_was_told_of_the_model_stays(dialect: Dialect) -> None:
    bad = paced(whole(b"{}", 500), 0.08)
    early: dict[str, Any] = {"server": {"open_after": 0.02, "keepalive_interval": 0.02}}
    async with fleet(bad, dialect=dialect, fields={"timeouts": {}}, **early) as (router, _, two):
        reply = await router.ask(model="big", stream=True)
        final = check_responses_stream(reply.events)
        assert final["status"] == "completed"
        assert {e.response["model"] for e in reply.events if "response" in e.json} == {"big"}
        assert two.requests[0].json["model"] == "small"


async def test_a_background_run_is_replaced_too() -> None:
    async with fleet(whole(b"{}", 500)) as (router, _, two):
        begun = await router.ask(model="big", background=True)
        done = await finished(router, begun.json["id"])
        assert (done["status"], begun.json["model"], done["model"]) == ("completed", "big", "big")
        assert two.requests[0].json["model"] == "small"


async def test_chat_completions_are_replaced_too(stream: bool) -> None:
    async with fleet(whole(b"{}", 500)) as (router, _, two):
        reply = await router.ask(model="big", chat=True, stream=stream)
        assert reply.status == 200
        assert reply.headers["X-Pointsman-Fallback"] == "small"
        assert two.requests[0].json["model"] == "small"


async def test_what_is_stored_is_what_was_sent() -> None:
    async with fleet(whole(b"{}", 500)) as (router, _, _two):
        reply = await router.ask(model="big", stream=True)
        final = served(reply)
        async with router.http.get(f"{router.url}/v1/responses/{final['id']}") as stored:
            assert orjson.loads(await stored.read()) == final


async def test_one_after_another_each_with_attempts_of_its_own() -> None:
    bad = whole(b"{}", 500)
    async with contextlib.AsyncExitStack() as stack:
        upstreams: dict[str, list[Upstream]] = {"big": [], "small": [], "tiny": []}
        endpoints = []
        for model, ups in upstreams.items():
            for number in range(3):
                up = await stack.enter_async_context(Upstream(default=bad))
                ups.append(up)
                endpoints.append(endpoint(up, "chat", f"{model}-{number}", models=[model]))
        for up in upstreams["tiny"]:
            up.default = whole(SPEECH["chat"].whole)
        router = await stack.enter_async_context(
            routing(
                *endpoints,
                fallbacks={"big": ["small", "tiny"], "small": ["big"]},
                balance={"max_attempts": 2},
            )
        )
        reply = await router.ask(model="big")
        assert served(reply, by="tiny")["model"] == "tiny"
        assert reply.headers["X-Pointsman-Attempts"] == "5"
        assert reply.headers["X-Pointsman-Endpoint"].startswith("tiny-")
        counts = {model: sum(len(up.requests) for up in ups) for model, ups in upstreams.items()}
        assert counts == {"big": 2, "small": 2, "tiny": 1}
        assert [await replaced(router, by) for by in ("small", "tiny")] == [1, 1]


async def test_the_last_one_fails_too(stream: bool) -> None:
    async with fleet(whole(b"{}", 429, {"Retry-After": "7"})) as (router, _, two):
        two.default = whole(b"{}", 503)
        reply = await router.ask(model="big", stream=stream)
        assert (reply.status, reply.error["code"]) == (503, "upstream_unavailable")
        assert "'two'" in reply.error["message"]
        assert reply.headers["X-Pointsman-Fallback"] == "small"
        assert reply.headers["X-Pointsman-Endpoint"] == "two"
        assert reply.headers["X-Pointsman-Attempts"] == "2"


@pytest.mark.parametrize("fallback", ["nobody's", "small"])
async def test_a_fallback_that_is_none_for_this_request(fallback: str, stream: bool) -> None:
    """The client hears of the model that it asked for: nothing is wrong with its request."""
    blind = {"capabilities": {"small": {"vision": False}}}
    async with fleet(whole(b"{}", 500), small=blind, fallbacks=[fallback]) as (router, _, two):
        reply = await router.ask(model="big", stream=stream, input=IMAGE)
        assert (reply.status, reply.error["code"]) == (502, "upstream_error")
        assert "'one'" in reply.error["message"]
        assert "X-Pointsman-Fallback" not in reply.headers
        assert two.requests == []
