"""The database goes away and comes back: clients get what ``state.on_down`` promises."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from router.simulate.server import create_backend, listening
from tests.crash.audit import Audit
from tests.crash.client import Client
from tests.crash.ledger import Ledger
from tests.crash.load import Load
from tests.crash.outage import Outage, locked_sqlite, server_database
from tests.crash.rows import broken_rows, unfinished
from tests.crash.stage import CHAT, Stage, Watcher, watching
from tests.support.cluster import Cluster, cluster
from tests.support.processes import Processes, RouterProcess
from tests.support.seed import seed

TIMEOUT = 2.0
"""``state.timeout``, in seconds."""

SLACK = 30.0
"""Seconds beyond it that are allowed on a machine that has other things to do as well."""

BACK_WITHIN = 60.0
"""Seconds after which everything works again, on a machine that is busy with other things."""

BACKGROUND = {"background": True}
DURABLE = {"stream": True, "stream_options": {"durable": True}}


@dataclass
class Scene:
    """A router whose database can be taken away, its upstreams and a client."""

    outage: Outage
    degrades: bool
    process: RouterProcess
    stage: Stage
    client: Client

    async def ask(self, **more: Any) -> Watcher:
        """Ask for a response, which has to come in time."""
        began = time.monotonic()
        async with watching(self.client, "POST", "/responses", ask(**more)) as watcher:
            await watcher.until_over()
        assert time.monotonic() - began < TIMEOUT + SLACK
        return watcher

    async def ask_until_served(self, **more: Any) -> Watcher:
        """Ask again and again while it is refused, for as long as it may be."""
        deadline = time.monotonic() + BACK_WITHIN
        while True:
            watcher = await self.ask(**more)
            if watcher.answer is None or watcher.answer.status != 503:
                return watcher
            assert time.monotonic() < deadline, watcher.answer
            await asyncio.sleep(0.1)

    async def begins(self) -> None:
        """The database goes away."""
        await asyncio.to_thread(self.outage.begin)

    async def ends(self) -> None:
        """The database comes back."""
        await asyncio.to_thread(self.outage.end)

    async def knows(self, *, up: bool) -> None:
        """Wait until the router knows how it is with its database."""
        deadline = time.monotonic() + BACK_WITHIN
        async with aiohttp.ClientSession() as http:
            while time.monotonic() < deadline:
                async with http.get(self.process.url + "/ready") as response:
                    if (await response.json())["state"] is up:
                        return
                await asyncio.sleep(0.05)
        raise AssertionError(f"it does not notice that the database is {'up' if up else 'down'}")


def ask(**more: Any) -> dict[str, Any]:
    """The body of a request."""
    return {"model": "m", "input": "hi", **more}


def check_refused(watcher: Watcher) -> None:
    """It was told, in place of an answer, that the database is away."""
    answer = watcher.answer
    assert answer is not None, watcher.events
    assert (answer.status, answer.json["error"]["code"]) == (503, "state_unavailable"), answer
    assert answer.headers["Retry-After"]


def final_of(watcher: Watcher) -> dict[str, Any]:
    """The finished Response object that it has got."""
    if watcher.answer is None:
        return watcher.final
    assert watcher.answer.status == 200, watcher.answer
    return watcher.answer.json


def check_served(watcher: Watcher, *, store: bool, degraded: bool) -> None:
    """It got the answer, and was told whether that is stored."""
    final = final_of(watcher)
    assert (final["status"], final["output_text"]) == ("completed", CHAT.text), final
    assert final["store"] is store
    headers = watcher.headers if watcher.answer is None else watcher.answer.headers
    assert headers.get("X-Pointsman-Store") == ("degraded" if degraded else None)


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """One server for all tests."""
    with cluster() as server:
        yield server


@pytest_asyncio.fixture
async def scene(
    request: pytest.FixtureRequest, server: Cluster, tmp_path: Path
) -> AsyncIterator[Scene]:
    """The parameter is how the database goes away, and what ``on_down`` is."""
    how, on_down = request.param
    stage = Stage()
    async with AsyncExitStack() as stack:
        database = (
            locked_sqlite(tmp_path)
            if how == "locked"
            else server_database(server, outright=how == "SIGKILL")
        )
        outage = await stack.enter_async_context(database)
        await stack.enter_async_context(stage.upstream)
        url = await stack.enter_async_context(listening(create_backend("chat", ["sim"])))
        processes = stack.enter_context(Processes(tmp_path))
        state = {"url": outage.url, "on_down": on_down, "timeout": TIMEOUT, "lease": 3}
        sim = {"name": "sim", "url": url, "dialect": "chat", "models": ["sim"]}
        settings = {"endpoints": [stage.endpoint(), sim], "state": state}
        process = await processes.router("router", settings)
        client = await stack.enter_async_context(Client([process.url], random.Random(0)))
        yield Scene(outage, on_down == "degrade", process, stage, client)
        assert process.complaints(of=["Traceback", "refuses a row"]) == []


WAYS = [(how, on_down) for how in ("immediate", "locked") for on_down in ("fail", "degrade")]


@pytest.mark.parametrize("scene", WAYS, indirect=True, ids="-".join)
async def test_what_was_under_way_when_it_went(scene: Scene) -> None:
    takes, watchers = [], []
    bodies = [ask(), ask(stream=True), ask(stream=True, store=False), ask(**DURABLE)]
    async with AsyncExitStack() as stack:
        for number, body in enumerate(bodies):
            asked = watching(scene.client, "POST", "/responses", body)
            watchers.append(await stack.enter_async_context(asked))
            takes.append(await scene.stage.take(number))
            if body.get("stream"):
                takes[-1].say(CHAT.opening, CHAT.words[0])
                await watchers[-1].until_text("Hello")
        await scene.begins()
        began = time.monotonic()
        takes[0].answer()
        for take in takes[1:]:
            take.finish(*CHAT.words[1:])
        for watcher in watchers[:3]:
            await watcher.until_over()
        assert time.monotonic() - began < TIMEOUT + SLACK
        await scene.knows(up=False)
        await scene.ends()
        await watchers[3].until_over()
    await check_under_way(scene, *watchers)


async def check_under_way(
    scene: Scene, whole: Watcher, stream: Watcher, unstored: Watcher, durable: Watcher
) -> None:
    """What each of them has got, when the database is back."""
    get = scene.client.insist
    check_served(unstored, store=False, degraded=False)
    check_served(durable, store=True, degraded=False)
    assert (await get("GET", f"/responses/{durable.id}")).json == durable.final
    if scene.degrades:
        check_served(whole, store=False, degraded=True)
        check_served(stream, store=False, degraded=False)  # its head had gone out
    else:
        check_refused(whole)
        assert (stream.last, stream.text) == ("response.failed", CHAT.text)
    assert (await get("GET", f"/responses/{stream.id}")).status == 404


@pytest.mark.parametrize("scene", WAYS[:3], indirect=True, ids="-".join)
async def test_what_is_asked_for_while_it_is_away(scene: Scene) -> None:
    client = scene.client
    scene.stage.by_itself = True
    kept = final_of(await scene.ask())
    path = f"/responses/{kept['id']}"
    await scene.begins()
    if scene.outage.reads:
        await scene.ask()  # nobody notices before something is written
    await scene.knows(up=False)
    unkept = [await check_away(scene, stream=stream) for stream in (False, True)]
    await check_all_refused(scene, kept["id"])
    read = await client.call("GET", path)
    assert (read.status, read.json) == (200, kept) if scene.outage.reads else read.status == 503
    assert (await client.call("DELETE", path)).status == 503
    assert (await client.call("POST", "/conversations", {})).status == 503

    await scene.ends()
    await scene.knows(up=True)
    for more in ({}, {"stream": True}, DURABLE, {"previous_response_id": kept["id"]}):
        watcher = await scene.ask_until_served(**more)
        check_served(watcher, store=True, degraded=False)
        final = final_of(watcher)
        assert (await client.call("GET", f"/responses/{final['id']}")).json == final
    assert (await client.call("GET", path)).json == kept
    for ident in itertools.chain(*unkept):
        assert (await client.call("GET", f"/responses/{ident}")).status == 404


async def check_away(scene: Scene, *, stream: bool) -> list[str]:
    """What is to be stored is degraded or refused, all else is served; ids of what was served."""
    unstored = await scene.ask(store=False, stream=stream)
    check_served(unstored, store=False, degraded=False)
    called = len(scene.stage.takes)
    stored = await scene.ask(stream=stream)
    if scene.degrades:
        check_served(stored, store=False, degraded=True)
        return [final_of(unstored)["id"], final_of(stored)["id"]]
    check_refused(stored)
    assert len(scene.stage.takes) == called
    return [final_of(unstored)["id"]]


async def check_all_refused(scene: Scene, kept: str) -> None:
    """What needs the database is refused, whatever ``on_down`` says, and nobody else is asked."""
    called = len(scene.stage.takes)
    for more in (BACKGROUND, {**BACKGROUND, "stream": True}, DURABLE):
        check_refused(await scene.ask(**more))
    check_refused(await scene.ask(previous_response_id=kept))
    check_refused(await scene.ask(store=False, conversation="conv_1"))
    assert len(scene.stage.takes) == called


@pytest.mark.parametrize(
    "scene", [("immediate", "fail"), ("SIGKILL", "degrade")], indirect=True, ids="-".join
)
async def test_killed_under_load(scene: Scene) -> None:
    rng = random.Random(seed())
    ledger = Ledger()
    back = await lose_under_load(scene, ledger, rng)
    while left := await unfinished(scene.outage.url):
        assert time.monotonic() - back < 2 * BACK_WITHIN, left
        await asyncio.sleep(0.1)
    await Audit(scene.client, ledger, rng).everything(ledger.kept.values(), ledger.talks)
    print(dict(ledger.counts))
    assert ledger.violations == []
    assert await broken_rows(scene.outage.url) == []
    refusals = {name for name in ledger.counts if name.startswith("refused")}
    assert {name.split(":")[0] for name in refusals} <= {"refused 503 state_unavailable"}
    assert not [name for name in refusals if name.endswith("store: false")]
    if scene.degrades:
        assert not ledger.counts["failed in mid-stream"]
        assert not [name for name in refusals if name.endswith((": whole", ": stream"))]
    else:
        assert not ledger.counts["degraded"]


async def lose_under_load(scene: Scene, ledger: Ledger, rng: random.Random) -> float:
    """The database goes away for longer than anybody waits for it; when it came back."""
    load = Load(scene.client, ledger, ["sim"], rng)
    working = asyncio.ensure_future(load.run(10))
    try:
        await asyncio.sleep(rng.uniform(1, 2))
        await scene.begins()
        await asyncio.sleep(TIMEOUT + rng.uniform(0.5, 2))
        watcher = await scene.ask(model="sim")
        if scene.degrades:
            assert final_of(watcher)["store"] is False
        else:
            check_refused(watcher)
        await scene.ends()
        back = time.monotonic()
        await scene.knows(up=True)
        await scene.ask_until_served(**DURABLE, model="sim")
        await asyncio.sleep(rng.uniform(0.5, 1.5))
        load.stop()
        async with asyncio.timeout(60):
            await working
        return back
    finally:
        working.cancel()
        await asyncio.wait([working])


async def test_nobody_takes_over_because_it_was_away(server: Cluster, tmp_path: Path) -> None:
    stage, lease = Stage(), 2.0
    async with AsyncExitStack() as stack:
        outage = await stack.enter_async_context(server_database(server, outright=False))
        await stack.enter_async_context(stage.upstream)
        processes = stack.enter_context(Processes(tmp_path))
        state = {"url": outage.url, "timeout": TIMEOUT, "lease": lease}
        settings = {"endpoints": [stage.endpoint()], "state": state}
        clients = []
        for name in "ab":
            process = await processes.router(name, settings)
            clients.append(await stack.enter_async_context(Client([process.url], random.Random(0))))
        a, b = clients
        async with watching(a, "POST", "/responses", ask(**DURABLE)) as watcher:
            take = await stage.take(0)
            take.say(CHAT.opening, *CHAT.words[:2])
            await watcher.until_text("Hello, ")
            await asyncio.to_thread(outage.begin)
            await asyncio.sleep(lease + 1)
            await asyncio.to_thread(outage.end)
            await asyncio.sleep(lease + 2)  # in which the other one would have taken it over
            take.finish(*CHAT.words[2:])
            await watcher.until_over()
        check_served(watcher, store=True, degraded=False)
        assert (await b.call("GET", f"/responses/{watcher.id}")).json == watcher.final
    assert len(stage.takes) == 1
