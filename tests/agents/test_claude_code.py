"""Claude Code itself, at work in front of an endpoint of each dialect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from router.settings.schema import Dialect
from tests.support.agents import MCP_SERVER, Stage, stage
from tests.support.fleet import DIALECTS
from tests.support.scripted_model import Call

pytestmark = pytest.mark.integration


def command(text: str) -> Call:
    return Call("Bash", {"command": text, "description": "Runs it"})


def scripts(project: Path) -> dict[str, list[Call]]:
    notes = str(project / "notes.txt")
    agent = {"description": "Help", "prompt": "TASK-sub", "subagent_type": "general-purpose"}
    return {
        "TASK-main": [
            Call("Read", {"file_path": notes}),
            Call("Edit", {"file_path": notes, "old_string": "two", "new_string": "three"}),
            command("sort -r notes.txt > sorted.txt"),
            Call("ToolSearch", {"query": "select:mcp__test__add"}),
            Call("mcp__test__add", {"a": 2, "b": 40}),
            Call("Agent", {**agent, "run_in_background": False}),
        ],
        "TASK-sub": [command("echo helped > sub.txt")],
        "TASK-more": [command("cat sorted.txt"), command("echo resumed > more.txt")],
    }


async def said(at: Stage, *arguments: str) -> str:
    """What Claude Code answered in the end."""
    mcp = json.dumps({"mcpServers": {"test": MCP_SERVER}})
    output = await at.launch(
        *("claude", "--mcp-config", mcp, "--dangerously-skip-permissions"),
        *("--output-format", "json", *arguments),
    )
    *_, line = [line for line in output.splitlines() if line.startswith("{")]
    answer = json.loads(line)
    assert not answer["is_error"], answer
    return str(answer["result"])


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_day_at_work(
    dialect: Dialect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at: Stage
    async with stage(dialect, scripts(tmp_path / "project"), tmp_path, monkeypatch) as at:
        (at.project / "notes.txt").write_text("one\ntwo\n")
        settings = tmp_path / ".claude" / "settings.json"
        settings.parent.mkdir()
        # Of another router, which must not get this one's requests, nor this one their key.
        text = json.dumps({"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
                                   "ANTHROPIC_AUTH_TOKEN": "sk-of-another"}})  # fmt: skip
        settings.write_text(text)
        assert await said(at, "-p", "TASK-main") == "DONE-main"
        at.went_well()
        assert "two" in at.model.results["TASK-main"][0]
        assert "42" in at.model.results["TASK-main"][4]
        assert at.model.summaries == 0
        await said(at, "--continue", "-p", "/compact")
        assert at.model.summaries == 1
        assert await said(at, "--continue", "-p", "TASK-more") == "DONE-more"
        at.went_well()
        assert at.files() == {
            "notes.txt": "one\nthree\n",
            "sorted.txt": "three\none\n",
            "sub.txt": "helped\n",
            "more.txt": "resumed\n",
        }
        assert settings.read_text() == text
