"""Codex itself, at work in front of an endpoint of each dialect."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from router.settings.schema import Dialect
from tests.support.agents import KEY, MCP_SERVER, MODEL, stage
from tests.support.fleet import DIALECTS
from tests.support.scripted_model import Call

pytestmark = pytest.mark.integration

EXEC = ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
QUIET = "check_for_update_on_startup = false\n[analytics]\nenabled = false\n"
PATCH = """apply_patch <<'EOF'
*** Begin Patch
*** Update File: notes.txt
@@
 one
-two
+three
*** End Patch
EOF"""


def command(text: str) -> Call:
    return Call("exec_command", {"cmd": text})


def the_sub_agent(results: Sequence[str]) -> Mapping[str, object]:
    """Whoever was started last."""
    found = re.search(r'"agent_id":\s*"([^"]+)"', results[-1])
    assert found is not None, results
    return {"targets": [found[1]], "timeout_ms": 30_000}


SCRIPTS = {
    "TASK-main": [
        command("cat notes.txt"),
        command(PATCH),
        command("sort -r notes.txt > sorted.txt"),
        Call("mcp__test__add", {"a": 2, "b": 40}),
        Call("spawn_agent", {"message": "TASK-sub"}),
        Call("wait_agent", the_sub_agent),
    ],
    "TASK-sub": [command("echo helped > sub.txt")],
    "TASK-more": [command("cat sorted.txt"), command("echo resumed > more.txt")],
}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_day_at_work(
    dialect: Dialect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(dialect, SCRIPTS, tmp_path, monkeypatch) as at:
        (at.project / "notes.txt").write_text("one\ntwo\n")
        config = tmp_path / ".codex" / "config.toml"
        config.parent.mkdir()
        text = theirs(MCP_SERVER)
        config.write_text(text)
        output = await at.launch("codex", *EXEC, "TASK-main")
        at.went_well()
        assert "DONE-main" in output
        assert "Model metadata" not in output, "Codex does not know the model"
        assert "one\ntwo" in at.model.results["TASK-main"][0]
        assert "42" in at.model.results["TASK-main"][3]
        limit = ("-c", "model_auto_compact_token_limit=50")
        more = await at.launch("codex", *EXEC, *limit, "resume", "--last", "TASK-more")
        assert "DONE-more" in more
        assert at.model.summaries == 3  # before it goes on, and after each command
        at.went_well()
        assert at.files() == {
            "notes.txt": "one\nthree\n",
            "sorted.txt": "three\none\n",
            "sub.txt": "helped\n",
            "more.txt": "resumed\n",
        }
        assert config.read_text() == text


def theirs(server: Mapping[str, object]) -> str:
    """The user's own file."""
    env = ", ".join(f"{name} = {json.dumps(value)}" for name, value in dict(server["env"]).items())  # type: ignore[call-overload]
    return (
        f"{QUIET}[mcp_servers.test]\ncommand = {json.dumps(server['command'])}\n"
        f"args = {json.dumps(server['args'])}\nenv = {{{env}}}\n"
        "startup_timeout_sec = 60\nrequired = true\n"
    )


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_provider_of_its_own_learns_the_context_from_the_catalogue(
    dialect: Dialect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the recipe, it compacts when three quarters are full; 6,500 tokens are its own."""
    scripts = {"TASK-long": [command("seq 1000 2000")] * 3 + [command("echo done > long.txt")]}
    async with stage(dialect, scripts, tmp_path, monkeypatch, context=12_000) as at:
        config = tmp_path / ".codex" / "config.toml"
        config.parent.mkdir()
        config.write_text(
            f'model = "{MODEL}"\nmodel_provider = "pointsman"\n{QUIET}'
            '[model_providers.pointsman]\nname = "Pointsman"\nwire_api = "responses"\n'
            f'base_url = "{at.router.url}/v1"\n'
            '[model_providers.pointsman.auth]\ncommand = "printenv"\n'
            'args = ["POINTSMAN_API_KEY"]\n'
        )
        output = await at.run("codex", *EXEC, "TASK-long", POINTSMAN_API_KEY=KEY)
        assert "DONE-long" in output
        assert "Model metadata" not in output
        at.went_well()
        assert at.files() == {"long.txt": "done\n"}
        assert at.model.summaries == 1  # after the third command
        assert windows(tmp_path) == {12_000 * 95 // 100}


def windows(home: Path) -> set[int]:
    """The sizes of the context, as Codex has noted them in its sessions."""
    lines = [
        json.loads(line)["payload"]
        for file in (home / ".codex" / "sessions").rglob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    return {line["model_context_window"] for line in lines if line.get("type") == "task_started"}


@pytest.mark.parametrize("websocket", [True, False])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_built_in_provider_compacts(
    dialect: Dialect, websocket: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for a WebSocket first, and for compaction by the API."""
    server = {"websocket": websocket}
    async with stage(dialect, SCRIPTS, tmp_path, monkeypatch, server=server) as at:
        (at.project / "sorted.txt").write_text("two\none\n")
        options = [
            f"openai_base_url={json.dumps(at.router.url + '/v1')}",
            f"model={json.dumps(MODEL)}",
            "model_auto_compact_token_limit=50",
        ]
        given = [word for option in options for word in ("-c", option)]
        output = await at.run("codex", *EXEC, *given, "TASK-more", CODEX_API_KEY=KEY)
        assert not at.model.problems, at.model.problems
        assert "DONE-more" in output
        assert at.model.summaries == 2  # after each command
        assert at.files() == {"sorted.txt": "two\none\n", "more.txt": "resumed\n"}
        upgrade, *turns = [(line["method"], line["status"]) for line in at.accesses()]
        assert upgrade == ("GET", 101 if websocket else 426)
        assert set(turns) == {("WS" if websocket else "POST", 200)}
