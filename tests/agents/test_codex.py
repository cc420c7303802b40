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
        assert at.model.summaries
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
        "check_for_update_on_startup = false\n[analytics]\nenabled = false\n"
        f"[mcp_servers.test]\ncommand = {json.dumps(server['command'])}\n"
        f"args = {json.dumps(server['args'])}\nenv = {{{env}}}\n"
        "startup_timeout_sec = 60\nrequired = true\n"
    )


@pytest.mark.parametrize("websocket", [True, False])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_built_in_provider_compacts(
    dialect: Dialect, websocket: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for a WebSocket first, and for compaction by the API."""
    server = {"server": {"websocket": websocket}}
    async with stage(dialect, SCRIPTS, tmp_path, monkeypatch, **server) as at:
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
        assert at.model.summaries
        assert at.files() == {"sorted.txt": "two\none\n", "more.txt": "resumed\n"}
        refused = [line["status"] for line in at.refusals()]
        assert refused == ([] if websocket else [426])
