"""opencode itself, at work in front of an endpoint of each dialect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from router.settings.schema import Dialect
from tests.support.agents import MCP_SERVER, stage
from tests.support.fleet import DIALECTS
from tests.support.scripted_model import Call

pytestmark = pytest.mark.integration


def command(text: str) -> Call:
    return Call("bash", {"command": text, "description": "Runs it"})


def scripts(project: Path) -> dict[str, list[Call]]:
    notes = str(project / "notes.txt")
    task = {"description": "Help", "prompt": "TASK-sub", "subagent_type": "general"}
    return {
        "TASK-main": [
            Call("read", {"filePath": notes}),
            Call("edit", {"filePath": notes, "oldString": "two", "newString": "three"}),
            command("sort -r notes.txt > sorted.txt"),
            Call("test_add", {"a": 2, "b": 40}),
            Call("task", task),
        ],
        "TASK-sub": [command("echo helped > sub.txt")],
        "TASK-more": [command("cat sorted.txt"), command("echo resumed > more.txt")],
    }


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_day_at_work(
    dialect: Dialect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(dialect, scripts(tmp_path / "project"), tmp_path, monkeypatch) as at:
        (at.project / "notes.txt").write_text("one\ntwo\n")
        server = {
            "type": "local",
            "command": [MCP_SERVER["command"], *MCP_SERVER["args"]],
            "environment": MCP_SERVER["env"],
        }
        config = tmp_path / ".config" / "opencode" / "opencode.json"
        config.parent.mkdir(parents=True)
        theirs = {"mcp": {"test": server}, "permission": "allow", "model": "other/x"}
        # opencode itself adds the address of its schema where it is missing.
        text = json.dumps({"$schema": "https://opencode.ai/config.json", **theirs})
        config.write_text(text)
        output = await at.launch("opencode", "run", "TASK-main")
        at.went_well()
        assert "DONE-main" in output
        assert "two" in at.model.results["TASK-main"][0]
        assert "42" in at.model.results["TASK-main"][3]
        output = await at.launch("opencode", "run", "--continue", "TASK-more")
        at.went_well()
        assert "DONE-more" in output
        assert at.files() == {
            "notes.txt": "one\nthree\n",
            "sorted.txt": "three\none\n",
            "sub.txt": "helped\n",
            "more.txt": "resumed\n",
        }
        assert config.read_text() == text


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_it_compacts_in_time(
    dialect: Dialect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When three quarters of the context that ``launch`` has told it are full; 8,200 tokens are its
    own. What it has done is then in the summary, but for the last call, which it keeps.
    """
    scripts = {"TASK-long": [command("seq 1000 2000")] * 3 + [command("echo done > long.txt")]}
    async with stage(dialect, scripts, tmp_path, monkeypatch, context=13_000) as at:
        config = tmp_path / ".config" / "opencode" / "opencode.json"
        config.parent.mkdir(parents=True)
        config.write_text(json.dumps({"permission": "allow"}))
        output = await at.launch("opencode", "run", "TASK-long")
        at.went_well()
        assert "DONE-long" in output
        assert at.files() == {"long.txt": "done\n"}
        assert at.model.summaries == 1  # after the third command
        assert len(at.model.results["TASK-long"]) == 2
