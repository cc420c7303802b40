"""Which endpoint a request gets, and what it is told when there is none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from router.endpoints.registry import Endpoint, Registry, Target
from router.endpoints.slots import SlotKey
from router.errors import ModelNotFound, Overloaded, UpstreamUnavailable
from router.settings.schema import Balance, EndpointSettings
from router.upstream.adapters import make_adapter
from router.upstream.http1 import HttpTransport


def endpoint(name: str, listed: list[str] | None = None, **fields: Any) -> Endpoint:
    """An endpoint that was probed and listed these models, or is still to be asked."""
    settings = EndpointSettings.model_validate(
        {"name": name, "url": f"http://{name}:1", "dialect": "chat", **fields}
    )
    made = Endpoint(settings, make_adapter(settings), HttpTransport(settings))
    if listed is not None:
        made.catalogue.update(listed)
        made.probed.set()
    return made


class Depot(Registry):
    """A registry that remembers what it reported."""

    def __init__(self, *endpoints: Endpoint, **balance: Any) -> None:
        self.reported: list[tuple[SlotKey, int]] = []
        super().__init__(
            endpoints,
            Balance.model_validate(balance),
            lambda slot, count: self.reported.append((slot, count)),
        )


def names(targets: tuple[Target, ...]) -> list[tuple[str, str]]:
    return [(target.endpoint.name, target.model) for target in targets]


async def test_targets_are_all_that_serve_the_model_under_their_own_names() -> None:
    depot = Depot(
        endpoint("a", ["m"]),
        endpoint("b", ["x"], aliases={"m": "x"}),
        endpoint("c", ["m:latest"], dialect="ollama"),
        endpoint("d", ["other"]),
        endpoint("e", [], models=["m*"]),
    )
    assert names(await depot.targets("m")) == [
        ("a", "m"), ("b", "x"), ("c", "m:latest"), ("e", "m"),
    ]  # fmt: skip


async def test_what_was_found_is_forgotten_when_a_catalogue_changes() -> None:
    one, two = endpoint("a", ["m"]), endpoint("b", [])
    depot = Depot(one, two)
    assert names(await depot.targets("m")) == [("a", "m")]
    assert not depot.known_model("n")
    two.catalogue.update(["m", "n"])
    one.catalogue.update([])
    depot.catalogue_changed()
    assert names(await depot.targets("m")) == [("b", "m")]
    assert depot.known_model("n")


async def test_an_unknown_model_is_a_404_that_names_what_is_served() -> None:
    depot = Depot(endpoint("a", ["m", "n"], aliases={"small": "m"}), endpoint("b", ["n", "o"]))
    with pytest.raises(ModelNotFound) as caught:
        await depot.targets("x")
    assert caught.value.message == "The model 'x' does not exist here. Served: m, n, small, o."
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")


async def test_long_names_and_long_lists_are_cut() -> None:
    depot = Depot(endpoint("a", [f"{'m' * 250}{number}" for number in range(5000)]))
    with pytest.raises(ModelNotFound) as caught:
        await depot.targets("x" * 100_000)
    assert len(caught.value.message) < 5000
    assert "and 4980 more" in caught.value.message
    with pytest.raises(UpstreamUnavailable) as unavailable:
        await Depot(endpoint("a", timeouts={"connect": 0.001})).targets("x" * 100_000)
    assert len(unavailable.value.message) < 500


async def test_an_endpoint_that_was_never_heard_of_makes_it_a_503() -> None:
    depot = Depot(endpoint("a", ["m"]), endpoint("b", timeouts={"connect": 0.01}))
    depot.endpoints[1].probed.set()  # in vain: it has listed nothing
    with pytest.raises(UpstreamUnavailable, match="b") as caught:
        await depot.targets("x")
    assert caught.value.headers == {"Retry-After": "5"}
    assert names(await depot.targets("m")) == [("a", "m")]


async def test_an_endpoint_that_is_down_keeps_its_models() -> None:
    depot = Depot(endpoint("a", ["m"]))
    depot.endpoints[0].failed_to_connect()
    assert names(await depot.targets("m")) == [("a", "m")]
    assert depot.endpoints[0].probe_now.is_set()


async def test_who_asks_early_waits_for_whoever_serves_it_and_nobody_else() -> None:
    fast, slow = endpoint("fast"), endpoint("slow")
    depot = Depot(fast, slow, endpoint("known", ["k"]))
    asked = [asyncio.ensure_future(depot.targets("m")) for _ in range(3)]
    await asyncio.sleep(0)
    assert names(await depot.targets("k")) == [("known", "k")]
    fast.catalogue.update(["m"])
    depot.catalogue_changed()
    depot.probed(fast)
    for task in asked:
        assert names(await task) == [("fast", "m")]
    assert not slow.probed.is_set()


async def test_who_asks_early_for_what_nobody_has_waits_for_all() -> None:
    first, last = endpoint("first"), endpoint("last")
    depot = Depot(first, last)
    asked = asyncio.ensure_future(depot.targets("m"))
    for made in (first, last):
        await asyncio.sleep(0)
        assert not asked.done()
        made.catalogue.update(["n"])
        depot.catalogue_changed()
        depot.probed(made)
    with pytest.raises(ModelNotFound):
        await asked


async def test_the_wait_for_the_first_probe_is_bounded() -> None:
    depot = Depot(endpoint("a", timeouts={"connect": 0.02}))
    with pytest.raises(UpstreamUnavailable):
        await depot.targets("m")


async def test_known_models_are_no_matches_of_patterns() -> None:
    depot = Depot(endpoint("a", ["x1"], models=["m", "x*"], aliases={"small": "m"}))
    known = ["m", "x1", "small"]
    assert [name for name in [*known, "x2", "", "other"] if depot.known_model(name)] == known
    assert names(await depot.targets("x2")) == [("a", "x2")]
    assert depot.public_models() == known


async def test_the_least_loaded_is_taken_and_given_back() -> None:
    depot = Depot(endpoint("a", ["m"]), endpoint("b", ["m"]))
    targets = await depot.targets("m")
    async with depot.reserve(targets) as first, depot.reserve(targets) as second:
        assert {first.endpoint.name, second.endpoint.name} == {"a", "b"}
        assert depot.slots.in_flight(first.slot) == 1
    assert sorted(depot.reported) == [
        (("a", "m"), 0), (("a", "m"), 1), (("b", "m"), 0), (("b", "m"), 1),
    ]  # fmt: skip


async def test_slots_are_counted_by_model() -> None:
    depot = Depot(endpoint("a", ["m", "n"], max_in_flight=1), queue_size=0)
    m, n = await depot.targets("m"), await depot.targets("n")
    async with depot.reserve(m), depot.reserve(n):
        with pytest.raises(Overloaded):
            async with depot.reserve(m):
                pass


async def test_who_waits_gets_the_first_slot_anywhere() -> None:
    depot = Depot(*(endpoint(name, ["m"], max_in_flight=1) for name in "ab"))
    targets = await depot.targets("m")
    waiting: asyncio.Task[Target]

    async def wait() -> Target:
        async with depot.reserve(targets) as target:
            return target

    async with depot.reserve(targets) as first:
        async with depot.reserve(targets) as second:
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0)
            assert depot.slots.waiting == 1
        assert (await waiting).endpoint.name == second.endpoint.name
        assert first.endpoint.name != second.endpoint.name
    assert depot.slots._in_flight == {}


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
async def test_a_slot_is_given_back_whatever_happens(error: type[BaseException]) -> None:
    depot = Depot(endpoint("a", ["m"]))
    with pytest.raises(error):
        async with depot.reserve(await depot.targets("m")):
            raise error
    assert depot.slots._in_flight == {}


async def taken(depot: Depot, preferred: tuple[Target, ...], among: tuple[Target, ...]) -> set[str]:
    """Who gets 30 requests, one after the other."""
    found = set()
    for _ in range(30):
        async with depot.reserve(among, preferred) as target:
            found.add(target.endpoint.name)
    return found


async def test_who_is_preferred_wins_while_it_can() -> None:
    depot = Depot(*(endpoint(name, ["m"], max_in_flight=2) for name in "abc"))
    every = await depot.targets("m")
    a, b, _ = every
    assert await taken(depot, (a,), every) == {"a"}
    assert await taken(depot, (a, b), every) == {"a", "b"}
    assert await taken(depot, (), every) == {"a", "b", "c"}
    async with depot.reserve((a,)):  # busier than the others
        assert await taken(depot, (a,), every) == {"a"}
        async with depot.reserve((a,)):  # full
            assert await taken(depot, (a,), every) == {"b", "c"}
    a.endpoint.answers = False
    assert await taken(depot, (a,), every) == {"b", "c"}


async def test_who_is_preferred_but_was_tried_already_is_not_taken_again() -> None:
    depot = Depot(*(endpoint(name, ["m"]) for name in "ab"))
    a, b = await depot.targets("m")
    assert await taken(depot, (a,), (b,)) == {"b"}


async def test_who_does_not_answer_comes_last() -> None:
    depot = Depot(*(endpoint(name, ["m"], max_in_flight=1) for name in "ab"))
    a, b = every = await depot.targets("m")
    a.endpoint.failed_to_connect()
    assert await taken(depot, (), every) == {"b"}
    async with depot.reserve((b,)):
        assert await taken(depot, (), every) == {"a"}


async def test_memory_does_not_grow_with_what_clients_ask_for() -> None:
    depot = Depot(endpoint("a", [], models=["*"]))
    for number in range(5000):
        assert await depot.targets(f"name-{number}")
    assert len(depot._targets) <= 4096
    await depot.targets("x" * 10_000)
    assert max(map(len, depot._targets)) < 300
