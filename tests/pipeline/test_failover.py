"""The rules of trying again: where, how often, at what cost, and what is learned on the way."""

from __future__ import annotations

import asyncio

import pytest

from router.errors import (
    InvalidRequest,
    NotSupported,
    Overloaded,
    RouterError,
    UpstreamError,
)
from router.pipeline.failover import FALLBACK
from tests.support.depot import backend
from tests.support.failing import (
    Scene,
    away,
    busy,
    failed,
    late,
    limited,
    missing,
    of_error,
    refused,
    reset,
)

ELSEWHERE = [failed, reset, away, busy, late, limited, missing]


@pytest.mark.parametrize("error", ELSEWHERE, ids=of_error)
async def test_another_endpoint_is_tried(error: UpstreamError) -> None:
    scene = Scene("ab")
    work = await scene.run(error)
    assert scene.error is None
    assert sorted(work.asked) == ["a m", "b m"]
    assert work.models == ["m"]
    assert FALLBACK not in scene.exchange.result.headers


@pytest.mark.parametrize("error", ELSEWHERE, ids=of_error)
async def test_never_the_same_one_while_others_are_left(error: UpstreamError) -> None:
    scene = Scene("abcd")
    work = await scene.run(*[error] * 9)
    assert scene.error is error
    assert sorted(work.asked) == ["a m", "b m", "c m", "d m"]


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        *((error, 2) for error in (away, reset)),
        *((error, 1) for error in (failed, busy, late, limited, missing, refused)),
    ],
    ids=of_error,
)
async def test_the_only_one_is_tried_again_after_its_connection_failed(
    error: UpstreamError, attempts: int
) -> None:
    scene = Scene("a")
    work = await scene.run(*[error] * 9)
    assert scene.error is error
    assert work.asked == ["a m"] * attempts
    again = await Scene("a").run(error)
    assert len(again.asked) == attempts


async def test_the_only_one_that_is_left_is_not_the_only_one() -> None:
    work = await Scene("ab").run(failed, reset, None)
    assert sorted(work.asked) == ["a m", "b m"]


async def test_the_only_one_that_can_carry_it_is_tried_again() -> None:
    """What refused to translate the request has not been asked."""
    scene = Scene("ab")
    work = await scene.run(NotSupported("not here"), reset)
    assert scene.error is None
    assert work.asked[1] == work.asked[2] != work.asked[0]


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("endpoints", ["a", "abcd"])
async def test_attempts_are_bounded(most: int, endpoints: str) -> None:
    scene = Scene(endpoints, max_attempts=most)
    work = await scene.run(*[reset] * 9)
    assert len(work.asked) == min(most, 4 if len(endpoints) > 1 else 2)


async def test_nothing_is_tried_again_after_output() -> None:
    scene = Scene("ab", fallbacks={"m": ["n"]})
    work = await scene.run(reset, output=True)
    assert scene.error is reset
    assert len(work.asked) == 1


async def test_a_fault_of_the_request_is_nobody_elses() -> None:
    scene = Scene("ab", fallbacks={"m": ["n"]})
    work = await scene.run(refused)
    assert scene.error is refused
    assert len(work.asked) == 1


@pytest.mark.parametrize("kind", [InvalidRequest, NotSupported])
async def test_what_one_dialect_cannot_carry_another_may(kind: type[RouterError]) -> None:
    first, second = kind("first"), kind("second")
    scene = Scene("ab", max_attempts=1)
    work = await scene.run(first)
    assert scene.error is None
    assert len(work.asked) == 2
    await scene.run(first, second)
    assert scene.error is first


async def test_why_it_went_elsewhere_is_told_where_nowhere_else_is_room() -> None:
    scene = Scene([backend("a", "m"), backend("b", "m", max_in_flight=1)])
    scene.depot.deployment("b").take()
    await scene.run(failed)
    assert scene.error is failed
    await scene.run(NotSupported("not here"))
    assert isinstance(scene.error, Overloaded)


@pytest.mark.parametrize("outcome", [ValueError, asyncio.CancelledError])
async def test_whatever_happens_the_slot_is_given_back(outcome: type[BaseException]) -> None:
    scene = Scene("ab")
    work = await scene.run(outcome)
    assert isinstance(scene.error, outcome)
    assert len(work.asked) == 1
    assert not scene.depot.in_flight


async def test_retries_have_a_budget() -> None:
    scene = Scene("abcd", retry_budget={"ratio": 0.0, "reserve": 2})
    work = await scene.run(failed, failed, failed)
    assert scene.error is failed
    assert len(work.asked) == 3
    assert scene.count("pointsman_retries_denied") == 1
    work = await scene.run(failed)
    assert len(work.asked) == 1


async def test_requests_earn_retries() -> None:
    scene = Scene("ab", retry_budget={"ratio": 0.5, "reserve": 0}, breaker={"failures": 99})
    attempts = [len((await scene.run(failed)).asked) for _ in range(60)]
    assert 10 < attempts.count(2) <= 30
    assert attempts[0] == 1


async def test_what_reached_nobody_costs_nothing() -> None:
    scene = Scene("abc", retry_budget={"ratio": 0.0, "reserve": 0})
    work = await scene.run(away, away)
    assert scene.error is None
    assert len(work.asked) == 3
