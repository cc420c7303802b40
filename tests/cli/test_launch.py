"""``pointsman launch``: what an agent is started with, by programs that write it down."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import tomllib
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import routed
from tests.support.upstream import Upstream, json_answer, refused_port, whole

ROOT = Path(__file__).parents[2]
KEY = "sk-launch-0f3a9c"
AUTH = {"keys": [{"name": "team", "key": KEY}]}
CATALOGUE = [
    {"slug": "sim-embed", "context_window": 512},
    {"slug": "sim-big", "context_window": 32_768, "display_name": "Big"},
]
ENDPOINT = {
    "name": "box",
    "url": "http://127.0.0.1:9/v1",
    "dialect": "chat",
    "models": ["sim-big", "sim-embed", "sim-small"],
    "aliases": {"claude-*": "sim-big"},
}
AGENT = f"""#!{sys.executable}
import json, os, pathlib, signal, sys, time
files = {{}}
for word in sys.argv:
    if word.startswith("model_catalog_json="):
        path = pathlib.Path(json.loads(word.partition("=")[2]))
        files[str(path)] = [path.parent.stat().st_mode & 0o777, json.loads(path.read_bytes())]
seen = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "files": files}}
seen["input"] = sys.stdin.read() if "read" in sys.argv else None
if "wait" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(33))
print(json.dumps(seen), flush=True)
if "wait" in sys.argv or "die" in sys.argv:
    time.sleep(60)
sys.exit(7)
"""


@dataclass
class Launched:
    """How a launch ended; ``seen`` is what the agent wrote down."""

    status: int
    out: str
    err: str

    @property
    def seen(self) -> dict[str, Any]:
        assert self.status == 7, self.err
        found: dict[str, Any] = json.loads(self.out)
        return found

    def failed(self, status: int, *words: str) -> None:
        """It ended so, with one line that says why."""
        assert (self.status, self.out) == (status, "")
        assert len(self.err.splitlines()) == 1, self.err
        for word in words:
            assert word in self.err


Launch = Callable[..., Awaitable[Launched]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The user's directory, with agents that are installed."""
    for name in ("codex", "claude", "opencode"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(AGENT)
        program.chmod(0o755)
    return tmp_path


def left_behind(home: Path) -> list[Path]:
    return [*home.glob("pointsman-launch-*")]


async def started(home: Path, *words: str, **environ: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", "launch", *words),
        env={"PATH": f"{home / 'bin'}", "HOME": str(home), "TMPDIR": str(home), **environ},
        cwd=ROOT,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    )


@pytest.fixture
def launch(home: Path) -> Launch:
    """Runs the command, and says how it ended."""

    async def run(*words: str, given: bytes = b"", **environ: str) -> Launched:
        process = await started(home, *words, **environ)
        out, err = await process.communicate(given)
        assert process.returncode is not None
        assert not left_behind(home)
        return Launched(process.returncode, out.decode(), err.decode())

    return run


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A router that wants a key."""
    async with routed(ENDPOINT, auth=AUTH) as url:
        yield url


@pytest.fixture
async def cataloguing() -> AsyncIterator[Upstream]:
    """What answers as a router with Codex's model list does."""
    names = [{"id": name} for name in ("sim-big", "sim-embed", "sim-small")]
    listing = json_answer({"object": "list", "data": names, "models": CATALOGUE})
    async with Upstream(on_get=listing) as upstream:
        yield upstream


def overrides(arguments: list[str]) -> dict[str, Any]:
    """What Codex would read from its options -c."""
    pairs = pairwise(arguments)
    return tomllib.loads("\n".join(value for option, value in pairs if option == "-c"))


async def test_codex(launch: Launch, url: str) -> None:
    launched = await launch(
        *("codex", "--url", f"{url}/v1/", "--", "exec", "--json", "say -- hi"),
        POINTSMAN_API_KEY=KEY,
    )
    seen = launched.seen
    assert seen["arguments"][-3:] == ["exec", "--json", "say -- hi"]
    told = overrides(seen["arguments"])
    assert (told["model"], told["model_provider"]) == ("sim-big", "pointsman")
    assert told["model_providers"]["pointsman"] == {
        "name": "Pointsman",
        "base_url": f"{url}/v1",
        "wire_api": "responses",
        "env_key": "POINTSMAN_API_KEY",
    }
    assert seen["environment"]["POINTSMAN_API_KEY"] == KEY
    assert KEY not in json.dumps(seen["arguments"])
    assert f"codex with sim-big at {url} (--model: sim-embed, sim-small)" in launched.err


async def test_codex_gets_the_models_in_a_file_that_does_not_stay(
    launch: Launch, cataloguing: Upstream
) -> None:
    seen = (await launch("codex", "--", "x", POINTSMAN_URL=cataloguing.address)).seen
    [(path, (mode, content))] = seen["files"].items()
    assert (mode, content) == (0o700, {"models": CATALOGUE})
    assert not Path(path).parent.exists()
    assert "env_key" not in overrides(seen["arguments"])["model_providers"]["pointsman"]
    assert "Authorization" not in cataloguing.probes[0].headers


async def test_claude(launch: Launch, url: str, home: Path) -> None:
    (home / "key").write_text(f"{KEY}\n")
    theirs = {"ANTHROPIC_API_KEY": "theirs", "CLAUDE_CODE_USE_BEDROCK": "1", "EDITOR": "vi"}
    launched = await launch(
        *("claude", "--url", url, "--key-file", str(home / "key")),
        *("--model", "claude-any", "--small-model", "sim-small", "--", "-p", "hi"),
        **theirs,
    )
    seen = launched.seen
    environment = seen["environment"]
    assert environment["ANTHROPIC_BASE_URL"] == url
    assert environment["ANTHROPIC_AUTH_TOKEN"] == environment["POINTSMAN_API_KEY"] == KEY
    assert environment["ANTHROPIC_MODEL"] == environment["ANTHROPIC_DEFAULT_OPUS_MODEL"]
    assert environment["ANTHROPIC_MODEL"] == "claude-any"
    assert environment["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == "sim-small"
    assert environment["EDITOR"] == "vi"
    assert not environment.keys() & {"ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK"}
    option, settings, *rest = seen["arguments"]
    assert (option, rest) == ("--settings", ["-p", "hi"])
    told = json.loads(settings)["env"]
    assert {**environment, **told} == {**environment, "ANTHROPIC_AUTH_TOKEN": "", **told}
    assert KEY not in settings


async def test_claude_is_told_the_context_and_keeps_settings_of_ones_own(
    launch: Launch, cataloguing: Upstream
) -> None:
    url = cataloguing.address
    seen = (await launch("claude", "--url", url, "--", "--settings={}")).seen
    assert seen["arguments"] == ["--settings={}"]
    assert seen["environment"]["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "32768"
    assert seen["environment"]["ANTHROPIC_AUTH_TOKEN"] == "none"


async def test_opencode(launch: Launch, cataloguing: Upstream) -> None:
    theirs = {"provider": {"other": {}}, "model": "other/x", "theme": "dark"}
    launched = await launch(
        *("opencode", "--url", cataloguing.address, "--", "run", "hi"),
        OPENCODE_CONFIG_CONTENT=json.dumps(theirs),
        POINTSMAN_API_KEY=KEY,
    )
    seen = launched.seen
    assert seen["arguments"] == ["run", "hi"]
    content = json.loads(seen["environment"]["OPENCODE_CONFIG_CONTENT"])
    provider = content["provider"].pop("pointsman")
    assert content == {
        "provider": {"other": {}},
        "theme": "dark",
        "model": "pointsman/sim-big",
        "small_model": "pointsman/sim-big",
    }
    assert provider["options"] == {
        "baseURL": f"{cataloguing.address}/v1",
        "apiKey": "{env:POINTSMAN_API_KEY}",
    }
    assert provider["models"]["sim-big"] == {"limit": {"context": 32_768, "output": 8192}}
    assert provider["models"]["sim-small"] == {}


async def test_the_address_of_a_configuration(launch: Launch, url: str, home: Path) -> None:
    config = home / "pointsman.yaml"
    server = {"host": "0.0.0.0", "port": int(url.rpartition(":")[2])}
    config.write_text(json.dumps({"server": server, "auth": AUTH, "endpoints": [ENDPOINT]}))
    launched = await launch("opencode", "--config", str(config), POINTSMAN_API_KEY=KEY)
    assert f'"baseURL": "{url}/v1"' in launched.seen["environment"]["OPENCODE_CONFIG_CONTENT"]


async def test_standard_input_is_the_agents(launch: Launch, url: str) -> None:
    for agent in ("codex", "claude"):
        launched = await launch(
            *(agent, "--url", url, "--", "read"), given=b"a prompt", POINTSMAN_API_KEY=KEY
        )
        assert launched.seen["input"] == "a prompt"


@pytest.mark.parametrize("agent", ["codex", "claude"])
async def test_signals_and_exit_status_pass(home: Path, cataloguing: Upstream, agent: str) -> None:
    """``codex`` is waited for, as it has a file; ``claude`` takes the place of the command."""
    for word, number, status in (
        ("wait", signal.SIGTERM, 33),
        ("die", signal.SIGHUP, 129 if agent == "codex" else -1),
    ):
        process = await started(home, agent, "--url", cataloguing.address, "--", word)
        assert process.stdout is not None
        await process.stdout.readline()
        process.send_signal(number)
        assert await process.wait() == status
    assert not left_behind(home)


async def test_print_shows_everything_but_the_key(launch: Launch, cataloguing: Upstream) -> None:
    for agent in ("codex", "claude", "opencode"):
        words = (agent, "--url", cataloguing.address, "--print", "--", "say it")
        launched = await launch(*words, POINTSMAN_API_KEY=KEY, PATH="")
        assert (launched.status, launched.err) == (0, "")
        *changes, command = launched.out.splitlines()
        assert command.startswith(agent)
        assert command.endswith("'say it'")
        assert "export POINTSMAN_API_KEY=***" in changes
        assert KEY not in launched.out


async def test_what_is_wrong_is_said(launch: Launch, url: str, home: Path) -> None:
    good = {"POINTSMAN_API_KEY": KEY}
    at = ("codex", "--url", url)
    (await launch(*at, PATH="", **good)).failed(127, "codex", "npm install -g @openai/codex")
    (await launch(*at)).failed(1, url, "wants a key: POINTSMAN_API_KEY")
    (await launch(*at, POINTSMAN_API_KEY="sk-wrong")).failed(1, "refuses POINTSMAN_API_KEY")
    (await launch(*at, "--model", "nope/x", **good)).failed(1, "'nope/x'", "sim-big")
    (await launch("codex", "--url", "nowhere", **good)).failed(2, "http://host:port")
    async with refused_port() as address:
        (await launch("codex", "--url", address)).failed(2, "no router answers", address)
    (home / "key").write_text("two words\n")
    (await launch(*at, "--key-file", str(home / "key"))).failed(1, "key, in one line")
    (await launch(*at, "--key-file", str(home / "no"))).failed(1, "No such file")
    (await launch("opencode", "--url", url, OPENCODE_CONFIG_CONTENT="[", **good)).failed(
        1, "OPENCODE_CONFIG_CONTENT"
    )


async def test_a_router_without_models_and_what_is_none(launch: Launch) -> None:
    async with Upstream(models=("text-embed",)) as upstream:
        (await launch("claude", "--url", upstream.address)).failed(1, "no model", "--model")
    for nonsense in (json_answer([]), json_answer({"data": 1}), whole(b"<html>"), whole(b"", 302)):
        async with Upstream(on_get=nonsense) as upstream:
            (await launch("claude", "--url", upstream.address)).failed(2, "no Pointsman router")


async def test_help_names_the_options(launch: Launch) -> None:
    for agent in ("codex", "claude", "opencode"):
        launched = await launch(agent, "--help")
        assert launched.status == 0
        for word in ("--url", "--config", "--key-file", "--model", "--small-model", "--print"):
            assert word in launched.out
