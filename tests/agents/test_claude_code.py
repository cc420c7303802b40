"""Claude Code itself, at work in front of an endpoint of each dialect."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from router.settings.schema import Dialect
from router.simulate.dialogue import SimulatedRequest, input_tokens
from router.simulate.fields import BadRequest
from tests.support.agents import MCP_SERVER, MODEL, Stage, stage
from tests.support.fleet import DIALECTS
from tests.support.scripted_model import Call

Refuse = Callable[[SimulatedRequest], None]

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


async def said(at: Stage, *arguments: str, **environ: str) -> str:
    """What Claude Code answered in the end."""
    mcp = json.dumps({"mcpServers": {"test": MCP_SERVER}})
    output = await at.launch(
        *("claude", "--mcp-config", mcp, "--dangerously-skip-permissions"),
        *("--output-format", "json", *arguments),
        **environ,
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


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_tools_that_it_loads_when_it_needs_them(
    dialect: Dialect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told to wait for its MCP servers, it has their tools from the beginning, deferred."""
    found = "mcp__test__add"
    steps = [Call("ToolSearch", {"query": f"select:{found}"}), Call(found, {"a": 2, "b": 40})]
    async with stage(dialect, {"TASK-search": steps}, tmp_path, monkeypatch) as at:
        waiting = {"ENABLE_TOOL_SEARCH": "true", "MCP_CONNECTION_NONBLOCKING": "0"}
        assert await said(at, "-p", "TASK-search", **waiting) == "DONE-search"
        at.went_well()
        assert "42" in at.model.results["TASK-search"][1]
        assert [found in names for names in at.model.offered["TASK-search"]] == [False, True, True]


async def test_a_wrong_key_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage("chat", {}, tmp_path, monkeypatch) as at:
        status, output = await at.ended(
            *("claude", "--model", MODEL, "-p", "TASK-main"),
            ANTHROPIC_BASE_URL=at.router.url,
            ANTHROPIC_AUTH_TOKEN="sk-wrong",
        )
        asked = [line for line in at.accesses() if line["route"] == "/v1/messages"]
        assert status == 1
        assert "401" in output
        assert [line["status"] for line in asked] == [401]


def too_long(dialect: Dialect, context: int, refused: list[str]) -> Refuse:
    """Refuses what is longer than this, in the words of vLLM or of Anthropic."""

    def refuse(question: SimulatedRequest) -> None:
        size = input_tokens(question.messages, question.tools)
        asked = question.options.max_tokens or 0
        if size > context:
            refused.append("prompt")
        elif size + asked > context:
            refused.append("answer")
        else:
            return
        if dialect == "chat":
            told = (
                f"This model's maximum context length is {context} tokens. However, you requested "
                f"{size + asked} tokens ({size} in the messages, {asked} in the completion)."
            )
        elif size > context:
            told = f"prompt is too long: {size} tokens > {context} maximum"
        else:
            told = (
                f"input length and `max_tokens` exceed context limit: {size} + {asked} > {context},"
                " decrease input length or `max_tokens` and try again"
            )
        raise BadRequest(told)

    return refuse


@pytest.mark.parametrize("dialect", ["chat", "messages"])
async def test_an_answer_that_does_not_fit_is_asked_for_again(
    dialect: Dialect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a smaller ``max_tokens``: each request once more, no other is refused."""
    refused = list[str]()
    scripts = {"TASK-short": [command("echo done > short.txt")]}
    async with stage(dialect, scripts, tmp_path, monkeypatch) as at:
        at.model.refuse = too_long(dialect, 40_000, refused)
        assert await said(at, "-p", "TASK-short") == "DONE-short"
        assert not at.model.problems
        assert refused == ["answer", "answer"]
        assert [line["status"] for line in at.refusals()] == [400, 400]
        assert at.model.summaries == 0
        assert at.files() == {"short.txt": "done\n"}


@pytest.mark.parametrize("dialect", ["chat", "messages"])
async def test_a_history_that_does_not_fit_is_compacted(
    dialect: Dialect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claude Code has it summarised in smaller parts, and goes on; 13,500 tokens are its own."""
    refused = list[str]()
    scripts = {"TASK-long": [command("seq 1000 4000")] * 4 + [command("echo done > long.txt")]}
    async with stage(dialect, scripts, tmp_path, monkeypatch) as at:
        at.model.refuse = too_long(dialect, 22_000, refused)
        limited = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "1000"}
        assert await said(at, "-p", "TASK-long", **limited) == "DONE-long"
        assert not at.model.problems
        # Every history that is too long is compacted, and nothing is refused but by the model.
        assert 0 < refused.count("prompt") == at.model.summaries
        assert [line["status"] for line in at.refusals()] == [400] * len(refused)
        assert at.files() == {"long.txt": "done\n"}
