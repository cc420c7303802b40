"""What a failed attempt says about its endpoint."""

from __future__ import annotations

import time

import pytest

from router.balance.deployment_state import COOLING, OPEN, READY
from router.core.exchange import Operation
from router.errors import (
    InvalidRequest,
    RouterError,
    UpstreamError,
    UpstreamFailure,
    UpstreamRateLimited,
)
from tests.support.depot import asking, backend
from tests.support.failing import (
    NO_TOOLS,
    TOOLS,
    Scene,
    away,
    busy,
    failed,
    late,
    limited,
    missing,
    not_loaded,
    of_error,
    refused,
    reset,
)


async def test_a_rate_limit_concerns_one_model_at_one_endpoint() -> None:
    scene = Scene("ab")
    work = await scene.run(UpstreamRateLimited("slow down", headers={"Retry-After": "30"}))
    first = work.asked[0][0]
    limited = scene.depot.deployment(first)
    grades = {
        f"{name} {model}": scene.depot.deployment(name, model).grade
        for name in "ab"
        for model in "mn"
    }
    assert grades == {"a m": READY, "b m": READY, "a n": READY, "b n": READY, f"{first} m": COOLING}
    assert 29 < limited.cool_until - time.monotonic() <= 30
    assert scene.depot[first].host.up
    for _ in range(5):
        assert (await scene.run()).asked[0][0] != first
    assert limited.breaker.failure_ratio(time.monotonic()) == 0.0


async def test_who_cannot_be_reached_is_left_alone_with_all_its_models() -> None:
    scene = Scene("ab")
    work = await scene.run(away)
    first = scene.depot[work.asked[0][0]]
    assert not first.host.up
    assert first.probe_now.is_set()
    assert {deployment.grade for deployment in first.deployments.values()} == {OPEN}


@pytest.mark.parametrize("error", [failed, reset, busy, late, missing], ids=of_error)
async def test_failures_are_told_to_the_breaker_of_the_model(error: UpstreamError) -> None:
    scene = Scene("ab", breaker={"failures": 1})
    work = await scene.run(error)
    first = scene.depot[work.asked[0][0]]
    assert first.host.up
    assert scene.depot.deployment(first.name).grade == OPEN
    assert scene.depot.deployment(first.name, "n").grade == READY
    assert first.probe_now.is_set() == (error is missing)
    assert scene.count(
        "pointsman_upstream_attempts", endpoint=first.name, result=error.code or ""
    ) == 1  # fmt: skip


async def test_a_route_that_is_missing_is_no_fault_of_the_model() -> None:
    scene = Scene("ab", breaker={"failures": 1})
    exchange = asking()
    exchange.request = exchange.request._replace(operation=Operation.COMPACT)
    await scene.run(missing, missing, exchange=exchange)
    assert scene.error is missing
    assert [scene.depot.deployment(name).grade for name in "ab"] == [READY, READY]


@pytest.mark.parametrize("error", [refused, limited, InvalidRequest("odd")], ids=of_error)
async def test_a_probe_that_says_nothing_is_followed_by_another(error: RouterError) -> None:
    """A refusal is an answer, and closes the breaker; anything else leaves it as it was."""
    scene = Scene("ab", breaker={"failures": 1, "open_seconds": 0.001, "slow_start": 0})
    for name in "ab":
        scene.depot.deployment(name).failed(time.monotonic() - 1.0)
        scene.depot.deployment(name).refresh(time.monotonic())
    await scene.run(error)
    assert not any(scene.depot.deployment(name).breaker.probing for name in "ab")


async def test_a_model_that_is_not_in_memory_is_loaded_first() -> None:
    scene = Scene("a")
    deployment = scene.depot.deployment("a")
    deployment.in_memory(time.monotonic(), False)
    work = await scene.run()
    assert scene.loads.asked == [deployment]
    assert work.asked == ["a m"]
    await scene.run()
    assert scene.loads.asked == [deployment]


async def test_a_load_that_fails_is_no_matter_of_the_breaker_or_the_budget() -> None:
    scene = Scene("ab", retry_budget={"ratio": 0.0, "reserve": 0}, breaker={"failures": 1})
    scene.loads.error = not_loaded
    for name in "ab":
        scene.depot.deployment(name).in_memory(time.monotonic(), False)
    work = await scene.run()
    assert scene.error is not_loaded
    assert {deployment.endpoint.name for deployment in scene.loads.asked} == {"a", "b"}
    assert work.asked == []
    assert not any(scene.depot.deployment(name).breaker.opens_until for name in "ab")


async def test_lessons_cost_retries_too() -> None:
    scene = Scene("ab", retry_budget={"ratio": 0.0, "reserve": 0})
    work = await scene.run(NO_TOOLS, exchange=asking(tools=TOOLS))
    assert scene.error is NO_TOOLS
    assert len(work.asked) == 1


async def test_an_endpoints_key_is_not_repeated() -> None:
    scene = Scene("a")
    await scene.run(UpstreamFailure("HTTP 401: the key sk-key is wrong"))
    assert str(getattr(scene.error, "message", "")) == "HTTP 401: the key [api_key] is wrong"


@pytest.mark.parametrize(("after", "told"), [(None, "5"), ("soon", "5"), ("1.5", "2"), ("0", "0")])
async def test_the_client_is_told_how_long_it_is_respected(after: str | None, told: str) -> None:
    headers = {} if after is None else {"Retry-After": after}
    error = UpstreamRateLimited("slow down", headers=headers)
    scene = Scene("a")
    await scene.run(error)
    assert scene.error is error
    assert error.headers["Retry-After"] == told


async def test_who_has_nothing_left_is_passed_over_while_there_is_another() -> None:
    scene = Scene("ab")
    now = time.monotonic()
    scene.depot.deployment("a").spent(now + 30, now)
    assert [(await scene.run()).asked[0] for _ in range(4)] == ["b m"] * 4
    assert (await scene.run(failed)).asked == ["b m", "a m"]


async def test_who_has_nothing_left_is_asked_where_nobody_else_is() -> None:
    """And no fallback: only its 429 is a refusal."""
    scene = Scene([backend("a", "m"), backend("b", "n")], {"m": ["n"]})
    now = time.monotonic()
    deployment = scene.depot.deployment("a")
    deployment.spent(now + 30, now)
    assert (await scene.run()).asked == ["b n"]
    scene.depot["b"].host.drained = True
    scene.depot["b"].host.refresh(now)
    alone = Scene("a")
    alone.depot.deployment("a").spent(now + 30, now)
    assert (await alone.run()).asked == ["a m"]
    await alone.run(UpstreamRateLimited("slow down", headers={"Retry-After": "30"}))
    assert (await alone.run()).asked == []
    assert isinstance(alone.error, UpstreamRateLimited)
