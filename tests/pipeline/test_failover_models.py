"""Another model takes over when one cannot be served, and what is learned of what models can do."""

from __future__ import annotations

import time
from typing import Any

import pytest

from router.endpoints.plan import LACKS_CONTEXT, LACKS_FEATURE
from router.errors import (
    InvalidRequest,
    ModelNotFound,
    NotSupported,
    RouterError,
    UpstreamFailure,
    UpstreamRejected,
)
from router.pipeline.failover import FALLBACK
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
    of_error,
    refused,
    reset,
)

QUALIFIES = [failed, reset, away, busy, late, limited, missing, NotSupported("no")]


@pytest.mark.parametrize("error", QUALIFIES, ids=of_error)
async def test_another_model_takes_over(error: RouterError) -> None:
    scene = Scene("a", fallbacks={"m": ["n"], "n": ["m"]}, max_attempts=1)
    if error is away:
        scene = Scene(
            [backend("a", "m"), backend("b", "n")], fallbacks={"m": ["n"]}, max_attempts=1
        )
    work = await scene.run(error)
    assert scene.error is None
    assert [asked[2:] for asked in work.asked] == ["m", "n"]
    assert work.models[-1] == "n"
    assert scene.exchange.result.headers[FALLBACK] == "n"
    assert scene.exchange.model == "m"
    assert scene.count("pointsman_fallbacks", model="m", fallback="n") == 1


@pytest.mark.parametrize(
    "error", [refused, InvalidRequest("odd"), InvalidRequest("odd", code="other")], ids=of_error
)
async def test_no_other_model_is_asked_for_a_fault_of_the_request(error: RouterError) -> None:
    scene = Scene("a", fallbacks={"m": ["n"]})
    work = await scene.run(error)
    assert scene.error is error
    assert work.asked == ["a m"]
    assert FALLBACK not in scene.exchange.result.headers


async def test_fallbacks_are_tried_in_their_order_with_attempts_of_their_own() -> None:
    backends = [backend(name, "m", "n", "o") for name in "ab"]
    scene = Scene(backends, fallbacks={"m": ["n", "o"]}, max_attempts=2)
    errors = [UpstreamFailure(f"number {number}") for number in range(9)]
    work = await scene.run(*errors)
    assert [asked[2:] for asked in work.asked] == ["m", "m", "n", "n", "o", "o"]
    assert scene.error is errors[5]
    assert scene.exchange.result.headers[FALLBACK] == "o"


async def test_a_model_that_nobody_serves_or_that_is_full_is_replaced() -> None:
    backends = [backend("a", "m", "n", max_in_flight=1)]
    scene = Scene(backends, fallbacks={"m": ["n"], "gone": ["m"]})
    scene.depot.registry.probed(scene.depot["a"])
    work = await scene.run(exchange=asking(model="gone"))
    assert work.asked == ["a m"]
    scene.depot.deployment("a").take()
    work = await scene.run()
    assert work.asked == ["a n"]
    await scene.run(exchange=asking(model="missing"))
    assert isinstance(scene.error, ModelNotFound)


@pytest.mark.parametrize(
    ("capabilities", "body"),
    [
        pytest.param({"tools": False}, {"tools": TOOLS}, id=LACKS_FEATURE),
        pytest.param({"context_length": 9}, {"input": "word " * 99}, id=LACKS_CONTEXT),
    ],
)
async def test_what_a_model_is_known_not_to_do_another_one_may(
    capabilities: dict[str, Any], body: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    backends = [backend("a", "m", "n", capabilities={"m": capabilities})]
    scene = Scene(backends, fallbacks={"m": ["n"]})
    assert (await scene.run(exchange=asking(**body))).asked == ["a n"]
    without = Scene(backends)
    await without.run(exchange=asking(**body))
    assert isinstance(without.error, InvalidRequest)
    assert without.error.code == request.node.callspec.id


async def test_what_is_sick_is_asked_only_where_there_is_no_other_model() -> None:
    for fallbacks, expected in (({"m": ["n"]}, ["b n"]), ({}, ["a m"])):
        scene = Scene([backend("a", "m"), backend("b", "n")], fallbacks=fallbacks)
        scene.depot["a"].unreachable(time.monotonic())
        assert (await scene.run()).asked == expected


async def test_a_refusal_teaches_and_the_next_one_is_asked() -> None:
    scene = Scene("abc", max_attempts=1, affinity=0.0)
    work = await scene.run(NO_TOOLS, NO_TOOLS, exchange=asking(tools=TOOLS))
    assert scene.error is None
    assert len(set(work.asked)) == 3
    able = work.asked[-1]
    for _ in range(5):
        assert (await scene.run(exchange=asking(tools=TOOLS))).asked == [able]
    others = {(await scene.run()).asked[0] for _ in range(40)}
    assert others == set(work.asked)  # without tools everybody is asked


async def test_what_nobody_can_do_is_refused_without_asking_from_then_on() -> None:
    scene = Scene("ab", max_attempts=1)
    work = await scene.run(NO_TOOLS, NO_TOOLS, exchange=asking(tools=TOOLS))
    assert scene.error is NO_TOOLS
    assert len(work.asked) == 2
    work = await scene.run(exchange=asking(tools=TOOLS))
    assert work.asked == []
    assert isinstance(scene.error, InvalidRequest)
    assert scene.error.code == LACKS_FEATURE


async def test_a_lesson_lets_another_model_take_over() -> None:
    scene = Scene("a", fallbacks={"m": ["n"]})
    work = await scene.run(NO_TOOLS, exchange=asking(tools=TOOLS))
    assert work.asked == ["a m", "a n"]


async def test_nothing_is_learned_from_what_the_request_did_not_need() -> None:
    scene = Scene("ab", fallbacks={"m": ["n"]})
    work = await scene.run(NO_TOOLS)
    assert scene.error is NO_TOOLS
    assert len(work.asked) == 1
    assert [scene.depot.deployment(name).lacks for name in "ab"] == [0, 0]


async def test_a_context_is_learned() -> None:
    scene = Scene("ab")
    error = UpstreamRejected("This model's maximum context length is 4096 tokens.")
    work = await scene.run(error)
    learned = scene.depot.deployment(work.asked[0][0])
    assert learned.context == 4096
    assert len(work.asked) == 2
