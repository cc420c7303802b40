"""What endpoints do to requests changes where the next ones go."""

from __future__ import annotations

import asyncio
import socket
import time
from datetime import UTC, datetime, timedelta
from itertools import cycle
from typing import Any

import orjson
import pytest

from router.balance import deployment_state
from router.balance.deployment_state import GRADES
from router.settings.schema import Dialect
from tests.support.pair import by, pair, single
from tests.support.router import API_KEY, Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream
from tests.support.upstream import (
    Upstream,
    Wire,
    refused_port,
    reset_now,
    silent,
    streamed,
    whole,
    whole_or_streamed,
)
from tests.support.waiting import until

GOOD = whole(SPEECH["chat"].whole)
STREAM = streamed(*SPEECH["chat"].pieces, kind=SPEECH["chat"].kind)
BAD = whole(b"{}", 500)
HOUR = timedelta(hours=1)


def grade(router: Router, name: str = "one") -> str:
    """How the model at this endpoint is."""
    return GRADES[router.deployment(name).grade]


def half_open(router: Router, name: str = "one") -> None:
    """It has failed, a good while ago."""
    deployment = router.deployment(name)
    deployment.breaker.trip(time.monotonic() - 3600)
    deployment.refresh(time.monotonic())
    assert grade(router, name) == "probe"


def failures(router: Router, name: str = "one") -> float:
    """The share of failures that its breaker knows of."""
    return router.deployment(name).breaker.failure_ratio(time.monotonic())


async def test_a_rate_limit_is_told_without_asking_again(stream: bool) -> None:
    async with single(whole(b"{}", 429, {"Retry-After": "60"})) as (router, upstream):
        first = await router.ask(stream=stream)
        assert (first.status, first.headers["Retry-After"]) == (429, "60")
        for _ in range(3):
            reply = await router.ask(stream=stream)
            assert (reply.status, reply.error["code"]) == (429, "rate_limit_exceeded")
            assert 50 <= int(reply.headers["Retry-After"]) <= 60
            assert "'m'" in reply.error["message"]
            assert reply.headers["X-Pointsman-Attempts"] == "0"
            assert "X-Pointsman-Endpoint" not in reply.headers, "nobody was asked"
            assert reply.headers["X-Request-Id"]
        assert len(upstream.requests) == 1


async def test_a_rate_limit_is_over_after_its_time() -> None:
    async with single(whole(b"{}", 429, {"Retry-After": "0.1"})) as (router, upstream):
        assert (await router.ask()).status == 429
        while (reply := await router.ask()).status == 429:
            assert reply.headers["Retry-After"] == "1"
        assert by(reply) == "one"
        assert len(upstream.requests) == 2


async def test_a_rate_limit_is_for_one_model_at_one_endpoint() -> None:
    limit = whole(b"{}", 429, {"Retry-After": "60"})
    async with pair(limit, fields={"models": ["m", "other"]}) as (router, one, two):
        assert [by(await router.ask()) for _ in range(3)] == ["two"] * 3
        assert [len(one.requests), len(two.requests)] == [1, 3]
        assert by(await router.ask(model="other")) == "one"
        assert (grade(router), failures(router)) == ("cooling", 0.0)


@pytest.mark.parametrize(("left", "others"), [("0", "two"), ("3", "one")])
async def test_an_endpoint_with_nothing_left_rests_until_it_has_something(
    left: str, others: str, stream: bool
) -> None:
    headers = {"x-ratelimit-remaining-requests": left, "x-ratelimit-reset-requests": "40s"}
    answer = whole(SPEECH["chat"].whole, headers=headers)
    pieces = streamed(*SPEECH["chat"].pieces, kind=SPEECH["chat"].kind, headers=headers)
    two = whole_or_streamed(whole(SPEECH["chat"].whole), STREAM)
    async with pair(whole_or_streamed(answer, pieces)) as (router, upstream, other):
        upstream.default = other.default = two
        assert [by(await router.ask(stream=stream)) for _ in range(4)] == ["one", *[others] * 3]
        assert grade(router) == ("cooling" if left == "0" else "ready")
        assert failures(router) == 0.0


async def test_without_another_it_is_asked_and_tells_what_it_has_by_now() -> None:
    spent = {
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": (datetime.now(UTC) + HOUR).isoformat(),
    }
    some = {"anthropic-ratelimit-input-tokens-remaining": "9000"}
    scripts = [whole(SPEECH["messages"].whole, headers=headers) for headers in (spent, some)]
    async with single(*scripts, dialect="messages", max_tokens=50) as (router, upstream):
        grades = []
        for _ in range(2):
            assert by(await router.ask()) == "one"
            grades.append(grade(router))
        assert grades == ["cooling", "ready"]
        assert len(upstream.requests) == 2


async def test_three_failures_open_a_breaker() -> None:
    async with pair(BAD, BAD, BAD, breaker={"open_seconds": 60}) as (router, one, two):
        replies = [await router.ask() for _ in range(6)]
        assert [by(reply) for reply in replies] == ["two"] * 6
        served = [reply.headers["X-Pointsman-Attempts"] for reply in replies]
        assert served == ["2", "2", "2", "1", "1", "1"]
        assert [len(one.requests), len(two.requests)] == [3, 6]
        assert grade(router) == "open"
        assert API_KEY not in repr(router.log)


async def test_one_probe_tells_whether_it_is_back() -> None:
    go_on = asyncio.Event()

    async def slowly(wire: Wire) -> None:
        await go_on.wait()
        await GOOD(wire)

    async with pair(slowly) as (router, one, two):
        half_open(router)
        probe = asyncio.create_task(router.ask())
        await until(lambda: one.requests)
        others = await asyncio.gather(*(router.ask() for _ in range(5)))
        assert [by(reply) for reply in others] == ["two"] * 5
        go_on.set()
        assert by(await probe) == "one"
        assert [len(one.requests), len(two.requests)] == [1, 5]
        assert grade(router) == "warming"


async def test_a_probe_that_fails_is_answered_elsewhere() -> None:
    async with pair(BAD, breaker={"open_seconds": 60}) as (router, one, _):
        half_open(router)
        assert [by(await router.ask()) for _ in range(3)] == ["two"] * 3
        assert (grade(router), len(one.requests)) == ("open", 1)


async def test_a_probe_whose_client_leaves_says_nothing() -> None:
    async with pair(silent) as (router, one, _):
        half_open(router)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await router.ask()
        await until(lambda: not router.taken)
        assert grade(router) == "probe"
        assert by(await router.ask()) == "one"
        assert len(one.requests) == 2


@pytest.mark.parametrize("begun", [False, True], ids=["silent", "opened"])
async def test_a_probe_that_stalls_costs_no_more_than_the_patience(
    begun: bool, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployment_state, "_LEAST_PATIENCE", 0.05)
    chat = SPEECH["chat"]
    opened = streamed(b": hold on\n\n", kind=chat.kind, then=silent)
    async with pair(opened if begun else silent, breaker={"open_seconds": 60}) as scene:
        router, one, two = scene
        two.default = STREAM if stream else GOOD
        router.deployment("one").first_token.observe(0.001, time.monotonic())
        router.deployment("one").service.observe(0.001)
        half_open(router)
        reply = await router.ask(stream=stream)
        assert (by(reply), reply.headers["X-Pointsman-Attempts"]) == ("two", "2")
        async with asyncio.timeout(60):
            await one.requests[0].wire.gone.wait()
        assert grade(router) == "open"
        timed_out = {"endpoint": "one", "result": "upstream_timeout"}
        assert await router.metric("pointsman_upstream_attempts_total", **timed_out) == [1.0]


async def test_a_probe_that_has_begun_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_state, "_LEAST_PATIENCE", 0.05)
    chat = SPEECH["chat"]
    begun = chat.opening + chat.words[0]
    slow = streamed(begun, *chat.words[1:], chat.closing, kind=chat.kind, pause=0.04)
    async with pair(slow) as (router, one, two):
        router.deployment("one").first_token.observe(0.001, time.monotonic())
        half_open(router)
        reply = await router.ask(stream=True)
        assert by(reply) == "one"
        assert check_responses_stream(reply.events)["output_text"] == chat.text
        assert [len(one.requests), len(two.requests)] == [1, 0]


async def test_when_all_are_sick_they_are_asked_all_the_same(stream: bool) -> None:
    async with pair(breaker={"open_seconds": 60}) as (router, one, two):
        one.default = two.default = STREAM if stream else GOOD
        for name in ("one", "two"):
            router.deployment(name).breaker.trip(time.monotonic())
            router.deployment(name).refresh(time.monotonic())
        for _ in range(3):
            assert by(await router.ask(stream=stream)) in ("one", "two")


@pytest.mark.parametrize(
    ("dialect", "ending", "counts"),
    [
        ("chat", "reset", True),
        ("chat", "error", True),
        ("ollama", "reset", True),
        ("responses", "reset", True),
        ("responses", "server_error", True),
        ("responses", "invalid_prompt", False),
    ],
)
async def test_what_happens_after_output_counts_too(
    dialect: Dialect, ending: str, counts: bool
) -> None:
    speech = SPEECH[dialect]
    said = [speech.opening, speech.words[0]]
    if ending == "error":
        said.append(speech.error)
    elif ending != "reset":
        said.append(failed(ending))
    then = reset_now if ending == "reset" else None
    script = streamed(*said, kind=speech.kind, pause=0.01, then=then)
    async with pair(script, dialect=dialect) as (router, _, two):
        reply = await router.ask(stream=True)
        assert check_responses_stream(reply.events)["status"] == "failed"
        assert by(reply) == "one"
        await router.idle()
        assert bool(failures(router)) is counts
        assert two.requests == []
        result = {"endpoint": "one", "result": "upstream_error" if counts else "ok"}
        assert await router.metric("pointsman_upstream_attempts_total", **result) == [1.0]


async def test_requests_that_fail_by_their_own_fault_open_no_breaker() -> None:
    native = SPEECH["responses"]
    script = streamed(native.opening, failed("invalid_prompt"), kind=native.kind)
    async with pair(*[script] * 5, dialect="responses") as (router, one, two):
        for _ in range(5):
            reply = await router.ask(stream=True)
            assert reply.events[-1].response["error"]["code"] == "invalid_prompt"
        assert [len(one.requests), len(two.requests)] == [5, 0]
        assert (grade(router), failures(router)) == ("ready", 0.0)


def failed(code: str) -> bytes:
    """The end of a native stream that failed."""
    error = {"code": code, "message": "no"}
    response = {"id": "resp_up", "object": "response", "status": "failed", "output": []}
    event = {"type": "response.failed", "response": {**response, "error": error}}
    return b"event: response.failed\ndata: %b\n\n" % orjson.dumps(event)


async def test_who_cannot_be_reached_is_left_to_the_probes() -> None:
    breaker = {"open_seconds": 60, "slow_start": 0}  # nobody probes it unasked
    async with Upstream(default=GOOD) as back, Upstream(default=GOOD) as two:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))  # not listening yet
            address = f"http://127.0.0.1:{sock.getsockname()[1]}"
            endpoints = [endpoint(address, "chat"), endpoint(two, "chat", "two", priority=2)]
            balance = {"policy": "priority", "breaker": breaker}
            async with routing(*endpoints, balance=balance) as router:
                one = router.deployment("one").endpoint
                await until(one.probed.is_set)
                one.host.reachable(time.monotonic())  # as if it had only just gone
                assert [by(await router.ask()) for _ in range(5)] == ["two"] * 5
                refused = {"endpoint": "one", "result": "upstream_unavailable"}
                counted = await router.metric("pointsman_upstream_attempts_total", **refused)
                assert counted == [1.0]
                loop = asyncio.get_running_loop()
                server = await loop.create_server(lambda: Wire(back), sock=sock)
                one.probe_now.set()
                await until(lambda: one.host.up)
                assert by(await router.ask()) == "one"
                server.close()


@pytest.mark.parametrize(("warmth", "share"), [(0.0, 2), (0.24, 5), (0.34, 7), (2.0, 10)])
async def test_after_recovery_traffic_comes_back_gradually(warmth: float, share: int) -> None:
    """``share`` is out of twenty requests, at two endpoints in turns."""
    seconds = 1e6
    balance: dict[str, Any] = {
        "policy": "round-robin",
        "affinity": 0,
        "breaker": {"slow_start": seconds},
    }
    async with pair(**balance) as (router, one, two):
        router.fleet.selector.selection._random = cycle(
            [n * 7 % 20 / 20 for n in range(1, 21)]
        ).__next__
        router.deployment("one").warm(time.monotonic() - warmth * seconds)
        for _ in range(20):
            await router.ask()
        assert [len(one.requests), len(two.requests)] == [share, 20 - share]


async def test_a_sick_fleet_is_not_stormed(stream: bool) -> None:
    budget = {"ratio": 0, "reserve": 2}
    async with pair(BAD, BAD, BAD, retry_budget=budget) as (router, one, two):
        two.default = STREAM if stream else GOOD
        assert [by(await router.ask(stream=stream)) for _ in range(2)] == ["two"] * 2
        assert not sum(await router.metric("pointsman_retries_denied_total"))
        reply = await router.ask(stream=stream)
        assert (reply.status, reply.error["code"]) == (502, "upstream_error")
        assert reply.error["message"] == "Endpoint 'one' failed (HTTP 500)."
        assert reply.headers["X-Pointsman-Attempts"] == "1"
        assert await router.metric("pointsman_retries_denied_total") == [1.0]
        [line] = [line for line in router.log if line["event"] == "retry budget is spent"]
        assert line["model"] == "m"
        assert [len(one.requests), len(two.requests)] == [3, 2]
        assert by(await router.ask(stream=stream)) == "two", "the breaker is open by now"


async def test_who_was_not_reached_costs_no_budget() -> None:
    async with refused_port() as address, Upstream(default=GOOD) as two:
        endpoints = [endpoint(address, "chat"), endpoint(two, "chat", "two", priority=2)]
        budget, breaker = {"ratio": 0, "reserve": 0}, {"open_seconds": 60, "slow_start": 0}
        balance = {"policy": "priority", "retry_budget": budget, "breaker": breaker}
        async with routing(*endpoints, balance=balance) as router:
            one = router.deployment("one").endpoint
            await until(one.probed.is_set)
            one.host.reachable(time.monotonic())
            reply = await router.ask()
            assert (by(reply), reply.headers["X-Pointsman-Attempts"]) == ("two", "2")
