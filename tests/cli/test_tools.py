"""What ``pointsman check`` says of tools."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from router.cli.tools import glance
from tests.support.router import settings_for
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
