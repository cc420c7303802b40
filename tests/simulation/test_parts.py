"""The parts of the simulation: what they do is exact, and the same each time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from math import inf
from statistics import mean

import pytest

from router.errors import UpstreamFailure, UpstreamTimeout
from router.settings.schema import TimeoutSettings
from tests.simulation.decoding import Decoding
from tests.simulation.line import Line
from tests.simulation.memory import Memory
from tests.simulation.report import quantile
from tests.simulation.scene import MODELS
from tests.simulation.trace import make_trace
from tests.support.clock import run_in_virtual_time

SIZES = {"a": 10.0, "b": 10.0, "c": 10.0}


async def seconds(work: Awaitable[object]) -> float:
    """How long it takes."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await work
    return loop.time() - began


def test_answers_share_the_machine() -> None:
    async def scene() -> list[float]:
        decoding = Decoding(step=0.1, share=0.05)
        alone = await seconds(decoding.tokens(10))
        both = await asyncio.gather(seconds(decoding.tokens(10)), seconds(decoding.tokens(20)))
        return [alone, *both]

    assert run_in_virtual_time(scene()) == pytest.approx([1.0, 1.5, 2.5])


def test_what_is_cancelled_makes_room_for_the_others() -> None:
    async def scene() -> float:
        decoding = Decoding(step=0.1, share=0.1)
        other = asyncio.create_task(decoding.tokens(1000))
        asyncio.get_running_loop().call_later(1.0, other.cancel)
        return await seconds(decoding.tokens(10))

    assert run_in_virtual_time(scene()) == pytest.approx(1.5)


def test_a_stall_is_time_in_which_nothing_happens() -> None:
    async def scene() -> float:
        decoding = Decoding(step=0.1, share=0.0)
        loop = asyncio.get_running_loop()
        loop.call_later(0.5, decoding.slow_down, inf)
        loop.call_later(30.5, decoding.slow_down, 2.0)
        return await seconds(decoding.tokens(10))

    assert run_in_virtual_time(scene()) == pytest.approx(0.5 + 30.0 + 1.0)


async def use(memory: Memory, model: str, work: float) -> None:
    async with memory.using(model):
        await asyncio.sleep(work)


def test_the_model_that_was_used_longest_ago_makes_room() -> None:
    gone: list[str] = []

    async def scene() -> list[float]:
        memory = Memory(SIZES, room=20.0, speed=2.0, evicted=gone.append)
        times = [await seconds(use(memory, model, 1.0)) for model in "abaca"]
        assert memory.loads == Counter("abc")
        assert sorted(memory.listed()) == ["a", "c"]
        return times

    assert run_in_virtual_time(scene()) == pytest.approx([6.0, 6.0, 1.0, 6.0, 1.0])
    assert gone == ["b"]


def test_a_model_at_work_goes_when_it_is_done_and_is_loaded_again_for_the_next() -> None:
    async def scene() -> list[float]:
        memory = Memory(SIZES, room=10.0, speed=10.0, evicted=lambda model: None)
        works = [("a", 20.0), ("b", 1.0), ("a", 1.0)]
        return await asyncio.gather(*(seconds(use(memory, *work)) for work in works))

    # The third comes while the second waits for the first, and after it.
    assert run_in_virtual_time(scene()) == pytest.approx([21.0, 23.0, 25.0])


@pytest.mark.parametrize(
    ("happens", "error", "after"),
    [
        pytest.param(lambda line: None, UpstreamTimeout, 60.0, id="no first byte"),
        pytest.param(Line.cut, UpstreamFailure, 10.0, id="cut"),
        pytest.param(Line.silent, UpstreamTimeout, 60.0, id="silent before the first byte"),
        pytest.param(
            lambda line: (line.output(), line.silent()), UpstreamTimeout, 70.0, id="silent after it"
        ),
    ],
)
def test_a_line_has_the_routers_deadlines(
    happens: Callable[[Line], object], error: type[Exception], after: float
) -> None:
    async def scene() -> float:
        line = Line(TimeoutSettings(first_byte=60.0, idle=60.0), lambda: None)
        asyncio.get_running_loop().call_later(10.0, happens, line)
        with pytest.raises(error):
            await line.carry(asyncio.sleep(1000.0))
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(scene()) == pytest.approx(after)


def test_a_trace_is_what_it_says() -> None:
    trace = make_trace(1, 60.0, 3.0, MODELS)
    assert trace == make_trace(1, 60.0, 3.0, MODELS)
    assert trace != make_trace(2, 60.0, 3.0, MODELS)
    assert 0.8 * 10_800 < len(trace) < 1.2 * 10_800
    assert [request.at for request in trace] == sorted(request.at for request in trace)
    shares = Counter(request.model for request in trace)
    assert 0.7 < shares["general"] / len(trace) < 0.8
    # Busiest in the middle of its day.
    thirds = Counter(int(request.at // 1200.0) for request in trace)
    assert thirds[1] > 1.3 * max(thirds[0], thirds[2])


def test_a_conversation_sends_its_history_again() -> None:
    trace = make_trace(1, 20.0, 3.0, MODELS)
    last: dict[int, tuple[int, int]] = {}
    for request in trace:
        before = last.get(request.conversation)
        assert (before is None) == (request.turn == 0)
        if before is not None:
            assert request.history == sum(before)
            assert len(request.body["input"]) == 2 * request.turn + 1
        assert request.prompt > request.history
        last[request.conversation] = (request.prompt, request.output)
    assert mean(request.turn for request in trace) > 1.0


@pytest.mark.parametrize(("q", "expected"), [(0.5, 2), (0.51, 3), (0.99, 4), (1.0, 4), (0.0, 1)])
def test_a_quantile_is_one_of_the_values(q: float, expected: float) -> None:
    assert quantile([4, 1, 3, 2], q) == expected
