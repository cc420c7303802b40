"""``pointsman endpoints`` and a running router."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from router.app import RELOADER
from router.balance.capability import Abilities
from router.cli.endpoints import KEY
from router.cli.main import main
from router.settings.document import SettingsError
from router.settings.plugins import PluginSettings
from tests.support.admin import ADMIN, ADMIN_KEY, reported
from tests.support.fleet import simulated
from tests.support.router import Router, endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Script, Upstream, refused_port, silent, whole
from tests.support.waiting import until

CHAT = SPEECH["chat"]


@dataclass
class Said:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """The table, without its headings."""
        lines = [line.split() for line in self.out.splitlines()]
        [at] = [number for number, line in enumerate(lines) if line[:1] == ["ENDPOINT"]]
        return lines[at + 1 :]

    def failed(self, status: int, *words: str) -> None:
        """It ended with this status and one line that says so."""
        assert (self.status, self.out) == (status, "")
        assert self.err.endswith("\n")
        assert len(self.err.splitlines()) == 1, self.err
        assert ADMIN_KEY not in self.err
        for word in words:
            assert word in self.err


Command = Callable[..., Awaitable[Said]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs ``pointsman endpoints`` beside the loop that the router is in."""

    async def run(*args: str) -> Said:
        status = await asyncio.to_thread(main, ["endpoints", *args])
        out, err = capsys.readouterr()
        return Said(status, out, err)

    return run


@pytest.fixture
def with_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The admin key stands in the environment."""
    monkeypatch.setenv(KEY, ADMIN_KEY)


def config(directory: Path, url: str, **sections: Any) -> str:
    """A file for the router at this address."""
    port = int(url.rpartition(":")[2])
    one = {"name": "one", "url": "http://127.0.0.1:1/v1", "dialect": "chat"}
    content = {"server": {"port": port}, "endpoints": [one], "admin": ADMIN, **sections}
    file = directory / "pointsman.yaml"
    file.write_text(json.dumps(content))
    return str(file)


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream(default=whole(CHAT.whole)) as upstream:
        yield upstream


@pytest.fixture
async def router(upstream: Upstream) -> AsyncIterator[Router]:
    one = endpoint(upstream, "chat", "gpu-1", models=["m", "n"], max_in_flight=4)
    async with routing(one, admin=ADMIN) as router:
        await until(router.deployment("gpu-1").endpoint.probed.is_set)
        yield router


async def test_by_the_configuration(command: Command, router: Router, tmp_path: Path) -> None:
    with router.occupied("gpu-1"):
        said = await command("--config", config(tmp_path, router.url))
    assert (said.status, said.err) == (0, "")
    assert said.out.splitlines()[0] == "policy least-loaded   queue 0 of 256   retries left 100"
    assert said.rows == [
        ["gpu-1", "up", "closed", "m", "ready", "1/4", "closed", "-", "-", "-"],
        ["gpu-1", "up", "closed", "(1", "not", "asked", "for)", *"------"],
    ]
    assert not any(line.endswith(" ") for line in said.out.splitlines())


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "localhost"])
async def test_to_where_the_router_listens(
    command: Command, router: Router, tmp_path: Path, host: str
) -> None:
    port = int(router.url.rpartition(":")[2])
    keys = {"keys": [{"name": "a", "key": "sk-a"}]}
    file = config(tmp_path, router.url, server={"host": host, "port": port}, auth=keys)
    assert (await command("--config", file)).status == 0


@pytest.mark.usefixtures("with_key")
async def test_by_url(command: Command, router: Router) -> None:
    for url in (router.url, router.url + "/"):
        said = await command("--url", url)
        assert (said.status, said.rows[0][0]) == (0, "gpu-1")


@pytest.mark.usefixtures("with_key")
async def test_below_a_path(command: Command, upstream: Upstream) -> None:
    async with routing(endpoint(upstream, "chat"), admin=ADMIN, foreign=True) as router:
        assert (await command("--url", router.url)).rows[0][0] == "one"


async def test_another_address_than_the_configured_one(
    command: Command, router: Router, tmp_path: Path
) -> None:
    file = config(tmp_path, "http://127.0.0.1:0")
    (await command("--config", file)).failed(1, "server.port is 0", "--url")
    assert (await command("--config", file, "--url", router.url)).status == 0


@pytest.mark.usefixtures("with_key")
async def test_for_machines(command: Command, router: Router) -> None:
    said = await command("--url", router.url, "--json")
    assert json.loads(said.out)["endpoints"] == [await reported(router, "gpu-1")]
    said = await command("--url", router.url, "--json", "drain", "gpu-1")
    assert json.loads(said.out)["state"] == "drained"


@pytest.mark.usefixtures("with_key")
async def test_taking_one_out(command: Command, router: Router) -> None:
    said = await command("drain", "gpu-1", "--url", router.url)
    assert (said.status, said.rows[0][:2]) == (0, ["gpu-1", "drained"])
    assert (await router.ask()).status == 503
    said = await command("undrain", "gpu-1", "--url", router.url)
    assert (said.status, said.rows[0][:2]) == (0, ["gpu-1", "up"])
    assert (await router.ask()).status == 200


@pytest.mark.usefixtures("with_key")
@pytest.mark.parametrize("name", ["nope", "../../x", "gpu-1/drain", "ü %2f"])
async def test_one_that_is_not_there(command: Command, router: Router, name: str) -> None:
    said = await command("drain", name, "--url", router.url)
    said.failed(1, f"There is no endpoint '{name}'. There are: gpu-1.")


@pytest.mark.usefixtures("with_key")
async def test_every_state(command: Command, upstream: Upstream) -> None:
    rules = {"failures": 1, "open_seconds": 50, "max_open_seconds": 60}
    async with (
        refused_port() as down,
        routing(
            endpoint(down, "chat", "away"),
            endpoint(upstream, "chat", "cools"),
            endpoint(upstream, "chat", "drained"),
            endpoint(upstream, "chat", "fails"),
            endpoint(upstream, "chat", "idle"),
            endpoint(upstream, "ollama", "loads"),
            admin=ADMIN,
            balance={"breaker": rules},
        ) as router,
    ):
        endpoints = {one.name: one for one in router.fleet.registry.endpoints}
        await until(lambda: all(one.probed.is_set() for one in endpoints.values()))
        now = time.monotonic()
        router.deployment("away")
        router.deployment("cools").cool_down(40.4, now)
        endpoints["drained"].host.drained = True
        router.deployment("fails").failed(now)
        loads = router.deployment("loads")
        loads.in_memory(now, False)
        loads.load_began = now - 3
        loads.answered(now, 0.25)
        loads.answered(now, 12.6)
        loads.loaded = False
        said = await command("--url", router.url)
        rows = {row[0]: row[1:] for row in said.rows}
        assert rows["away"][:2] == ["down", "open"]
        assert rows["away"][3:6] == ["s", "m", "open"]
        assert " ".join(rows["cools"][3:8]) == "cooling 40 s (rate limit)"
        assert rows["drained"] == ["drained", "closed", "(1", "not", "asked", "for)", *"------"]
        assert rows["fails"][:6] == ["up", "closed", "m", "open", "0/32", "open"]
        assert rows["idle"][2:6] == ["(1", "not", "asked", "for)"]
        assert rows["loads"][3:] == ["cold", "0/32", "closed", "loading", "3", "s", "13", "s", "-"]
        assert rows["away:"][:5] == ["No", "connection", "to", "endpoint", "'away':"]


@pytest.mark.usefixtures("with_key")
async def test_what_is_in_memory(command: Command) -> None:
    async with (
        simulated("ollama", models=["a", "b", "c"]) as [ollama],
        routing(ollama, admin=ADMIN) as router,
    ):
        [one] = router.fleet.registry.endpoints
        await until(lambda: one.catalogue.in_memory("a") is not None)
        await router.fleet.loads.warm(one.deployment("a"), None)
        await until(lambda: one.catalogue.in_memory("a"))
        said = await command("--url", router.url)
        assert [row[3:8] for row in said.rows] == [
            ["a", "ready", "0/32", "closed", "loaded"],
            ["(2", "not", "asked", "for)", "-"],
        ]
        del one.deployments["a"]  # loaded by somebody else
        said = await command("--url", router.url)
        assert said.rows[0][3:8] == ["a", "-", "-", "-", "loaded"]


@pytest.mark.usefixtures("with_key")
async def test_a_reload_that_was_refused(command: Command, router: Router) -> None:
    reloader = router.app[RELOADER]
    plugins = (PluginSettings(plugin="nope:nope"),)
    settings = reloader.settings.model_copy(update={"plugins": plugins})
    with pytest.raises(SettingsError):
        await reloader.reload(settings)
    said = await command("--url", router.url)
    lines = said.out.splitlines()
    assert lines[1] == "the last reload was refused:"
    assert "nope" in lines[2]
    await reloader.reload(reloader.settings)
    assert "refused" not in (await command("--url", router.url)).out


@pytest.mark.usefixtures("with_key")
async def test_nothing_that_a_terminal_would_obey(command: Command, upstream: Upstream) -> None:
    odd = endpoint(upstream, "chat", models=["*"])
    async with routing(odd, admin=ADMIN) as router:
        router.deployment("one", "\x1b[31mred\r\n\u202e").learn(Abilities(), 0.0)
        said = await command("--url", router.url)
        assert "?[31mred???" in said.out
        assert "\x1b" not in said.out


async def test_no_router(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with refused_port() as url:
        said = await command("--config", config(tmp_path, url))
        said.failed(2, f"no router answers at {url}: Connection refused")
        monkeypatch.setenv(KEY, ADMIN_KEY)
        (await command("--url", url)).failed(2, f"no router answers at {url}")


async def test_a_wrong_key(
    command: Command, router: Router, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, "sk-wrong")
    words = f"the router at {router.url} refuses the admin key"
    (await command("--url", router.url)).failed(1, words)
    # The variable is the one that sets admin.key in a router, so it goes before the file here too.
    (await command("--config", config(tmp_path, router.url))).failed(1, words)


async def test_no_key(
    command: Command, router: Router, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (await command("--url", router.url)).failed(1, f"{KEY} is not set")
    file = config(tmp_path, router.url, admin={})
    (await command("--config", file)).failed(1, file, "admin.key is not set")
    monkeypatch.setenv(KEY, ADMIN_KEY)
    assert (await command("--config", file)).status == 0


@pytest.mark.usefixtures("with_key")
async def test_a_router_whose_admin_routes_are_closed(command: Command, upstream: Upstream) -> None:
    async with routing(endpoint(upstream, "chat")) as router:
        (await command("--url", router.url)).failed(1, "set admin.key")


@pytest.mark.usefixtures("with_key")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "--config FILE"),
        (["drain", "--url", "http://x"], "say which endpoint"),
        (["--url", "x"], "--url must be like"),
        (["--url", "ftp://x"], "--url must be like"),
        (["--url", "http://"], "--url must be like"),
        (["--url", "http://["], "--url must be like"),
        (["--url", "http://x:99999"], "--url must be like"),
        (["--url", "http://u:p@x"], "--url must be like"),
        (["--url", "http://x?a=b"], "--url must be like"),
    ],
)
async def test_wrong_command_lines(command: Command, args: list[str], words: str) -> None:
    (await command(*args)).failed(2, words)


REPORT = b'{"policy": 1, "queue": [], "endpoints": [{}]}'


@pytest.mark.usefixtures("with_key")
@pytest.mark.parametrize(
    "script",
    [
        whole(b"<html>"),
        whole(b"[]"),
        whole(b"{}"),
        whole(REPORT),
        whole(b"\xff\x1b"),
        whole(b"nothing here", 404),
        whole(b'{"error": "\x1b"}', 404),
        whole(b"", 302, {"Location": "http://127.0.0.1:1/"}),
        whole(b"", 204),
    ],
    ids=["html", "list", "nothing", "another", "bytes", "404", "odd error", "redirect", "empty"],
)
async def test_something_that_is_no_router(command: Command, script: Script) -> None:
    async with Upstream(script) as other:
        said = await command("drain", "x", "--url", other.address)
        said.failed(2, f"{other.address} is no Pointsman router")
        assert len(other.requests) == 1


@pytest.mark.usefixtures("with_key")
async def test_a_deadline(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.cli.running_router._SECONDS", 0.2)
    async with Upstream(silent) as other:
        said = await command("drain", "x", "--url", other.address)
        said.failed(2, "did not answer in 0.2 s")


@pytest.mark.usefixtures("with_key")
async def test_an_answer_without_an_end(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.cli.running_router._MAX_BYTES", 100)
    async with Upstream(whole(b" " * 1000)) as other:
        said = await command("drain", "x", "--url", other.address)
        said.failed(2, "is no Pointsman router")


@pytest.mark.usefixtures("with_key")
async def test_the_key_goes_past_a_proxy(
    command: Command, router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert (await command("--url", router.url)).status == 0


def test_a_file_that_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["endpoints", "--config", str(tmp_path / "nope.yaml")]) == 1
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.usefixtures("with_key")
async def test_models_that_have_vanished_are_forgotten(command: Command) -> None:
    async with Upstream(default=whole(CHAT.whole), models=("m", "gone")) as upstream:
        settings = endpoint(upstream, "chat")
        del settings["models"]
        async with routing(settings, admin=ADMIN, idle=False) as router:
            assert (await router.ask()).status == 200
            assert (await router.ask(model="gone")).status == 200
            said = await command("--url", router.url)
            assert [row[3] for row in said.rows] == ["m", "gone"]
            [serving] = router.fleet.registry.endpoints
            serving.catalogue.update(["m"])
            said = await command("--url", router.url)
            assert [row[3] for row in said.rows] == ["m"]
            heading = next(line for line in said.out.splitlines() if line.startswith("ENDPOINT"))
            assert heading.split()[-2:] == ["TTFT-RECENT", "TTFT-P95"]
