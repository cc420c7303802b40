"""What ``pointsman check`` says of tools."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from router.cli.tools import glance
from tests.support.router import settings_for
from tests.support.sandboxes import needs_sandboxes
from tests.support.tool_server import TOKEN, McpCalls, mcp_server

ENDPOINT = {"name": "one", "url": "http://127.0.0.1:1", "dialect": "chat", "models": ["m"]}


def asked(**tools: Any) -> tuple[bool, str]:
    return glance(settings_for(ENDPOINT, tools=tools))


def test_without_tools_nothing_is_said() -> None:
    assert asked() == (True, "")


async def test_every_server_is_asked_for_its_tools() -> None:
    root = str(Path(__file__).parents[2])
    async with mcp_server(McpCalls(), token=True) as url:
        servers: list[dict[str, Any]] = [
            {"label": "good", "url": url, "authorization": TOKEN},
            {
                "label": "program",
                "command": sys.executable,
                "args": ["-m", "tests.support.tool_server"],
                "env": {"PYTHONPATH": root},
            },
        ]
        well, line = await asyncio.to_thread(asked, mcp={"servers": servers})
        assert (well, line) == (True, "tools  mcp good: 5 tools; mcp program: 5 tools")
        servers[0]["authorization"] = "wrong"
        well, line = await asyncio.to_thread(asked, mcp={"servers": servers})
        assert not well
        assert "mcp good: FAILED: " in line
        assert "wrong" not in line


def test_the_search_service_is_named() -> None:
    search = {"provider": "searxng", "url": "http://127.0.0.1:1"}
    assert asked(web_search=search) == (True, "tools  search searxng: ok")


@needs_sandboxes
@pytest.mark.integration
def test_a_sandbox_is_tried_out() -> None:
    code: dict[str, Any] = {"local": {"disk_mb": 16}}
    well, line = asked(code_interpreter=code)
    assert well
    assert line.startswith("tools  code interpreter (local): ok; memory is limited by process")


def test_a_machine_without_a_safe_runner_is_named() -> None:
    code = {"local": {"bubblewrap": "no-such-program"}}
    well, line = asked(code_interpreter=code)
    assert not well
    assert "code interpreter (local): FAILED: " in line
    assert "no-such-program is not installed" in line


def test_a_gateway_that_does_not_answer_is_named() -> None:
    gateway = {"url": "http://127.0.0.1:1", "token": "secret", "keys": ["default"]}
    well, line = asked(code_interpreter={"jupyter": {"gateways": [gateway]}})
    assert not well
    assert "code interpreter (jupyter): FAILED: http://127.0.0.1:1: " in line
    assert "secret" not in line
