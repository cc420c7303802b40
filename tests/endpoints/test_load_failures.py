"""What becomes of those who wait for a load that fails, and of the model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from cache.breaker import BreakerState
from router.endpoints import loads as loads_module
from router.errors import (
    ModelLoadFailed,
    NotSupported,
    UpstreamError,
    UpstreamRejected,
    UpstreamUnavailable,
)
from tests.support.upstream import (
    Upstream,
    Wire,
    by_path,
    json_answer,
    refused_port,
    reset_now,
    whole,
)
from tests.support.waiting import until
from tests.support.watched import LATEST, NEVER, Watched, cold_ollama, one, state, told, watched


@asynccontextmanager
async def answering(*answers: tuple[int, str], **fields: Any) -> AsyncIterator[Watched]:
    """An Ollama with nothing in memory, which answers requests to load with these, in turn.

    A request holds a slot meanwhile, as it does when it waits for a load.
    """
    left = list(answers)
    lists = {
        "/api/tags": json_answer({"models": [{"name": LATEST}]}),
        "/api/ps": json_answer({"models": []}),
    }

    async def generate(wire: Wire) -> None:
        status, text = left.pop(0) if len(left) > 1 else left[0]
        await whole(text.encode(), status, kind="text/plain")(wire)

    upstream = Upstream(default=by_path({"/api/generate": generate}), on_get=by_path(lists))
    async with upstream, watched(one(upstream.address, "ollama", **fields)) as fleet:
        await until(lambda: fleet["one"].ready)
        await told(fleet.deployment(LATEST), loaded=False)
        fleet.deployment(LATEST).take()
        yield fleet


async def test_a_load_that_takes_too_long_sends_everybody_elsewhere() -> None:
    async with cold_ollama(load_seconds=NEVER, timeouts={"load": 0.2}) as (fleet, memory):
        deployment = fleet.deployment(LATEST)
        began = time.monotonic()
        results = await asyncio.gather(
            *(fleet.loads.ensure(deployment) for _ in range(3)), return_exceptions=True
        )
        assert len({id(result) for result in results}) == 3
        for error in results:
            assert isinstance(error, ModelLoadFailed)
            assert isinstance(error, UpstreamError)
            assert (error.elsewhere, error.again, error.status) == (True, False, 503)
            assert error.message == (
                f"Endpoint 'one' could not load the model '{LATEST}': "
                "it was not done within 0.2 s (timeouts.load)."
            )
            assert error.headers == {"Retry-After": "30"}
        assert state(deployment) == (False, "cooling")
        assert began + 30 <= deployment.cool_until <= time.monotonic() + 30
        assert deployment.load_began is None
        # Giving up reaches Ollama: nothing is being loaded any more.
        await until(lambda: not memory.listed())


async def test_a_load_that_fails_is_no_matter_of_the_breakers() -> None:
    async with answering((500, '{"error": "model requires more memory"}')) as fleet:
        deployment = fleet.deployment(LATEST)
        for _ in range(5):
            with pytest.raises(ModelLoadFailed, match="HTTP 500 after"):
                await fleet.loads.ensure(deployment)
            deployment.cool_until = 0.0
        now = time.monotonic()
        assert deployment.breaker.state(now) is BreakerState.CLOSED
        assert deployment.breaker.failure_ratio(now) == 0.0
        assert fleet["one"].host.up


async def test_what_it_says_of_a_failure_goes_to_the_log_without_the_key() -> None:
    with capture_logs() as log:
        async with answering((500, "no memory for sk-upstream"), api_key="sk-upstream") as fleet:
            with pytest.raises(ModelLoadFailed) as caught:
                await fleet.loads.ensure(fleet.deployment(LATEST))
    assert "memory" not in caught.value.message
    (line,) = [line for line in log if line["event"] == "model not loaded"]
    assert line["error"] == "HTTP 500: no memory for [api_key]"
    assert (line["endpoint"], line["model"], line["pause"]) == ("one", LATEST, 30)


async def test_a_model_that_cannot_be_loaded_is_left_alone_longer_and_longer() -> None:
    failed = (500, "")
    async with answering(*[failed] * 6, (200, "{}"), failed) as fleet:
        deployment = fleet.deployment(LATEST)
        pauses = []
        for _ in range(8):
            began = time.monotonic()
            try:
                await fleet.loads.ensure(deployment)
            except ModelLoadFailed as error:
                pauses.append(int(error.headers["Retry-After"]))
                assert deployment.cool_until >= began + pauses[-1]
            else:
                pauses.append(0)
                deployment.loaded = False
            deployment.cool_until = time.monotonic()
        assert pauses == [30, 60, 120, 240, 300, 300, 0, 30]


async def test_a_failure_long_ago_is_forgotten() -> None:
    async with answering((500, "")) as fleet:
        deployment = fleet.deployment(LATEST)
        pauses = []
        for _ in range(2):
            with pytest.raises(ModelLoadFailed) as caught:
                await fleet.loads.ensure(deployment)
            pauses.append(caught.value.headers["Retry-After"])
            deployment.cool_until = time.monotonic() - 301
        assert pauses == ["30", "30"]


@pytest.mark.parametrize(("status", "text"), [(404, "404 page not found"), (405, ""), (501, "")])
async def test_who_does_not_know_such_requests_is_not_asked_again(status: int, text: str) -> None:
    # A second request would be answered by a failure.
    async with answering((status, text), (500, "")) as fleet:
        deployment = fleet.deployment(LATEST)
        await fleet.loads.ensure(deployment)
        await fleet.loads.ensure(deployment)
        assert not state(deployment)[0]
        assert deployment.load_began is None
        # Once a request was answered the model is there.
        deployment.answered(time.monotonic(), 0.1)
        assert state(deployment)[0]
        with pytest.raises(NotSupported):
            await fleet.loads.warm(deployment, None)


async def test_who_did_not_know_is_asked_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("router.endpoints.loads._ASKED_AGAIN", 0.0)
    async with answering((404, "404 page not found"), (200, "{}")) as fleet:
        deployment = fleet.deployment(LATEST)
        await fleet.loads.ensure(deployment)
        assert not state(deployment)[0]
        await fleet.loads.ensure(deployment)
        assert state(deployment)[0]


async def test_what_is_refused_is_for_the_request_itself_to_find_out() -> None:
    text = """{"error": "model 'm' not found, try pulling it first"}"""
    async with answering((404, text), (200, '{"load_duration": 5000000000}')) as fleet:
        deployment = fleet.deployment(LATEST)
        await fleet.loads.ensure(deployment)
        assert not state(deployment)[0]
        assert deployment.cool_until == 0.0
        await fleet.loads.ensure(deployment)
        assert state(deployment)[0]
        assert deployment.load_time.value == 5.0


async def test_a_model_that_turns_out_to_be_there_teaches_nothing_about_loading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loads_module, "_NO_LOAD_SECONDS", 5.0)
    async with answering((200, '{"done": true}')) as fleet:
        deployment = fleet.deployment(LATEST)
        await fleet.loads.ensure(deployment)
        assert state(deployment)[0]
        assert deployment.load_time.value is None


async def test_without_a_connection_the_endpoint_is_to_blame_and_not_the_model() -> None:
    async with refused_port() as url, watched(one(url, "ollama", models=["m"])) as fleet:
        deployment = fleet.deployment("m")
        deployment.loaded = False
        for _ in range(2):
            with pytest.raises(UpstreamUnavailable) as caught:
                await fleet.loads.ensure(deployment)
            assert caught.value.again
        assert deployment.cool_until == 0.0


async def test_a_connection_that_breaks_is_a_load_that_failed() -> None:
    async with (
        Upstream(default=reset_now) as upstream,
        watched(one(upstream.address, "ollama")) as fleet,
    ):
        await until(lambda: fleet["one"].ready)
        deployment = fleet.deployment("m")
        deployment.loaded = False
        with pytest.raises(ModelLoadFailed, match="closed the connection, not answering"):
            await fleet.loads.ensure(deployment)
        assert state(deployment) == (False, "cooling")
        assert fleet["one"].host.up


@pytest.mark.parametrize(
    ("status", "error"), [(404, UpstreamRejected), (400, UpstreamRejected), (500, ModelLoadFailed)]
)
async def test_why_a_model_cannot_be_warmed_is_told(status: int, error: type[Exception]) -> None:
    async with answering((status, '{"error": "the model does not want to"}')) as fleet:
        with pytest.raises(error):
            await fleet.loads.warm(fleet.deployment(LATEST), "1h")


async def test_a_bug_in_a_load_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*args: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(loads_module, "load", broken)
    with capture_logs() as log:
        async with cold_ollama() as (fleet, _):
            with pytest.raises(ModelLoadFailed, match="it was given up"):
                await fleet.loads.ensure(fleet.deployment(LATEST))
    assert "task failed" in [line["event"] for line in log]
