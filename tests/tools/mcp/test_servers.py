"""Servers of the official SDK, by every transport."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from pathlib import Path
from typing import Any, get_args

import pytest
import trustme

from router.tools.mcp import (
    McpClients,
    McpServer,
    McpTimeout,
    McpUnauthorized,
    McpUnreachable,
    session,
)
from tests.support.hostile_mcp import Wire, head, hostile, json_answer, result, well
from tests.support.mcp import mcp_clients, trusted
from tests.support.mcp_server import Kind, serving_mcp
from tests.support.waiting import until

KINDS = get_args(Kind)
SDK = ("client", "httpcore2", "httpx2", "mcp.client", "mcp.shared")
"""What its client logs as."""


@pytest.mark.parametrize("kind", KINDS)
async def test_tools_and_calls(kind: Kind) -> None:
    async with serving_mcp(kind) as server, mcp_clients(max_result_kb=1) as clients:
        it = trusted(server.url())
        tools = await clients.list_tools(it)
        assert [tool.name for tool in tools] == ["add", "slow", "fail", "picture", "big"]
        add = tools[0]
        assert add.description == "Adds two numbers."
        assert add.input_schema["required"] == ["a", "b"]
        assert (add.annotations, add.read_only) == ({"readOnlyHint": True}, True)
        assert (tools[1].annotations, tools[1].read_only) == (None, False)

        result = await clients.call(it, "add", {"a": 1, "b": 2})
        assert (result.text, result.is_error, result.structured) == ("3", False, {"result": 3})
        failed = await clients.call(it, "fail", {})
        assert failed.is_error
        assert "fail" in failed.text
        assert (await clients.call(it, "nothing", {})).is_error
        shown = await clients.call(it, "picture", {})
        assert shown.text == "Here it is.\n[image: image/png, 100 bytes]"
        big = await clients.call(it, "big", {"size": 5000})
        assert big.text.startswith("x" * 1024 + "\n[cut: ")
        assert big.text.endswith("first 1024 of 5000 bytes]")
        assert big.structured is None
        assert clients.sessions == 1


@pytest.mark.parametrize("kind", ["http", "handshake", "sse"])
async def test_a_hundred_at_once(kind: Kind) -> None:
    async with serving_mcp(kind) as server, mcp_clients() as clients:
        it = trusted(server.url())
        calls = [clients.call(it, "slow", {"seconds": 0.02}) for _ in range(50)]
        calls += [clients.call(it, "add", {"a": n, "b": n}) for n in range(50)]
        results = await asyncio.gather(*calls)
        assert [one.text for one in results[50:]] == [str(2 * n) for n in range(50)]
        assert {one.text for one in results[:50]} == {"done"}
        assert clients.sessions == 1
        assert (server.calls.count("slow"), server.calls.count("add")) == (50, 50)
        assert 1 < server.most <= 32


@pytest.mark.parametrize("kind", KINDS)
async def test_who_leaves_cancels_at_the_server(kind: Kind) -> None:
    async with serving_mcp(kind) as server, mcp_clients() as clients:
        it = trusted(server.url())
        stays = asyncio.create_task(clients.call(it, "slow", {"seconds": 600}))
        leaves = asyncio.create_task(clients.call(it, "slow", {"seconds": 600}))
        await until(lambda: server.at_once == 2)
        leaves.cancel()
        await until(leaves.done)  # long before the server is done
        assert leaves.cancelled()
        # Without sessions each message is alone, and the SDK's server does not notice in whole
        # answers that its client has left.
        if kind not in ("stateless", "json"):
            await until(lambda: server.cancelled == ["slow"])
        assert not stays.done()
        server.end_slow()
        assert (await stays).text == "done"
        assert (await clients.call(it, "add", {"a": 1, "b": 2})).text == "3"
        assert server.calls.count("slow") == 2


@pytest.mark.parametrize("kind", ["http", "handshake", "sse"])
async def test_what_takes_too_long_is_cancelled_too(kind: Kind) -> None:
    async with serving_mcp(kind) as server, mcp_clients(call_timeout=0.3) as clients:
        it = trusted(server.url())
        with pytest.raises(McpTimeout):
            await clients.call(it, "slow", {"seconds": 60})
        await until(lambda: server.cancelled == ["slow"])
        await until(lambda: clients.sessions == 0)
        assert server.calls == ["slow"]
        soon = asyncio.get_running_loop().time() + 0.1
        with pytest.raises(McpTimeout):
            await clients.call(it, "slow", {"seconds": 60}, deadline=soon)


async def test_what_a_server_speaks_is_remembered() -> None:
    async with serving_mcp("sse") as server, mcp_clients(idle_seconds=0.1) as clients:
        it = trusted(server.url())
        await clients.list_tools(it)
        assert [one[:2] for one in server.requests[:3]] == [
            ("POST", "/sse"),
            ("POST", "/sse"),
            ("GET", "/sse"),
        ]
        await until(lambda: clients.sessions == 0)  # it is idle
        before = len(server.requests)
        await clients.list_tools(it)
        assert server.requests[before][:2] == ("GET", "/sse")


async def test_a_transport_that_is_told() -> None:
    async with serving_mcp("sse") as server, mcp_clients() as clients:
        await clients.list_tools(trusted(server.url(), transport="sse"))
        assert server.requests[0][:2] == ("GET", "/sse")


@pytest.mark.parametrize("kind", ["http", "handshake", "sse"])
async def test_credentials(kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving_mcp(kind, token="s3cret-token") as server, mcp_clients() as clients:
        for wrong in (None, "wr0ng-token"):
            with pytest.raises(McpUnauthorized) as caught:
                await clients.list_tools(trusted(server.url(), authorization=wrong))
            assert "401" in caught.value.message
        assert {one[1] for one in server.requests} <= {"/mcp", "/sse"}  # nothing is discovered
        right = trusted(f"{server.url()}?key=s3cret-key", authorization="s3cret-token")
        assert (await clients.call(right, "add", {"a": 1, "b": 2})).text == "3"
        more = trusted(server.url(), headers={"Authorization": "Bearer s3cret-token", "X-A": "b"})
        assert (await clients.call(more, "add", {"a": 1, "b": 2})).text == "3"
        assert server.requests[-1][2]["x-a"] == "b"
        assert server.requests[-1][2]["user-agent"] == "Pointsman"
        assert clients.sessions == 2
        for shown in (repr(right), repr(more), repr(clients), str(right)):
            assert "s3cret" not in shown
    # The server runs in a thread of this process.
    ours = [one for one in caplog.records if one.threadName == threading.current_thread().name]
    assert "s3cret" not in repr([(one.getMessage(), one.args, one.exc_info) for one in ours])
    assert not {one.name for one in ours if one.name.startswith(SDK)}


async def test_sessions_are_shared_by_owner_and_credentials() -> None:
    async with serving_mcp() as server, mcp_clients() as clients:
        url = server.url()
        for count, it in enumerate(
            [
                trusted(url),
                trusted(url, owner="anna"),
                trusted(url, owner="bert"),
                trusted(url, owner="bert", authorization="a"),
                trusted(url, owner="bert", authorization="b"),
                trusted(url, owner="bert", headers={"X": "b"}),
            ],
            start=1,
        ):
            await clients.list_tools(it)
            await clients.list_tools(it)
            assert clients.sessions == count


async def test_as_many_sessions_as_are_allowed() -> None:
    async with serving_mcp() as server, mcp_clients(max_sessions=2) as clients:
        first, second, third = (trusted(server.url(), owner=name) for name in "abc")
        await clients.list_tools(first)
        await clients.list_tools(second)
        await clients.list_tools(first)
        await clients.list_tools(third)  # that of the second is closed: it was idle for longest
        await until(lambda: clients.sessions == 2)
        busy = [
            asyncio.create_task(clients.call(it, "slow", {"seconds": 0.3})) for it in (first, third)
        ]
        await until(lambda: server.at_once == 2)
        with pytest.raises(McpUnreachable, match="as many sessions"):
            await clients.list_tools(second)
        await asyncio.gather(*busy)
        await clients.list_tools(second)
        assert clients.sessions <= 3


async def test_a_server_that_forgot_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was started again, say: noticed before a call is sent."""
    monkeypatch.setattr(session, "_FRESH", 0.0)
    forgotten = False

    async def ping(wire: Wire) -> None:
        if forgotten:
            await wire.send(head(404, "text/plain", "Content-Length: 0"))
        else:
            answer = b'{"jsonrpc":"2.0","id":%d,"result":{}}' % wire.message["id"]
            await wire.send(json_answer(answer))

    async with hostile({"ping": ping}) as server, mcp_clients() as clients:
        it = trusted(server.url())
        await clients.call(it, "t", {})
        await clients.call(it, "t", {})
        assert server.messages.count("initialize") == 1
        forgotten = True
        await clients.call(it, "t", {})
        assert server.messages.count("initialize") == 2
        assert server.messages.count("tools/call") == 3


async def test_a_listing_of_several_pages() -> None:
    endless = False

    async def listing(wire: Wire) -> None:
        page = int((wire.message.get("params") or {}).get("cursor", "0"))
        tool = {"name": f"t{page}", "inputSchema": {"type": "object"}}
        value: dict[str, Any] = {"tools": [tool]}
        if endless or page < 2:
            value["nextCursor"] = str(page + 1)
        await wire.send(json_answer(result(wire, value)))

    async with hostile({"tools/list": listing}) as server, mcp_clients() as clients:
        tools = await clients.list_tools(trusted(server.url()))
        assert [tool.name for tool in tools] == ["t0", "t1", "t2"]
        endless = True
        with pytest.raises(Exception, match="more tools than the router reads"):
            await clients.list_tools(trusted(server.url()))


async def test_a_slash_that_is_redirected() -> None:
    async def moved(wire: Wire) -> None:
        if wire.path == "/mcp":
            await wire.send(head(307, "text/plain", "Content-Length: 0", "Location: /mcp/"))
        else:
            await well(wire)

    async with hostile({"*": moved}) as server, mcp_clients() as clients:
        assert (await clients.call(trusted(server.url()), "t", {})).text == "well"
        calls = [wire.path for wire in server.seen if wire.what == "tools/call"]
        assert calls == ["/mcp/"]


async def test_closing_ends_what_is_under_way() -> None:
    async with serving_mcp() as server:
        async with mcp_clients() as clients:
            call = asyncio.create_task(clients.call(trusted(server.url()), "slow", {"seconds": 60}))
            await until(lambda: server.at_once == 1)
        with pytest.raises(McpUnreachable, match="shutting down"):
            await call
        await until(lambda: server.cancelled == ["slow"])
        with pytest.raises(McpUnreachable, match="shutting down"):
            await clients.list_tools(trusted(server.url()))


async def test_closing_while_a_session_is_opened() -> None:
    async def hangs(wire: Wire) -> None:
        await asyncio.Event().wait()

    async with hostile({"*": hangs}) as server:
        async with mcp_clients() as clients:
            listing = asyncio.create_task(clients.list_tools(trusted(server.url())))
            await until(lambda: server.seen)
        with pytest.raises(McpUnreachable, match="shutting down"):
            await listing


async def test_what_was_sent_is_not_sent_again_when_the_session_breaks() -> None:
    """One of two calls was sent when a session of the older transport ended, the other waits."""
    async with serving_mcp("sse") as server, mcp_clients(max_calls=1) as clients:
        it = trusted(server.url())
        first = asyncio.create_task(clients.call(it, "slow", {"seconds": 60}))
        await until(lambda: server.at_once == 1)
        second = asyncio.create_task(clients.call(it, "add", {"a": 1, "b": 2}))
        await asyncio.sleep(0.05)
        [living] = clients._living
        living._broke(McpUnreachable("It broke."))
        with pytest.raises(McpUnreachable, match="It broke") as caught:
            await first
        assert caught.value.sent
        assert (await second).text == "3"
        assert sorted(server.calls) == ["add", "slow"]


@pytest.mark.parametrize("knows", [True, False])
async def test_tls(knows: bool, tmp_path: Path) -> None:
    authority = trustme.CA()
    file = tmp_path / "server.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(file))
    context = ssl.create_default_context()
    if knows:
        authority.configure_trust(context)
    async with serving_mcp(tls=file) as server, mcp_clients(tls=context) as clients:
        it = trusted(server.url("localhost").replace("http:", "https:"))
        if knows:
            assert (await clients.call(it, "add", {"a": 1, "b": 2})).text == "3"
        else:
            with pytest.raises(McpUnreachable, match="certificate"):
                await clients.list_tools(it)


async def test_nobody_is_there(unused_tcp_port: int) -> None:
    async with mcp_clients() as clients:
        with pytest.raises(McpUnreachable, match="could not be reached") as caught:
            await clients.list_tools(trusted(f"http://127.0.0.1:{unused_tcp_port}/mcp"))
        assert not caught.value.sent


async def test_no_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password s3cret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with serving_mcp() as server, mcp_clients() as clients:
        await clients.list_tools(trusted(server.url()))
        assert not any("authorization" in headers for _, _, headers in server.requests)


async def opening(clients: McpClients, it: McpServer) -> str:
    try:
        await clients.list_tools(it)
    except McpUnreachable as error:
        return error.message
    return ""


async def test_those_who_wait_for_one_session() -> None:
    """One of them leaves: it is opened for the others all the same, once."""
    async with serving_mcp("handshake") as server, mcp_clients() as clients:
        it = trusted(server.url())
        waiting = [asyncio.create_task(opening(clients, it)) for _ in range(10)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        assert await asyncio.gather(*waiting[1:]) == [""] * 9
        assert clients.sessions == 1
