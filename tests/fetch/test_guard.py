"""The guard on real sockets. 127.0.0.2 plays a public address, 127.0.0.1 one inside."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
import trustme
from aiohttp import web

from router.fetch.guard import Fetched, FetchGuard, NotFetched
from router.fetch.hosts import HostCheck
from router.settings.fetch import FetchSettings
from tests.support.files import PNG, Files, Handler, file, serving_at

PUBLIC, INSIDE = "127.0.0.2", "127.0.0.1"
TYPES = frozenset({"image/png"})


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


def plays_public(address: IPv4Address | IPv6Address) -> bool:
    return str(address) == PUBLIC


def guard(
    names: Names | None = None, tls: ssl.SSLContext | None = None, **fields: Any
) -> FetchGuard:
    """A guard for which every name is that of the public server."""
    names = names or Names([PUBLIC])
    return FetchGuard(
        FetchSettings(**fields), hosts=HostCheck(resolve=names, public=plays_public), tls=tls
    )


@asynccontextmanager
async def web_of(tls: ssl.SSLContext | None = None, **handlers: Handler) -> AsyncIterator[Files]:
    """A server on every address of this machine."""
    paths = {f"/{name}": handler for name, handler in handlers.items()}
    async with serving_at("0.0.0.0", paths, tls) as files:
        yield files


def at(files: Files, path: str, host: str = "pictures.test", scheme: str = "http") -> str:
    return f"{scheme}://{host}:{files.port}{path}"


async def refused(guard: FetchGuard, url: str, **options: Any) -> NotFetched:
    with pytest.raises(NotFetched) as caught:
        await guard.fetch(url, types=TYPES, **options)
    return caught.value


async def test_a_file_of_a_public_host() -> None:
    async with web_of(a=file(Content_Type="image/PNG; charset=binary")) as files:
        fetched = await guard().fetch(at(files, "/a?sig=%2B%2F+x#part"), types=TYPES)
        assert fetched == Fetched("image/png", PNG)
        [asked] = files.asked
        assert (asked.address, asked.path) == (PUBLIC, "/a?sig=%2B%2F+x")
        assert asked.headers["Host"] == f"pictures.test:{files.port}"
        assert not asked.headers.keys() & {"Cookie", "Authorization", "Referer"}


async def test_every_url_is_checked_before_it_is_asked_for() -> None:
    seen: list[str] = []

    def check(url: str) -> None:
        seen.append(url)
        if "/secret" in url:
            raise NotFetched("Not that one.")

    async with web_of(
        a=file(status=302, Location="b"), b=file(), c=file(status=302, Location="/secret")
    ) as files:
        await guard().fetch(at(files, "/a"), types=TYPES, check=check)
        assert seen == [at(files, "/a"), at(files, "/b")]
        assert (await refused(guard(), at(files, "/c"), check=check)).message == "Not that one."
        assert files.paths == ["/a", "/b", "/c"]


async def test_what_the_server_says_of_the_encoding() -> None:
    async with web_of(a=file(Content_Type="image/png; charset=X-Mine"), b=file()) as files:
        assert (await guard().fetch(at(files, "/a"), types=TYPES)).charset == "X-Mine"
        assert (await guard().fetch(at(files, "/b"), types=TYPES)).charset == ""


async def test_a_name_that_leads_inside_a_moment_later() -> None:
    """DNS rebinding: the address that was looked at is the one that is connected to."""
    async with web_of(a=file()) as files:
        names = Names([PUBLIC], [INSIDE])
        await guard(names).fetch(at(files, "/a"), types=TYPES)
        assert names.asked == ["pictures.test"]
        assert [asked.address for asked in files.asked] == [PUBLIC]


@pytest.mark.parametrize("answer", [[INSIDE], [PUBLIC, INSIDE], [INSIDE, PUBLIC], ["::1"]])
async def test_a_name_that_leads_inside(answer: list[str]) -> None:
    async with web_of(a=file()) as files:
        error = await refused(guard(Names(answer)), at(files, "/a"))
        assert error.code == "invalid_image_url"
        assert INSIDE not in error.message
        assert files.asked == []


@pytest.mark.parametrize("host", [INSIDE, "[::1]", "[::ffff:127.0.0.2]", "10.0.0.1", "[fe80::1]"])
async def test_addresses_inside(host: str) -> None:
    names = Names([PUBLIC])
    error = await refused(guard(names), f"http://{host}/a")
    assert (error.code, names.asked) == ("invalid_image_url", [])


@pytest.mark.parametrize(
    "host",
    ["2130706433", "0x7f.1", "127.1", "0177.0.0.1", "localhost", "localhost.", "LOCALHOST"],
)
async def test_addresses_inside_in_other_words(host: str) -> None:
    """The system's own resolver is asked what they are."""
    async with web_of(a=file()) as files:
        subject = FetchGuard(FetchSettings())
        try:
            error = await refused(subject, at(files, "/a", host))
        finally:
            subject.close()
        assert error.code in ("invalid_image_url", "failed_to_download_image")
        assert files.asked == []


@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("http://127.0.0.1:{port}/a", "invalid_image_url"),
        ("//inside.test:{port}/a", "invalid_image_url"),
        ("http://user:secret@pictures.test:{port}/a", "invalid_image_url"),
        ("ftp://pictures.test/a", "invalid_image_url"),
        ("file:///etc/passwd", "invalid_image_url"),
        ("http://[::1", "invalid_image_url"),
        ("/loop", "failed_to_download_image"),
        (None, "failed_to_download_image"),
    ],
)
async def test_redirects_are_looked_at_like_the_first_url(location: str | None, code: str) -> None:
    async def redirect(request: web.Request) -> web.Response:
        headers = {} if location is None else {"Location": location.format(port=files.port)}
        return web.Response(status=302, headers=headers)

    class Both(Names):
        async def __call__(self, host: str, port: int) -> Sequence[str]:
            return [INSIDE] if host == "inside.test" else [PUBLIC]

    async with web_of(loop=redirect, a=file()) as files:
        error = await refused(guard(Both([PUBLIC])), at(files, "/loop"))
        assert error.code == code
        assert "/a" not in files.paths
        assert len(files.asked) == (6 if location == "/loop" else 1)


async def test_redirects_are_followed_and_each_host_is_looked_up() -> None:
    def to(location: str) -> Handler:
        async def redirect(request: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": location.format(port=files.port)})

        return redirect

    handlers: dict[str, Any] = {
        "one": to("two"),
        "two": to("http://other.test:{port}/three"),
        "three": to("http://pictures.test:{port}/a"),
        "a": file(),
    }
    async with web_of(**handlers) as files:
        names = Names([PUBLIC])
        secret = {"Authorization": "Bearer secret", "Cookie": "a=b"}
        await guard(names).fetch(at(files, "/one"), types=TYPES, headers=secret)
        assert files.paths == ["/one", "/two", "/three", "/a"]
        assert names.asked == ["pictures.test", "pictures.test", "other.test", "pictures.test"]
        told = ["Authorization" in asked.headers for asked in files.asked]
        assert told == ["Cookie" in asked.headers for asked in files.asked]
        assert told == [True, True, False, False]  # not again after another origin


@pytest.mark.parametrize(
    "url",
    ["http://u:p@pictures.test/a", "http://u@pictures.test/a", "ftp://pictures.test/a", "http:///a",
     "http://", "pictures.test/a", "http://pictures.test:99999/a", "http://[::1/a", "data:,x"],
)  # fmt: skip
async def test_urls_that_are_not_fetched(url: str) -> None:
    names = Names([PUBLIC])
    assert (await refused(guard(names), url)).code == "invalid_image_url"
    assert names.asked == []


async def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with web_of(a=file()) as proxy, web_of(a=file()) as files:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url(""))
        await guard().fetch(at(files, "/a"), types=TYPES)
        assert (len(files.asked), proxy.asked) == (1, [])


@pytest.mark.parametrize(
    ("handler", "code", "says"),
    [
        (file(status=404), "failed_to_download_image", "404"),
        (file(status=204, body=b""), "failed_to_download_image", "204"),
        (file(Content_Type="text/html"), "unsupported_image_media_type", "image/png"),
        (file(bytes(2**20 + 1)), "image_too_large", "1 MiB"),
        (file(Content_Encoding="br"), "failed_to_download_image", "compress"),
        (file(b"none", Content_Encoding="gzip"), "failed_to_download_image", "compression"),
        (
            file(gzip.compress(PNG)[:-9], Content_Encoding="gzip"),
            "failed_to_download_image",
            "compression",
        ),
        (
            file(gzip.compress(bytes(2**26)), Content_Encoding="gzip"),
            "image_too_large",
            "1 MiB",
        ),
    ],
)
async def test_answers_that_are_not_taken(handler: Handler, code: str, says: str) -> None:
    async with web_of(a=handler) as files:
        error = await refused(guard(max_mb=1), at(files, "/a"))
        assert error.code == code
        assert says in error.message


async def test_a_file_without_an_announced_length_is_cut_off() -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        answer = web.StreamResponse(headers={"Content-Type": "image/png"})
        await answer.prepare(request)
        while True:
            await answer.write(bytes(65536))
            sent += 65536

    async with web_of(a=endless) as files:
        assert (await refused(guard(max_mb=1), at(files, "/a"))).code == "image_too_large"
        await files.until(lambda: not files.under_way)


async def test_an_announced_length_is_refused_before_any_of_it_arrives() -> None:
    async def announce(request: web.Request) -> web.StreamResponse:
        length = {"Content-Type": "image/png", "Content-Length": str(2**20 + 1)}
        answer = web.StreamResponse(headers=length)
        await answer.prepare(request)
        await asyncio.Event().wait()
        return answer

    async with web_of(a=announce) as files:
        assert (await refused(guard(max_mb=1), at(files, "/a"))).code == "image_too_large"
        await files.until(lambda: not files.under_way)


async def test_a_small_file_that_inflates_to_a_large_one_takes_no_memory() -> None:
    async with web_of(a=file(gzip.compress(bytes(2**26)), Content_Encoding="gzip")) as files:
        tracemalloc.start()
        try:
            error = await refused(guard(max_mb=1), at(files, "/a"))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert error.code == "image_too_large"
        assert peak < 2**23  # 1 MiB and what joining its parts takes, far from 64 MiB


async def test_compressed_though_it_was_not_asked_for() -> None:
    async with web_of(a=file(gzip.compress(PNG), Content_Encoding="gzip")) as files:
        assert (await guard().fetch(at(files, "/a"), types=TYPES)).body == PNG
        assert files.asked[0].headers["Accept-Encoding"] == "identity"


async def test_whoever_counts_may_end_it() -> None:
    def count(size: int) -> None:
        raise NotFetched(f"{size} are too many", "image_too_large")

    async with web_of(a=file()) as files:
        error = await refused(guard(), at(files, "/a"), count=count)
        assert error.message == f"{len(PNG)} are too many"


@pytest.mark.parametrize("begun", [False, True])
async def test_a_server_that_dawdles(begun: bool) -> None:
    async def dawdle(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "image/png"})
        if begun:
            await answer.prepare(request)
            await answer.write(PNG)
        await asyncio.Event().wait()
        return answer

    async with web_of(a=dawdle) as files:
        error = await refused(guard(timeout=0.3), at(files, "/a"))
        assert "within 0.3 s" in error.message
        await files.until(lambda: not files.under_way)


async def test_name_servers_that_dawdle() -> None:
    class Never(Names):
        async def __call__(self, host: str, port: int) -> Sequence[str]:
            await asyncio.Event().wait()
            return []

    async with asyncio.timeout(30):  # ends the test where the guard's own limit does not
        error = await refused(guard(Never([]), timeout=0.1), "http://pictures.test/a")
    assert "within 0.1 s" in error.message


async def test_hosts_that_are_not_there(unused_tcp_port: int) -> None:
    assert "not found" in (await refused(guard(Names([])), "http://nowhere.test/a")).message
    long = await refused(FetchGuard(FetchSettings()), f"http://{'a' * 64}.test/a")
    assert long.code in ("invalid_image_url", "failed_to_download_image")
    gone = await refused(guard(), f"http://gone.test:{unused_tcp_port}/a")
    assert "could not be reached" in gone.message


async def test_the_next_address_where_the_first_does_not_answer() -> None:
    async with serving_at(PUBLIC, {"/a": file()}) as files:
        subject = FetchGuard(
            FetchSettings(),
            hosts=HostCheck(resolve=Names(["127.0.0.3", PUBLIC]), public=lambda address: True),
        )
        assert (await subject.fetch(at(files, "/a"), types=TYPES)).body == PNG


async def test_a_connection_that_breaks() -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "image/png", "Content-Length": "99"})
        await answer.prepare(request)
        await answer.write(PNG)
        assert request.transport is not None
        request.transport.abort()
        return answer

    async with web_of(a=broken) as files:
        assert "broke" in (await refused(guard(), at(files, "/a"))).message


@pytest.mark.parametrize(("trusted", "name"), [(True, "pictures.test"), (True, "x"), (False, "x")])
async def test_tls_checks_the_name_that_was_asked_for(trusted: bool, name: str) -> None:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(server)
    client = ssl.create_default_context()
    if trusted:
        authority.configure_trust(client)
    async with web_of(server, a=file()) as files:
        url = at(files, "/a", scheme="https")
        if name == "pictures.test":
            assert (await guard(tls=client).fetch(url, types=TYPES)).body == PNG
        else:
            assert "certificate" in (await refused(guard(tls=client), url)).message


@pytest.mark.parametrize(
    ("hosts", "host", "allowed"),
    [
        (["127.0.0.1:{port}"], "127.0.0.1", True),
        (["127.0.0.1"], "127.0.0.1", False),  # another port than that of http
        (["inside.test:{port}"], "INSIDE.test", True),
        (["inside.test:{port}"], "inside.test.", True),
        (["inside.test:{port}"], "outside.test", False),
        (["*.inside.test:{port}"], "a.b.inside.test", True),
        (["*.inside.test:{port}"], "inside.test", False),
        (["*.inside.test:{port}"], "notinside.test", False),
        (["other.test", "inside.test:1", "inside.test:{port}"], "inside.test", True),
    ],
)
async def test_hosts_that_are_listed_may_be_inside(
    hosts: list[str], host: str, allowed: bool
) -> None:
    async with web_of(a=file()) as files:
        listed = [entry.format(port=files.port) for entry in hosts]
        subject = guard(Names([INSIDE]), hosts=listed)
        if allowed:
            assert (await subject.fetch(at(files, "/a", host), types=TYPES)).body == PNG
            assert files.asked[0].address == INSIDE
        else:
            error = await refused(subject, at(files, "/a", host))
            assert error.code == "invalid_image_url"
            assert files.asked == []


async def test_no_more_at_once_than_there_are_slots() -> None:
    go = asyncio.Event()

    async def waiting(request: web.Request) -> web.StreamResponse:
        await go.wait()
        return await file()(request)

    async with web_of(a=waiting) as files:
        subject = guard()
        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(subject.fetch(at(files, "/a"), types=TYPES))
            await files.until(lambda: files.under_way == 32)
            go.set()
        assert (len(files.asked), files.most) == (40, 32)
