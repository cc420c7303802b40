"""Servers that clients name: at public or listed addresses only. 127.0.0.2 plays a public one."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trustme

from router.fetch.hosts import Address
from router.tools.mcp import McpError, McpProtocolError, McpServer, McpUnreachable
from tests.support.hostile_mcp import Hostile, Wire, head, hostile, well
from tests.support.mcp import mcp_clients
from tests.support.mcp_server import Kind, serving_mcp

PUBLIC, INSIDE = "127.0.0.2", "127.0.0.1"


def plays_public(address: Address) -> bool:
    return str(address) == PUBLIC


class Names:
    """Name servers that answer with each of these in turn, the last one for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if not answer:
            raise OSError("no such host")
        return answer


def named(url: str, **fields: Any) -> McpServer:
    """A server that a client names."""
    return McpServer("it", url=url, **fields)


async def refused(url: str, names: Names | None = None, **options: Any) -> McpError:
    names = names or Names([PUBLIC])
    async with mcp_clients(resolve=names, public=plays_public, **options) as clients:
        for transport in ("http", "sse", "auto"):
            with pytest.raises(McpUnreachable) as caught:
                await clients.call(named(url, transport=transport), "t", {})
            assert not caught.value.sent
    assert INSIDE not in caught.value.message
    return caught.value


def addresses(server: Hostile) -> set[str]:
    return {wire.writer.get_extra_info("sockname")[0] for wire in server.seen}


async def test_at_a_public_address() -> None:
    names = Names([PUBLIC])
    async with (
        hostile(host="0.0.0.0") as server,
        mcp_clients(resolve=names, public=plays_public) as clients,
    ):
        assert (await clients.call(named(server.url("it.test")), "t", {})).text == "well"
        assert addresses(server) == {PUBLIC}
        assert {wire.headers["host"] for wire in server.seen} == {f"it.test:{server.port}"}


@pytest.mark.parametrize("answer", [[INSIDE], [PUBLIC, INSIDE], [INSIDE, PUBLIC], ["::1"]])
async def test_a_name_that_leads_inside(answer: list[str]) -> None:
    async with hostile(host="0.0.0.0") as server:
        error = await refused(server.url("it.test"), Names(answer))
        assert "not on the public Internet" in error.message
        assert server.seen == []


async def test_a_name_that_leads_inside_a_moment_later() -> None:
    """DNS rebinding: each connection goes to an address that was looked at for it."""

    async def once(wire: Wire) -> None:
        await well(wire)
        raise ConnectionError  # so that there is another connection

    async with hostile({"*": once}, host="0.0.0.0") as server:
        names = Names([PUBLIC], [INSIDE])
        async with mcp_clients(resolve=names, public=plays_public) as clients:
            with pytest.raises(McpUnreachable):
                await clients.list_tools(named(server.url("it.test")))
        assert len(names.asked) >= 2
        assert addresses(server) == {PUBLIC}


@pytest.mark.parametrize(
    "host",
    [
        INSIDE,
        "[::1]",
        "[::ffff:127.0.0.2]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fd00::1]",
        "10.0.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "0.0.0.0",
    ],
)
async def test_addresses_inside(host: str) -> None:
    names = Names([PUBLIC])
    error = await refused(f"http://{host}/mcp", names)
    assert "not on the public Internet" in error.message
    assert names.asked == []


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "localhost", "LOCALHOST."])
async def test_addresses_inside_in_other_words(host: str) -> None:
    async with hostile(host="0.0.0.0") as server:
        async with mcp_clients() as clients:
            with pytest.raises(McpUnreachable):
                await clients.list_tools(named(server.url(host)))
        assert server.seen == []


async def test_a_host_that_is_not_there() -> None:
    assert "not found" in (await refused("http://nowhere.test/mcp", Names([]))).message


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "location",
    ["http://127.0.0.1:{port}/mcp", "//other.test:{port}/mcp", "https://it.test:{port}/mcp"],
)
async def test_redirects_are_not_followed_elsewhere(location: str, status: int) -> None:
    async def redirect(wire: Wire) -> None:
        to = location.format(port=server.port)
        await wire.send(head(status, "text/plain", "Content-Length: 0", f"Location: {to}"))

    async with hostile({"*": redirect}, host="0.0.0.0") as server:
        names = Names([PUBLIC])
        async with mcp_clients(resolve=names, public=plays_public) as clients:
            for transport in ("http", "sse"):
                it = named(server.url("it.test"), authorization="s3cret", transport=transport)
                with pytest.raises(McpUnreachable, match="redirects"):
                    await clients.list_tools(it)
        assert len(server.seen) == 2
        assert addresses(server) == {PUBLIC}


async def test_the_messages_of_an_older_server_stay_on_its_origin() -> None:
    async def stream(wire: Wire) -> None:
        endpoint = f"event: endpoint\ndata: http://127.0.0.1:{server.port}/inside\n\n"
        await wire.send(head(200, "text/event-stream") + endpoint.encode())
        await wire.reader.read()

    async with hostile({"GET": stream}, host="0.0.0.0") as server:
        async with mcp_clients(resolve=Names([PUBLIC]), public=plays_public) as clients:
            with pytest.raises(McpProtocolError, match="another origin"):
                await clients.list_tools(named(server.url("it.test"), transport="sse"))
        assert server.messages == ["GET"]


@pytest.mark.parametrize(
    ("listed", "mine", "host", "allowed"),
    [
        (["127.0.0.1:{port}"], None, "127.0.0.1", True),
        (["127.0.0.1"], None, "127.0.0.1", False),
        (["it.test:{port}"], None, "IT.test", True),
        (["*.test:{port}"], None, "it.test", True),
        (["other.test:{port}"], None, "it.test", False),
        (["other.test"], ["it.test:{port}"], "it.test", True),
        (["it.test:{port}"], ["other.test"], "it.test", False),
    ],
)
async def test_hosts_that_are_listed_may_be_inside(
    listed: list[str], mine: list[str] | None, host: str, allowed: bool
) -> None:
    async with hostile() as server:
        fetch = [entry.format(port=server.port) for entry in listed]
        hosts = None if mine is None else [entry.format(port=server.port) for entry in mine]
        async with mcp_clients(resolve=Names([INSIDE]), listed=fetch, hosts=hosts) as clients:
            it = named(server.url(host))
            if allowed:
                assert (await clients.call(it, "t", {})).text == "well"
            else:
                with pytest.raises(McpUnreachable, match="certain hosts"):
                    await clients.list_tools(it)
                assert server.seen == []


async def test_the_next_address_where_the_first_does_not_answer() -> None:
    async with hostile(host=PUBLIC) as server:
        names = Names(["127.0.0.3", PUBLIC])
        async with mcp_clients(resolve=names, public=lambda _: True) as clients:
            assert (await clients.call(named(server.url("it.test")), "t", {})).text == "well"


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_tls_checks_the_name_that_was_asked_for(kind: Kind, tmp_path: Path) -> None:
    authority = trustme.CA()
    file = tmp_path / "server.pem"
    authority.issue_cert("it.test").private_key_and_cert_chain_pem.write_to_path(str(file))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    async with (
        serving_mcp(kind, tls=file) as server,
        mcp_clients(resolve=Names([PUBLIC]), public=plays_public, tls=context) as clients,
    ):
        url = server.url("it.test").replace("http:", "https:")
        assert (await clients.call(named(url), "add", {"a": 1, "b": 2})).text == "3"
        with pytest.raises(McpUnreachable, match="certificate"):
            await clients.list_tools(named(url.replace("it.test", "other.test")))
