"""A coding agent's requests: large system prompts, many tools, long histories, streams, thinking.

They are modelled on what Claude Code sends: the headers, the betas, ``cache_control`` on system
blocks and on the last messages, fields that only Anthropic's own endpoints know.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from anthropic import AsyncAnthropic

from tests.clients.conftest import KEY
from tests.support.anthropic import check_message

EPHEMERAL = {"cache_control": {"type": "ephemeral"}}
NAMES = (
    "Agent", "Bash", "Glob", "Grep", "Read", "Edit", "Write", "NotebookEdit", "WebFetch",
    "TodoWrite", "WebSearch", "BashOutput", "KillShell", "Skill", "mcp__ide__getDiagnostics",
)  # fmt: skip
HEADERS = {
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,prompt-caching-scope",
    "anthropic-dangerous-direct-browser-access": "true",
    "x-app": "cli",
    "User-Agent": "claude-cli/2.1.0 (external, cli)",
}
USER_ID = f"user_{'0f' * 32}_account_{'1' * 36}_session_{'2' * 36}"


def tool(name: str) -> dict[str, Any]:
    properties = {
        "file_path": {"type": "string", "description": "The absolute path to the file"},
        "timeout": {"type": "number", "description": "Milliseconds"},
        "todos": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"content": {"type": "string", "minLength": 1}},
                "required": ["content"],
                "additionalProperties": False,
            },
        },
    }
    return {
        "name": name,
        "description": f"{name} does its work.\n\nUsage:\n" + "- A rule that is long.\n" * 60,
        "input_schema": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": properties,
            "required": ["file_path"],
            "additionalProperties": False,
        },
    }


def request(messages: list[Any], model: str) -> dict[str, Any]:
    """What the agent sends with this history."""
    reminder = "<system-reminder>\nAs you answer, use this context.\n</system-reminder>\n"
    first = {
        "role": "user",
        "content": [
            {"type": "text", "text": reminder},
            {"type": "text", "text": "Please open main.py."},
        ],
    }
    return {
        "model": model,
        "max_tokens": 32_000,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.0;"},
            {"type": "text", "text": "You are a coding agent.", **EPHEMERAL},
            {"type": "text", "text": "Be concise.\n" * 2000, **EPHEMERAL},
        ],
        "tools": [tool(name) for name in NAMES],
        "metadata": {"user_id": USER_ID},
        "thinking": {"type": "enabled", "budget_tokens": 31_999},
        "messages": [first, *messages],
        "extra_headers": HEADERS,
        "extra_query": {"beta": "true"},
        "extra_body": {
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
        },
    }


def result(call: Any, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call.id, "content": content, **more}


@pytest.fixture
async def agent(base_url: str) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=base_url, api_key=KEY, max_retries=0) as client:
        yield client


async def turn(agent: AsyncAnthropic, messages: list[Any], model: str, ask: str) -> Any:
    """One request, streamed; the message, which is added to the history."""
    messages += [{"role": "user", "content": [{"type": "text", "text": ask, **EPHEMERAL}]}]
    return await answered(agent, messages, model)


async def answered(agent: AsyncAnthropic, messages: list[Any], model: str) -> Any:
    """The answer to the history, of which only the last message is marked for the cache."""
    for message in messages[:-1]:
        for block in message["content"]:
            block.pop("cache_control", None)
    async with agent.messages.stream(**request(messages, model)) as stream:
        dropped = stream.response.headers.get("X-Pointsman-Dropped-Parameters", "")
        assert "context_management" not in dropped
        message = await stream.get_final_message()
    check_message(message.to_dict(mode="json"))
    messages.append({"role": "assistant", "content": message.to_dict(mode="json")["content"]})
    return message


async def test_a_session(agent: AsyncAnthropic, model: str) -> None:
    messages: list[Any] = []
    message = await turn(agent, messages, model, "Use Grep and Glob on it.")
    assert message.stop_reason == "tool_use"
    assert message.content[0].type == "thinking"
    calls = [block for block in message.content if block.type == "tool_use"]
    assert {call.name for call in calls} == {"Grep", "Glob"}
    image = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    messages.append(
        {
            "role": "user",
            "content": [
                result(calls[0], "     1\tprint('hi')\n" * 400),
                result(
                    calls[1],
                    [{"type": "text", "text": "seen"}, {"type": "image", "source": image}],
                    is_error=True,
                    **EPHEMERAL,
                ),
            ],
        }
    )
    message = await answered(agent, messages, model)
    assert message.stop_reason in ("end_turn", "tool_use")
    message = await turn(agent, messages, model, "Say exactly: done")
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[-1].text == "done"
    assert message.usage.input_tokens > 5000


async def test_its_small_requests(agent: AsyncAnthropic, model: str) -> None:
    """A quota check, a title for the session, a count."""
    asked = request([], model)
    quota = await agent.messages.create(
        model=model,
        max_tokens=1,
        messages=[{"role": "user", "content": "quota"}],
        metadata={"user_id": USER_ID},
    )
    assert quota.stop_reason == "max_tokens"
    title = await agent.messages.create(
        model=model,
        max_tokens=512,
        system=[{"type": "text", "text": "Write a title as JSON."}],
        messages=[{"role": "user", "content": "Open main.py"}],
        extra_body={"temperature": 0},
        tools=[],
    )
    assert title.content[0].type == "text"
    counted = await agent.messages.count_tokens(
        model=model,
        messages=asked["messages"],
        system=asked["system"],
        tools=asked["tools"],
        thinking=asked["thinking"],
    )
    assert counted.input_tokens > 5000
