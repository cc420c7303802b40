"""Commands as MCP servers."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from router.settings.mcp import McpServerSettings
from router.tools.mcp import (
    McpError,
    McpProtocolError,
    McpServer,
    McpTimeout,
    McpToolError,
    McpUnreachable,
    stdio,
)
from tests.support.mcp import mcp_clients
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("_little_grace")

ROOT: Final = Path(__file__).parents[3]

WELL: Final = """
import json, os, signal, subprocess, sys, time
def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n"); sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        say({"id": message["id"], "result": {"protocolVersion": "2025-06-18", "capabilities": {},
             "serverInfo": {"name": "s", "version": "1"}}})
    elif method == "tools/call":
        CALL
    elif "id" in message:
        say({"id": message["id"], "error": {"code": -32601, "message": "unknown"}})
"""


@pytest.fixture
def _little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "_GRACE", 0.3)


def bounds(expected: type[McpError], connect: float = 20.0) -> dict[str, Any]:
    """Little time where it is to run out."""
    call = 0.5 if expected is McpTimeout else 20.0
    return {"call_timeout": call, "connect_timeout": connect, "max_message_mb": 0.25}


def script(text: str, **fields: Any) -> McpServer:
    return McpServer("it", command=sys.executable, args=("-c", text), trusted=True, **fields)


def in_call(text: str) -> McpServer:
    return script(WELL.replace("CALL", text))


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_a_server_of_the_sdk() -> None:
    settings = McpServerSettings(
        label="it",
        command=sys.executable,
        args=("-m", "tests.support.mcp_server"),
        cwd=str(ROOT),
        env={"PYTHONPATH": str(ROOT)},  # type: ignore[dict-item]
    )
    async with mcp_clients() as clients:
        server = McpServer.configured(settings)
        tools = await clients.list_tools(server)
        assert [tool.name for tool in tools] == ["add", "slow", "fail", "picture", "big"]
        result = await clients.call(server, "add", {"a": 1, "b": 2})
        assert (result.text, result.structured) == ("3", {"result": 3})
        assert clients.sessions == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sys.exit(1)", McpUnreachable),
        ("os.kill(os.getpid(), 9)", McpUnreachable),
        ("pass", McpTimeout),
        ("time.sleep(60)", McpTimeout),
        ("os.close(1); time.sleep(60)", McpUnreachable),
        ("print('garbage'); sys.stdout.flush()", McpTimeout),
        ("print('x' * 2**22); sys.stdout.flush()", McpProtocolError),
        ("while True: sys.stdout.write('x' * 65536)", McpProtocolError),
        ("while True: print('{}')", McpProtocolError),
        ("say({'id': 'another', 'result': {'content': []}})", McpTimeout),
        ("say({'id': message['id'], 'result': {'content': 1}})", McpProtocolError),
        ("say({'id': message['id'], 'result': 1})", McpTimeout),
        ("say({'id': message['id'], 'error': {'code': 5, 'message': 'no'}})", McpToolError),
    ],
)
async def test_one_that_misbehaves_in_a_call(text: str, expected: type[McpError]) -> None:
    async with mcp_clients(**bounds(expected)) as clients:
        with pytest.raises(McpError) as caught:
            await clients.call(in_call(text), "t", {})
        assert isinstance(caught.value, expected), repr(caught.value)


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (McpServer("it", command="/nowhere/at/all", trusted=True), McpUnreachable),
        (McpServer("it", command="a\0b", trusted=True), McpUnreachable),
        (script("pass"), McpUnreachable),
        (script("print('hello')"), McpUnreachable),
        (script("import time; time.sleep(60)"), McpTimeout),
        (script("while True: print('x' * 99, end='')"), McpProtocolError),
    ],
)
async def test_one_that_opens_no_session(server: McpServer, expected: type[McpError]) -> None:
    async with mcp_clients(**bounds(expected, 0.5 if expected is McpTimeout else 20)) as clients:
        with pytest.raises(McpError) as caught:
            await clients.list_tools(server)
        assert isinstance(caught.value, expected), repr(caught.value)


async def test_what_it_started_ends_with_it(tmp_path: Path) -> None:
    """Also where both take no notice of being asked to."""
    pids = tmp_path / "pids"
    stubborn = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "child = subprocess.Popen(['sleep', '100']);"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}');"
        "say({'id': message['id'], 'result': {'content': []}});"
        "time.sleep(100)"
    )
    async with mcp_clients() as clients:
        await clients.call(in_call(stubborn), "t", {})
        running = [int(pid) for pid in pids.read_text().split()]
        assert all(map(is_running, running))
    await until(lambda: not any(map(is_running, running)), timeout=5)


async def test_the_environment_of_the_router_is_not_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-router")
    text = "say({'id': message['id'], 'result': {'content': [{'type': 'text', 'text': ENV}]}})"
    env = "str(sorted(os.environ.items()))"
    server = script(WELL.replace("CALL", text.replace("ENV", env)), env={"TOKEN": "for-it"})
    async with mcp_clients() as clients:
        told = (await clients.call(server, "t", {})).text
        assert "for-it" in told
        assert "sk-router" not in told


async def test_a_call_that_is_cancelled_leaves_the_session(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    text = WELL.replace("CALL", "time.sleep(0.2)").replace(
        "    method =", f"    open({str(notes)!r}, 'a').write(line); method ="
    )
    server = script(text)
    async with mcp_clients() as clients:
        call = asyncio.create_task(clients.call(server, "t", {}))
        await until(lambda: notes.exists() and "tools/call" in notes.read_text())
        call.cancel()
        await until(lambda: "notifications/cancelled" in notes.read_text())
        with pytest.raises(McpToolError):
            await clients.list_tools(server)
        assert notes.read_text().count('"initialize"') == 1
        assert clients.sessions == 1


async def test_one_that_reads_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK tries for a while to tell it of a call that is over; nobody waits for that."""
    monkeypatch.setattr("mcp.shared.jsonrpc_dispatcher._ABANDON_WRITE_TIMEOUT", 0.5)
    async with mcp_clients(call_timeout=0.5) as clients:
        server = in_call("time.sleep(60)")
        calls = [clients.call(server, "t", {"a": "x" * 2**20}) for _ in range(3)]
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(error, McpTimeout), repr(error)
        await until(lambda: clients.sessions == 0, timeout=10)


def test_a_command_is_for_the_configuration_only() -> None:
    with pytest.raises(McpError):
        McpServer("it", command="sh")
