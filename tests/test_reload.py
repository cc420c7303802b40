"""Another configuration for a router that runs: taken over wholly, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from router.app import RELOADER
from tests.support.calling import answering, call, finished
from tests.support.plugins import Held, Recorder
from tests.support.reloading import (
    begun,
    keys,
    outcome,
    patient,
    pausing,
    plugin_sets,
    refused,
    reload,
    with_key,
)
from tests.support.router import endpoint, routing
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream
from tests.support.upstream import Upstream, Wire, whole
from tests.support.waiting import until

CHAT = SPEECH["chat"]
PLUGINS = "tests.support.plugins"
RECORDER = f"{PLUGINS}:Recorder"
OLD, NEW = "sk-old-secret", "sk-new-secret"


@pytest.fixture(autouse=True)
def recorders() -> Iterator[list[Recorder]]:
    """The recorders made in a test, one for each configuration with that plugin."""
    Recorder.made.clear()
    yield Recorder.made
    Recorder.made.clear()
    Held.made.clear()


async def test_a_stream_ends_on_the_plugins_and_the_key_it_began_with(
    recorders: list[Recorder],
) -> None:
    go_on = asyncio.Event()
    async with Upstream(pausing(go_on), default=whole(CHAT.whole)) as upstream:
        one = patient(upstream)
        async with routing(one, auth=keys(OLD), plugins=[RECORDER]) as router:
            async with begun(router, headers=with_key(OLD)) as stream:
                assert await reload(router, one, auth=keys(NEW), plugins=[RECORDER]) == [
                    "key added: key-new",
                    "key removed: key-old",
                ]
                old, new = recorders
                for key, status in ((OLD, 401), (NEW, 200)):
                    reply = await call(router, "GET", "/models", key=key)
                    assert reply.status == status
                assert old.heard == ["start", "admit", "started", "first_output"]
                assert new.heard == ["start", "ended", "admit", "ended"]
                go_on.set()
                assert await stream.text() == CHAT.text
            await until(lambda: "stop" in old.heard)
            assert old.heard == ["start", "admit", "started", "first_output", "ended", "stop"]
            assert "stop" not in new.heard
        assert [recorder.heard.count("stop") for recorder in recorders] == [1, 1]


async def test_plugins_hear_of_the_end_before_they_are_stopped(recorders: list[Recorder]) -> None:
    """Also of an exchange whose client has left, and which takes a moment to come to its end."""
    async with Upstream(pausing(asyncio.Event())) as upstream:
        one = patient(upstream)
        async with routing(one, plugins=[f"{PLUGINS}:Lingering"]) as router:
            async with begun(router) as stream:
                for _ in range(3):
                    await reload(router, one, plugins=[RECORDER])
                await until(lambda: len(plugin_sets(router)) == 2)
                stream.response.close()
            await until(lambda: len(plugin_sets(router)) == 1)
        begins = ["start", "admit", "started", "first_output"]
        assert recorders[0].heard == [*begins, "clean", "ended", "stop"]
        assert [recorder.heard for recorder in recorders[1:]] == [["start", "stop"]] * 3


async def test_a_background_run_begins_on_the_current_plugins(recorders: list[Recorder]) -> None:
    async with answering("chat") as upstream:
        one = endpoint(upstream, "chat")
        async with routing(one, plugins=[RECORDER]) as router:
            ident = (await router.ask(background=True)).json["id"]
            await finished(router, ident)
            await reload(router, one, plugins=[RECORDER])
            await until(lambda: len(plugin_sets(router)) == 1)
            ident = (await router.ask(background=True)).json["id"]
            await finished(router, ident)
        old, new = recorders
        # The request that submits it, the run, and those that ask how it is.
        for recorder in (old, new):
            runs = [e for e in recorder.ended_as if e.request.route == "run"]
            assert [(run.result.outcome.value if run.result.outcome else "") for run in runs] == [
                "ok"
            ]
            assert (recorder.heard[0], recorder.heard[-1]) == ("start", "stop")


async def test_endpoints_come_change_and_go() -> None:
    async with answering("chat") as first, answering("chat") as second:
        one = endpoint(first, "chat", max_in_flight=4)
        two = endpoint(second, "chat", "two")
        async with routing(one) as router:

            async def servers(times: int = 4) -> set[str]:
                replies = [await router.ask() for _ in range(times)]
                assert [reply.status for reply in replies] == [200] * times
                return {reply.headers["X-Pointsman-Endpoint"] for reply in replies}

            assert await servers() == {"one"}
            assert await reload(router, one, two) == ["endpoint added: two"]
            await until(lambda: all(e.ready for e in router.fleet.registry.endpoints))
            with router.occupied("one"):
                assert await servers() == {"two"}
            assert await router.metric("pointsman_endpoint_up") == [1, 1]
            assert await reload(router, two) == ["endpoint removed: one"]
            assert await servers() == {"two"}
            assert await router.metric("pointsman_endpoint_up", endpoint="one") == []
            await until(lambda: not first.open_wires)
            renamed = {**two, "models": ["n"], "aliases": {"m": "n"}}
            assert await reload(router, renamed) == ["endpoint changed: two (models, aliases)"]
            assert await servers() == {"two"}
            assert second.requests[-1].json["model"] == "n"
            listed = (await call(router, "GET", "/models")).json["data"]
            assert [model["id"] for model in listed] == ["n", "m"]


async def test_a_request_that_fails_goes_on_at_who_has_come_meanwhile() -> None:
    go_on = asyncio.Event()

    async def fails(wire: Wire) -> None:
        await go_on.wait()
        await whole(b"{}", 500)(wire)

    async with Upstream(fails) as first, answering("chat") as second:
        one, two = patient(first), patient(second, "two")
        async with routing(one) as router:
            asked = asyncio.create_task(router.ask())
            await until(lambda: bool(first.requests))
            await reload(router, two)
            go_on.set()
            reply = await asked
            assert reply.status == 200
            assert reply.headers["X-Pointsman-Endpoint"] == "two"
            assert reply.headers["X-Pointsman-Attempts"] == "2"


async def test_a_stream_from_an_endpoint_that_is_removed_goes_on_to_its_end() -> None:
    go_on = asyncio.Event()
    async with Upstream(pausing(go_on)) as first, answering("chat") as second:
        one, two = patient(first), patient(second, "two")
        async with routing(one) as router:
            async with begun(router) as stream:
                await reload(router, two)
                assert (await router.ask()).headers["X-Pointsman-Endpoint"] == "two"
                assert first.open_wires
                go_on.set()
                assert await stream.text() == CHAT.text
            await until(lambda: not first.open_wires)


GOOD: dict[str, Any] = {"plugins": [RECORDER], "balance": {"health_interval": 3600}}


@pytest.mark.parametrize(
    ("sections", "reasons"),
    [
        ({"server": {"port": 9}}, ["server.port: takes a restart to change"]),
        (
            {"metrics": {"require_key": True}, "state": {"url": "sqlite:///x", "lease": 9}},
            [
                "metrics.require_key: takes a restart to change",
                "state.lease: takes a restart to change",
                "state.url: takes a restart to change",
            ],
        ),
        (
            {"plugins": ["nowhere:make", f"{PLUGINS}:nothing"], "server": {"port": 9}},
            [
                "plugins[0]: nowhere:make: there is no module 'nowhere'; is it installed?",
                f"plugins[1]: {PLUGINS}:nothing: it made NoneType, which is not a "
                "router.plugin.Plugin",
                "server.port: takes a restart to change",
            ],
        ),
        (
            {"plugins": [f"{PLUGINS}:broken"]},
            [
                f"plugins: the plugin {PLUGINS}:broken could not be made: ZeroDivisionError: "
                "this plugin is broken"
            ],
        ),
        (
            {"plugins": [RECORDER, f"{PLUGINS}:Stillborn", RECORDER]},
            ["plugins: the plugin 'Stillborn' did not start: OSError: no such port"],
        ),
    ],
    ids=["server", "metrics and state", "no plugins", "a factory breaks", "a start breaks"],
)
async def test_what_is_refused_changes_nothing(
    sections: dict[str, Any], reasons: list[str], recorders: list[Recorder]
) -> None:
    async with answering("chat") as upstream:
        one, other = endpoint(upstream, "chat"), endpoint(upstream, "chat", "other")
        async with routing(one, auth=keys(OLD), plugins=[RECORDER]) as router:
            current = plugin_sets(router).current
            found = await refused(router, other, auth=keys(NEW), **sections)
            assert found.splitlines() == reasons
            assert plugin_sets(router).current is current
            assert len(plugin_sets(router)) == 1
            assert [e.name for e in router.fleet.registry.endpoints] == ["one"]
            assert (await call(router, "GET", "/models", key=NEW)).status == 401
            assert (await call(router, "GET", "/models", key=OLD)).status == 200
            running, *tried = recorders
            assert "stop" not in running.heard
            # They are stopped also where they were not, or not yet, started.
            started = [recorder.heard for recorder in tried if recorder.heard]
            assert started in ([], [["start", "stop"], ["stop"]])


async def test_a_plugin_that_does_not_get_started_in_time(
    monkeypatch: pytest.MonkeyPatch, recorders: list[Recorder]
) -> None:
    monkeypatch.setattr("router.reload._START_SECONDS", 0.01)
    async with answering("chat") as upstream:
        one = endpoint(upstream, "chat")
        async with routing(one) as router:
            reason = await refused(router, one, plugins=[RECORDER, f"{PLUGINS}:Held"])
            assert reason == "plugins: the plugin 'Held' did not start: TimeoutError"
            assert recorders[0].heard == ["start", "stop"]
            assert (await router.ask()).status == 200


async def test_what_is_told_of_reloads() -> None:
    async with answering("chat") as upstream:
        one = endpoint(upstream, "chat")
        async with routing(one) as router:

            async def counted() -> tuple[float, float, float]:
                name = "pointsman_reloads_total"
                (ok,) = await router.metric(name, result="ok")
                (bad,) = await router.metric(name, result="refused")
                (since,) = await router.metric("pointsman_configuration_timestamp_seconds")
                return ok, bad, since

            assert outcome(router) is None
            ok, bad, born = await counted()
            assert (ok, bad) == (0, 0)
            await reload(router, one, fallbacks={"big": ["m"]})
            ok, bad, since = await counted()
            assert (ok, bad) == (1, 0)
            assert since > born
            last = outcome(router)
            assert last is not None
            assert (last.ok, last.said) == (True, ("fallbacks changed",))
            assert last.at == pytest.approx(since, abs=1)
            await refused(router, one, server={"port": 9})
            assert await counted() == (1, 1, since)


@pytest.mark.parametrize("secret", [NEW, "sk-admin-secret", "sk-endpoint-secret"])
async def test_no_secret_is_told(secret: str) -> None:
    async with answering("chat") as upstream:
        one = endpoint(upstream, "chat")
        changed = {**one, "api_key": "sk-endpoint-secret"}
        sections = {"auth": keys(NEW), "admin": {"key": "sk-admin-secret"}}
        with capture_logs() as log:
            async with routing(one, auth=keys(OLD)) as router:
                said = await reload(router, changed, **sections)
                said.append(await refused(router, one, server={"port": 9}, **sections))
        assert len(said) == 5
        assert secret not in repr((said, log))


async def test_reloads_wait_for_each_other(recorders: list[Recorder]) -> None:
    async with answering("chat") as upstream:
        one = endpoint(upstream, "chat")
        async with routing(one) as router:
            held = {"plugins": [RECORDER, f"{PLUGINS}:Held"]}
            first = asyncio.create_task(reload(router, one, **held))
            await until(lambda: recorders)
            second = asyncio.create_task(reload(router, one, plugins=[RECORDER]))
            await router.ask()
            assert len(recorders) == 1  # not even made
            Held.made[-1].let_go.set()
            assert await first == ["plugins changed"]
            assert await second == ["plugins changed"]
            assert router.app[RELOADER].settings.plugins[0].plugin == RECORDER
        assert [recorder.heard.count("stop") for recorder in recorders] == [1, 1]


async def test_a_reload_that_is_given_up_leaves_nothing(recorders: list[Recorder]) -> None:
    async with answering("chat") as upstream:
        one = endpoint(upstream, "chat")
        async with routing(one) as router:
            held = {"plugins": [RECORDER, f"{PLUGINS}:Held"]}
            waiting = asyncio.create_task(reload(router, one, **held))
            await until(lambda: recorders and recorders[0].heard)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert recorders[0].heard == ["start", "stop"]
            assert outcome(router) is None
            assert await reload(router, one, plugins=[RECORDER]) == ["plugins changed"]


Fields = dict[str, dict[str, Any]]

VARIANTS: dict[str, list[Fields]] = {
    "two endpoints": [
        {"two": {}, "one": {"api_key": "sk-another"}},
        {"two": {}},
        {"one": {}, "two": {}},
        {"one": {"max_in_flight": 2}, "two": {"weight": 3}},
        {"one": {}},
    ],
    "the only endpoint": [{"one": {"api_key": "sk-another"}}, {"one": {"max_in_flight": 2}}],
    "one after the other": [{"two": {}}, {"one": {}}],
    "clients that wait": [
        {"one": {"max_in_flight": 1, "api_key": "sk-another"}},
        {"one": {"max_in_flight": 1}},
        {"two": {"max_in_flight": 1}},
    ],
}
"""What is configured from one reload to the next: names, and fields besides the usual."""


def serving() -> Upstream:
    """An endpoint for many at a time, that answers each as it is asked to."""
    return Upstream(default=CHAT.script())


@pytest.mark.parametrize("variants", VARIANTS.values(), ids=list(VARIANTS))
async def test_reloads_under_load_lose_nothing(
    variants: list[Fields], recorders: list[Recorder]
) -> None:
    """Keys, plugins and endpoints change while clients keep asking."""
    stop = asyncio.Event()
    async with serving() as first, serving() as second:
        upstreams = {"one": first, "two": second}

        def configured(variant: Fields) -> list[dict[str, Any]]:
            return [patient(upstreams[name], name, **fields) for name, fields in variant.items()]

        always: dict[str, Any] = {"plugins": [RECORDER], "auth": keys(OLD)}
        async with routing(*configured(variants[-1]), **always) as router:
            served = 0

            async def ask(number: int) -> None:
                nonlocal served
                while not stop.is_set():
                    stream = bool((served + number) % 2)
                    body = {"model": "m", "input": "hi", "stream": stream}
                    reply = await call(router, "POST", "/responses", body, key=OLD)
                    assert reply.status == 200, reply.body
                    if stream:
                        assert check_responses_stream(reply.events)["output_text"] == CHAT.text
                    served += 1

            clients = [asyncio.create_task(ask(number)) for number in range(8)]
            for number in range(10):
                enough = served + 40
                await until(lambda enough=enough: served >= enough)
                always["auth"] = keys(OLD, f"sk-{number:03}")
                await reload(router, *configured(variants[number % len(variants)]), **always)
            stop.set()
            await asyncio.gather(*clients)
            await until(lambda: len(plugin_sets(router)) == 1)
            assert len(plugin_sets(router)._tasks) == 0
            for name in upstreams.keys() - {e.name for e in router.fleet.registry.endpoints}:
                await until(lambda name=name: not upstreams[name].open_wires)
        assert len(recorders) == 11
        for recorder in recorders:
            assert (recorder.heard[0], recorder.heard[-1]) == ("start", "stop")
            for once in ("start", "stop"):
                assert recorder.heard.count(once) == 1
            counts = [recorder.heard.count(what) for what in ("admit", "started", "ended")]
            assert len(set(counts)) == 1
