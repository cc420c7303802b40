"""Making connections: names, several addresses, TLS, and what is said when it does not work."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from router.errors import UpstreamFailure, UpstreamTimeout, UpstreamUnavailable
from router.upstream import dial as dial_module
from router.upstream.dial import Dialer
from router.upstream.http1 import HttpTransport
from tests.support.http1 import KEY, endpoint_at, everything, post, transport_to
from tests.support.upstream import Upstream, Wire, refused_port, reset_now, streamed, whole
from tests.support.waiting import until


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


def server_tls(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


async def fails(http: HttpTransport) -> UpstreamUnavailable:
    with pytest.raises(UpstreamUnavailable) as caught:
        await http.send(post())
    with pytest.raises(UpstreamUnavailable) as by_get:
        await http.get("/models", 10.0)
    assert by_get.value.message == caught.value.message
    assert caught.value.again
    assert KEY not in repr(caught.getrepr(showlocals=False))
    assert caught.value.message.startswith("No connection to endpoint 'box': ")
    return caught.value


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("http://example.org", "example.org", ""),
        ("http://example.org:80/", "example.org", ""),
        ("http://example.org:8080/v1", "example.org:8080", "/v1"),
        ("https://Example.org/v1/", "example.org", "/v1"),
        ("https://example.org:80", "example.org:80", ""),
        ("http://[::1]/v1", "[::1]", "/v1"),
        ("http://[::1]:8080/v1", "[::1]:8080", "/v1"),
        ("http://10.0.0.11:11434", "10.0.0.11:11434", ""),
    ],
)
async def test_where_requests_go(url: str, authority: str, path: str) -> None:
    dialer = Dialer(endpoint_at(url))
    assert (dialer.authority, dialer.path) == (authority, path)


async def test_refused() -> None:
    async with refused_port() as url, transport_to(url) as http:
        assert "connection refused" in (await fails(http)).message


async def test_a_name_that_does_not_exist() -> None:
    async with transport_to("http://endpoint.invalid:1") as http:
        assert "its host name could not be resolved (" in (await fails(http)).message


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_nobody_picks_up(scheme: str) -> None:
    """A full queue of connections for TCP, a silent server for TLS."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(0)
        port = sock.getsockname()[1]
        queue = [socket.socket() for _ in range(3 if scheme == "http" else 0)]
        for client in queue:
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
        url = f"{scheme}://127.0.0.1:{port}"
        async with transport_to(url, timeouts={"connect": 0.1}) as http:
            assert "timed out after 0.1 s (timeouts.connect)" in (await fails(http)).message
        async with transport_to(url, timeouts={"total": 0.1}) as http:
            with pytest.raises(UpstreamTimeout, match=r"timeouts\.total"):
                await http.send(post())
        async with transport_to(url) as http:
            with pytest.raises(UpstreamTimeout, match=r"did not answer within 0\.1 s"):
                await http.get("/models", 0.1)
        for client in queue:
            client.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_cancelled_while_connecting(scheme: str) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(0)
        port = sock.getsockname()[1]
        queue = [socket.socket() for _ in range(3 if scheme == "http" else 0)]
        for client in queue:
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
        async with transport_to(f"{scheme}://127.0.0.1:{port}") as http:
            task = asyncio.create_task(http.send(post()))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(asyncio.all_tasks()) == 1
        for client in queue:
            client.close()


async def test_closed_while_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Upstream(default=whole(b"ok")) as upstream, transport_to(upstream) as http:
        connecting = http._dialer.dial

        async def slow(*args: Any) -> None:
            await asyncio.sleep(0.02)
            await connecting(*args)

        monkeypatch.setattr(http._dialer, "dial", slow)
        task = asyncio.create_task(http.send(post()))
        await asyncio.sleep(0)
        await http.close()
        with pytest.raises(Exception, match="Endpoint 'box' closed the connection"):
            await task
        await until(lambda: not upstream.open_wires)


async def test_tls(authority: trustme.CA, ca_file: Path) -> None:
    body = b"x" * 1_000_000
    tls = server_tls(authority, "localhost", "127.0.0.1")
    async with (
        Upstream(whole(body), streamed(b"a", b"b", pause=0.001), tls=tls) as upstream,
        transport_to(upstream, tls={"ca_file": ca_file}) as http,
    ):
        assert await everything(await http.send(post(body))) == body
        assert await everything(await http.send(post())) == b"ab"
        assert len(upstream.wires) == 1
        assert upstream.requests[0].body == body
        transport = upstream.wires[0].transport
        assert transport is not None
        assert transport.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"


@pytest.mark.parametrize("encrypted", [False, True])
async def test_an_answer_that_ends_with_its_connection(
    authority: trustme.CA, ca_file: Path, encrypted: bool
) -> None:
    """The connection must end properly, else the answer may have been cut short."""
    whole_one = streamed(b"all of it", framing="close")
    cut_one = streamed(b"a part of it", framing="close", then=reset_now)
    async with (
        Upstream(
            whole_one, cut_one, tls=server_tls(authority, "127.0.0.1") if encrypted else None
        ) as upstream,
        transport_to(upstream, tls={"ca_file": ca_file}) as http,
    ):
        assert await everything(await http.send(post())) == b"all of it"
        with pytest.raises(UpstreamFailure, match="broke off its answer"):
            await everything(await http.send(post()))
        await until(lambda: not upstream.open_wires)


@pytest.mark.asyncio(loop_factories=["uvloop"])
async def test_a_tls_connection_cut_without_a_word(authority: trustme.CA, ca_file: Path) -> None:
    """Anybody on the way can end a TCP connection; only the endpoint can end the TLS in it.

    asyncio's own event loop does not tell the two apart.
    """

    async def fin_only(wire: Wire) -> None:
        assert wire.transport is not None
        raw = wire.transport.get_extra_info("socket")
        await asyncio.sleep(0.02)
        with socket.socket(fileno=os.dup(raw.fileno())) as sock:
            sock.shutdown(socket.SHUT_WR)
        await wire.gone.wait()

    script = streamed(b"a part of it", framing="close", then=fin_only)
    async with (
        Upstream(script, tls=server_tls(authority, "127.0.0.1")) as upstream,
        transport_to(upstream, tls={"ca_file": ca_file}) as http,
    ):
        with pytest.raises(UpstreamFailure, match="broke off its answer"):
            await everything(await http.send(post()))


async def test_tls_of_an_unknown_authority(authority: trustme.CA) -> None:
    tls = server_tls(authority, "127.0.0.1")
    async with Upstream(tls=tls) as upstream, transport_to(upstream) as http:
        message = (await fails(http)).message
        assert "TLS certificate verification failed: " in message
        assert "issuer" in message


async def test_tls_of_somebody_else(authority: trustme.CA, ca_file: Path) -> None:
    tls = server_tls(authority, "example.org")
    async with (
        Upstream(tls=tls) as upstream,
        transport_to(upstream, tls={"ca_file": ca_file}) as http,
    ):
        message = (await fails(http)).message
        assert "TLS certificate verification failed: IP address mismatch" in message


async def test_tls_unverified(authority: trustme.CA) -> None:
    tls = server_tls(authority, "example.org")
    async with (
        Upstream(whole(b"ok"), tls=tls) as upstream,
        transport_to(upstream, tls={"verify": False}) as http,
    ):
        assert await everything(await http.send(post())) == b"ok"


async def test_no_tls_on_the_other_side() -> None:
    async def plain(decoder: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await decoder.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with transport_to(url) as http:
            assert "TLS handshake failed: " in (await fails(http)).message


async def test_closed_during_the_handshake() -> None:
    async def hangs_up(decoder: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await decoder.read(1)
        writer.close()

    async with await asyncio.start_server(hangs_up, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with transport_to(url) as http:
            await fails(http)


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_a_ca_file_that_cannot_be_loaded(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    async with Upstream() as upstream:
        url = upstream.address.replace("http:", "https:")
        async with transport_to(url, tls={"ca_file": path}) as http:
            assert "its tls.ca_file cannot be loaded (" in (await fails(http)).message


class Names:
    """Knows where box.example is; counts how often it was asked."""

    def __init__(self, *addresses: tuple[socket.AddressFamily, str, int]) -> None:
        self.addresses = addresses
        self.asked = 0
        self._others = asyncio.get_running_loop().getaddrinfo

    async def getaddrinfo(self, host: str, port: int, **hints: Any) -> list[Any]:
        """As the loop's."""
        if host != "box.example":
            return await self._others(host, port, **hints)
        self.asked += 1
        await asyncio.sleep(0.01)
        return [
            (family, socket.SOCK_STREAM, 6, "", (address, number))
            for family, address, number in self.addresses
        ]


async def test_a_name_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Upstream(default=whole(b"ok")) as upstream:
        port = int(upstream.address.rpartition(":")[2])
        names = Names((socket.AF_INET, "127.0.0.1", port))
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names.getaddrinfo)
        async with transport_to(f"http://box.example:{port}") as http:
            answers = await asyncio.gather(*(http.send(post()) for _ in range(10)))
            assert [await everything(answer) for answer in answers] == [b"ok"] * 10
            assert names.asked == 1
            assert upstream.requests[0].headers["host"] == f"box.example:{port}"
        monkeypatch.setattr(dial_module, "_RESOLVED_SECONDS", 0.0)
        async with transport_to(f"http://box.example:{port}") as http:
            for _ in range(3):
                (await http.send(post())).close()
                for wire in upstream.open_wires:
                    wire.close()
                    await wire.gone.wait()
                await asyncio.sleep(0.01)
        assert names.asked == 4


async def test_a_name_is_looked_up_again_when_its_address_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Upstream(default=whole(b"ok")) as upstream, refused_port() as nobody:
        port = int(upstream.address.rpartition(":")[2])
        names = Names((socket.AF_INET, "127.0.0.1", int(nobody.rpartition(":")[2])))
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names.getaddrinfo)
        async with transport_to("http://box.example") as http:
            await fails(http)
            names.addresses = ((socket.AF_INET, "127.0.0.1", port),)
            assert await everything(await http.send(post())) == b"ok"


async def test_the_first_address_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Upstream(default=whole(b"ok")) as upstream, refused_port() as nobody:
        port = int(upstream.address.rpartition(":")[2])
        dead = int(nobody.rpartition(":")[2])
        names = Names((socket.AF_INET, "127.0.0.1", dead), (socket.AF_INET, "127.0.0.1", port))
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names.getaddrinfo)
        async with transport_to("http://box.example") as http:
            assert await everything(await http.send(post())) == b"ok"


async def test_none_of_several_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    async with refused_port() as nobody:
        dead = int(nobody.rpartition(":")[2])
        names = Names((socket.AF_INET, "127.0.0.1", dead), (socket.AF_INET, "127.0.0.2", dead))
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names.getaddrinfo)
        async with transport_to("http://box.example") as http:
            assert "connection refused" in (await fails(http)).message
