"""An endpoint whose list of models fails, and which serves requests all the same, is not down."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.upstream import Script, Upstream, json_answer
from tests.support.watched import Watched, one, watched


def lists(status: int) -> Script:
    """A list with this status."""
    return json_answer({"data": [{"id": "m"}]}, status)


@asynccontextmanager
async def listing(status: int, **fields: Any) -> AsyncIterator[tuple[Watched, Upstream]]:
    """An endpoint that answers its list with a status, which may be changed."""
    async with (
        Upstream(on_get=lists(status)) as upstream,
        watched(one(upstream.address, **fields)) as fleet,
    ):
        await fleet.more()
        yield fleet, upstream


@pytest.mark.parametrize(
    ("status", "up"), [(500, True), (503, True), (403, True), (404, True), (401, False)]
)
async def test_with_configured_models_the_list_is_not_needed(status: int, up: bool) -> None:
    async with listing(status, models=["m"]) as (fleet, _):
        endpoint = fleet["one"]
        assert (endpoint.host.up, endpoint.ready) == (up, up)
        assert endpoint.problem is not None
        assert str(status) in endpoint.problem


@pytest.mark.parametrize("status", [500, 401, 403])
async def test_what_lists_nothing_and_answers_nobody_is_down(status: int) -> None:
    async with listing(status) as (fleet, _):
        assert not fleet["one"].host.up


@pytest.mark.parametrize("status", [500, 401, 403])
async def test_requests_that_succeed_say_more(status: int) -> None:
    async with listing(200) as (fleet, upstream):
        endpoint = fleet["one"]
        deployment = fleet.deployment("m")
        assert endpoint.host.up
        deployment.answered(time.monotonic() + 3600, None)  # ever since
        upstream.on_get = lists(status)
        await fleet.more()
        assert endpoint.host.up
        assert endpoint.problem is not None


async def test_nobody_there_is_nobody_there() -> None:
    async with watched(one("http://127.0.0.1:1", models=["m"])) as fleet:
        await fleet.more()
        assert not fleet["one"].host.up
