"""Who serves a model, and what outlives a change of the configuration."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from router.core.key import Key
from router.core.upstream import Adapter, Transport
from router.endpoints.registry import Group
from router.errors import ModelNotFound, UpstreamUnavailable
from router.settings.document import Mistake, SettingsError
from router.settings.schema import EndpointSettings
from tests.support.depot import Depot, asking, backend, settings_of, turns


def names(group: Group) -> list[tuple[str, str]]:
    return [(deployment.endpoint.name, deployment.model) for deployment in group.deployments]


async def test_a_group_is_all_that_serve_the_model_under_their_own_names() -> None:
    depot = Depot(
        backend("a", "m"),
        backend("b", "x", aliases={"m": "x"}),
        backend("c", dialect="ollama"),
        backend("d", "other"),
        backend("e", "m*"),
    )
    depot.lists("c", "m:latest")
    group = await depot.registry.group("m")
    assert names(group) == [("a", "m"), ("b", "x"), ("c", "m:latest"), ("e", "m")]
    assert await depot.registry.group("m") is group
    assert group.at("c") is depot.deployment("c", "m:latest")
    assert group.at("d") is None


async def test_what_was_found_is_forgotten_when_a_catalogue_changes() -> None:
    depot = Depot(backend("a"), backend("b"))
    depot.lists("a", "m")
    depot.lists("b", "other")
    group = await depot.registry.group("m")
    assert names(group) == [("a", "m")]
    stale = [group.stale]
    known = depot.registry.known_models  # who holds it is kept current
    assert "n" not in depot.registry.known_models
    assert "n" not in known
    depot.lists("b", "m", "n")
    depot.lists("a", "other")
    stale.append(group.stale)
    assert stale == [False, True]
    assert names(await depot.registry.group("m")) == [("b", "m")]
    assert "n" in depot.registry.known_models
    assert known == {"m", "n", "other"}


async def test_an_unknown_model_is_a_404_that_names_what_is_served() -> None:
    depot = Depot(backend("a", "m", "n", aliases={"small": "m"}), backend("b", "n", "o"))
    for name in "ab":
        depot.lists(name)
    with pytest.raises(ModelNotFound) as caught:
        await depot.registry.group("x")
    assert caught.value.message == "The model 'x' does not exist here. Served: m, n, small, o."
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")


async def test_an_error_names_what_the_key_may_use_and_nothing_else() -> None:
    depot = Depot(backend("a", "m", "n", "o"), backend("b"))
    depot.lists("a")
    key = Key("ann", models=("n*", "x"), endpoints=("a",))
    depot.registry.probed(depot["b"])  # in vain: it has listed nothing, and is none of the key's
    with pytest.raises(ModelNotFound) as caught:
        await depot.registry.group("x", key)
    assert caught.value.message == "The model 'x' does not exist here. Served: n."
    with pytest.raises(UpstreamUnavailable, match="yet: b"):
        await depot.registry.group("x", Key("bob", models=("x",)))
    depot.lists("b", "p")
    with pytest.raises(ModelNotFound, match="Served: none"):
        await depot.registry.group("x", Key("bob", models=("x",)))


async def test_whether_a_name_or_a_pattern_is_one_of_a_model() -> None:
    depot = Depot(backend("a", "m", "gpt-5*", aliases={"small": "m"}), backend("b"))
    may_serve = depot.registry.may_serve
    assert [may_serve(name) for name in ("m", "small", "gpt-5o", "sm*", "gpt-*")] == [True] * 5
    assert [may_serve(name) for name in ("x", "x*")] == [None] * 2
    depot.lists("b", "y")
    assert [may_serve(name) for name in ("x", "x*", "y", "?")] == [False, False, True, True]


async def test_long_names_and_long_lists_are_cut() -> None:
    depot = Depot(backend("a"))
    depot.lists("a", *(f"{'m' * 250}{number}" for number in range(5000)))
    with pytest.raises(ModelNotFound) as caught:
        await depot.registry.group("x" * 100_000)
    assert len(caught.value.message) < 5000
    assert "and 4980 more" in caught.value.message
    with pytest.raises(UpstreamUnavailable) as unavailable:
        await Depot(backend("a", timeouts={"connect": 0.001})).registry.group("x" * 100_000)
    assert len(unavailable.value.message) < 500


async def test_an_endpoint_that_was_never_heard_of_makes_it_a_503() -> None:
    depot = Depot(backend("a"), backend("b", timeouts={"connect": 0.01}))
    depot.lists("a", "m")
    depot.registry.probed(depot["b"])  # in vain: it has listed nothing
    with pytest.raises(UpstreamUnavailable, match="b") as caught:
        await depot.registry.group("x")
    assert caught.value.headers == {"Retry-After": "5"}
    assert names(await depot.registry.group("m")) == [("a", "m")]


async def test_an_endpoint_that_is_down_keeps_its_models() -> None:
    depot = Depot(backend("a"))
    depot.lists("a", "m")
    depot["a"].unreachable(1.0)
    assert names(await depot.registry.group("m")) == [("a", "m")]
    assert depot["a"].probe_now.is_set()
    assert not depot["a"].ready


async def test_who_asks_early_waits_for_whoever_serves_it_and_nobody_else() -> None:
    depot = Depot(backend("fast"), backend("slow"), backend("known", "k"))
    asked = [asyncio.ensure_future(depot.registry.group("m")) for _ in range(3)]
    await asyncio.sleep(0)
    assert names(await depot.registry.group("k")) == [("known", "k")]
    depot.lists("fast", "m")
    for task in asked:
        assert names(await task) == [("fast", "m")]
    assert not depot["slow"].probed.is_set()


async def test_who_asks_early_for_what_nobody_has_waits_for_all() -> None:
    depot = Depot(backend("first"), backend("last"))
    asked = asyncio.ensure_future(depot.registry.group("m"))
    for name in ("first", "last"):
        await turns()
        assert not asked.done()
        depot.lists(name, "n")
    with pytest.raises(ModelNotFound):
        await asked


async def test_the_wait_for_the_first_probe_is_bounded() -> None:
    depot = Depot(backend("a", timeouts={"connect": 0.02}))
    with pytest.raises(UpstreamUnavailable):
        await depot.registry.group("m")


async def test_known_models_are_no_matches_of_patterns() -> None:
    depot = Depot(backend("a", "m", "x*", aliases={"small": "m"}))
    depot.lists("a", "x1")
    known = ["m", "x1", "small"]
    registry = depot.registry
    assert [n for n in [*known, "x2", "", "other"] if n in registry.known_models] == known
    assert names(await registry.group("x2")) == [("a", "x2")]
    assert registry.public_models() == known


async def test_memory_does_not_grow_with_what_clients_ask_for() -> None:
    depot = Depot(backend("a", "*"))
    for number in range(5000):
        assert await depot.registry.group(f"name-{number}")
    assert len(depot.registry._groups) <= 4096
    assert len(depot["a"].deployments) <= 4097
    await depot.registry.group("x" * 10_000)
    assert max(map(len, depot.registry._groups)) < 300
    assert len(depot["a"].host.deployments) == len(depot["a"].deployments)


async def test_what_is_in_use_is_not_forgotten() -> None:
    depot = Depot(backend("a", "*"))
    busy, idle = depot.deployment("a", "busy"), depot.deployment("a", "idle")
    (planned,) = (await depot.registry.group("planned")).deployments
    busy.take()
    for number in range(4100):
        depot.deployment("a", f"name-{number}")
    assert depot.deployment("a", "busy") is busy
    assert depot.deployment("a", "planned") is planned
    assert depot.deployment("a", "idle") is not idle


def busy_target(depot: Depot) -> Any:
    """The target of ``m`` at ``a``, with a past."""
    deployment = depot.deployment("a")
    deployment.take()
    deployment.take()
    deployment.answered(1.0, 0.5)
    deployment.service.observe(2.0)
    deployment.failed(1.0)
    return deployment


async def test_what_is_known_of_an_endpoint_survives_other_settings() -> None:
    depot = Depot(backend("a", "m", max_in_flight=4), backend("b", "m"))
    deployment, before = busy_target(depot), depot["a"]
    depot["b"].catalogue.update(["discovered"])
    depot.apply(
        backend("b", "m"),
        backend(
            "a",
            "m",
            max_in_flight=2,
            weight=3.0,
            priority=2,
            capabilities={"m": {"tools": False}},
        ),
        breaker={"failures": 2, "slow_start": 0},
    )
    assert [endpoint.name for endpoint in depot.registry.endpoints] == ["b", "a"]
    assert depot["a"] is before
    assert depot.deployment("a") is deployment
    assert (deployment.in_flight, deployment.limit, deployment.weight, deployment.tier) == (
        2,
        2,
        3.0,
        2,
    )
    assert deployment.load == 2 / 6
    assert (deployment.first_token.latest, deployment.service.value) == (0.5, 2.0)
    assert not deployment.free
    assert deployment.lacks
    deployment.failed(1.0)  # the second in a row, which is enough now
    assert deployment.breaker.opens_until
    assert [name for name, _ in depot.made] == ["a", "b", "a"]
    assert [transport.retired for _, transport in depot.made] == [True, False, False]
    assert before.transport is depot.made[2][1]
    assert before.host.slow_start == 0


async def test_what_was_discovered_survives_other_settings() -> None:
    depot = Depot(backend("a"))
    depot.lists("a", "m")
    depot.apply(backend("a", weight=2.0))
    assert names(await depot.registry.group("m")) == [("a", "m")]
    depot.apply(backend("a", "n"))
    with pytest.raises(ModelNotFound):
        await depot.registry.group("m")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"url": "http://elsewhere:1"}, id="url"),
        pytest.param({"dialect": "responses"}, id="dialect"),
        pytest.param({"api_key": "sk-other"}, id="api_key"),
    ],
)
async def test_another_backend_of_the_same_name_is_another_endpoint(change: Any) -> None:
    depot = Depot(backend("a", "m"))
    deployment, before = busy_target(depot), depot["a"]
    plan = await depot.plan()
    depot.apply(backend("a", "m", **change))
    assert depot["a"] is not before
    other = depot.deployment("a")
    assert (other.in_flight, other.first_token.known) == (0, False)
    assert deployment.in_flight == 2
    assert depot.made[0][1].retired
    # Who has planned with the one that is gone does not go there any more.
    assert depot.selector.choose(plan)[0] is None
    assert (await depot.selector.reserve(plan)).deployment is other


async def test_an_endpoint_that_is_drained_stays_so_by_its_name() -> None:
    depot = Depot(backend("a", "m"), backend("b", "m"))
    for name in "ab":
        depot[name].host.drained = True
    depot.apply(backend("a", "m", weight=2.0), backend("b", "m", url="http://elsewhere:1"))
    assert [endpoint.host.drained for endpoint in depot.registry.endpoints] == [True, True]


async def test_an_endpoint_that_is_gone_ends_what_it_began() -> None:
    depot = Depot(backend("a", "m"), backend("b", "m"))
    reservation = await depot.selector.reserve(await depot.plan())
    gone = reservation.deployment.endpoint
    left = next(e for e in depot.registry.endpoints if e is not gone)
    depot.made[0][1].busy = depot.made[1][1].busy = True
    depot.apply(backend(left.name, "m"))
    assert depot.registry.endpoints == (left,)
    assert {name: transport.retired for name, transport in depot.made} == {
        gone.name: True,
        left.name: False,
    }
    assert names(await depot.registry.group("m")) == [(left.name, "m")]
    depot.selector.release(reservation)
    assert depot.in_flight == {}
    await depot.registry.close()
    assert all(transport.closed for _, transport in depot.made)


async def test_transports_that_have_ended_are_not_kept() -> None:
    depot = Depot(backend("a", "m"))
    for number in range(20):
        depot.made[-1][1].busy = number == 0
        depot.apply(backend("a", "m", weight=number + 2.0))
    await depot.registry.close()
    closed = [number for number, (_, transport) in enumerate(depot.made) if transport.closed]
    assert closed == [0, 19, 20]  # in use, the last that was retired, and the one of now


async def test_a_configuration_that_cannot_be_made_changes_nothing() -> None:
    depot = Depot(backend("a", "m"), backend("b", "m"))
    before = depot.registry.endpoints
    plan = await depot.plan()
    connect = depot.registry._connect

    def fails(settings: EndpointSettings) -> tuple[Adapter, Transport]:
        if settings.name == "c":
            raise SettingsError([Mistake("endpoints[1].tls.ca_file", None, "cannot be read")])
        return connect(settings)

    depot.registry._connect = fails
    with pytest.raises(SettingsError):
        depot.registry.prepare(settings_of(backend("a", "m", weight=2.0), backend("c", "m")))
    assert depot.registry.endpoints == before
    assert [endpoint.settings.weight for endpoint in before] == [1.0, 1.0]
    assert not any(transport.retired for _, transport in depot.made[:2])
    assert not plan.group.stale
    assert depot.selector.choose(plan)[0] is not None


async def test_a_configuration_that_is_prepared_only_changes_nothing() -> None:
    depot = Depot(backend("a", "m"))
    depot.registry.prepare(settings_of(backend("a", "m", max_in_flight=1), backend("b", "m")))
    assert names(await depot.registry.group("m")) == [("a", "m")]
    assert depot.deployment("a").limit == 32
    assert not depot.made[0][1].retired


async def test_what_a_model_lacks_is_known_of_its_group() -> None:
    depot = Depot(
        backend("a", "m", capabilities={"m": {"vision": False, "context_length": 4096}}),
        backend("b", "m", "n", capabilities={"m": {"tools": False}}),
    )
    group = await depot.registry.group("m")
    assert {str(feature.name) for feature in group.lacks} == {"VISION", "TOOLS"}
    assert group.contexts
    other = await depot.registry.group("n")
    assert not other.lacks
    assert not other.contexts


async def test_a_plan_is_for_the_caller_and_the_model_of_the_request() -> None:
    depot = Depot(backend("a", "m"))
    plan = await depot.plan(asking("somebody"))
    assert (plan.caller, plan.group.model) == ("somebody", "m")
