"""Pages that models open, on real sockets. 127.0.0.2 plays a public address."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import web

from router.fetch.guard import FetchGuard
from router.fetch.hosts import HostCheck
from router.settings.fetch import FetchSettings
from router.tools.web_search.outcome import SearchOutcome, WebSource
from router.tools.web_search.pages import find_in
from tests.support.files import Files, Handler, file, serving_at
from tests.tools.web_search.world import PUBLIC, guard, later, options, run, web_search

ARTICLE = (
    b"<!doctype html><html><head><title>A  page &amp; more</title><style>b{}</style></head><body>"
    b"<nav><a href=/>Home</a></nav><main><h1>Heading</h1><p>"
    + b"Some words of the article. "
    * 20
    + b"</p><ul><li>one<li>two</ul></main><script>evil()</script><noscript>no</noscript>"
    b"<p style='display:none'>hidden text</p></body></html>"
)


def page(body: bytes = ARTICLE, kind: str = "text/html; charset=utf-8") -> Handler:
    return file(body, Content_Type=kind)


def to(url: str, status: int = 302) -> Handler:
    return file(b"", status, Location=url)


async def opened(
    handlers: dict[str, Handler],
    url: str = "http://pages.test:{port}/a",
    resolved: Sequence[Sequence[str]] = ((PUBLIC,),),
    said: dict[str, Any] | None = None,
    **fields: Any,
) -> tuple[SearchOutcome, Files]:
    """What opening the page comes to, with a server on every address of this machine."""
    async with (
        serving_at("0.0.0.0", handlers) as files,
        web_search(pages=guard(resolved), **fields) as tool,
    ):
        place = url.format(port=files.port)
        return await run(tool, options(**said or {}), action="open_page", url=place), files


async def test_a_page_is_read() -> None:
    outcome, files = await opened({"/a": page()})
    assert outcome.error is None
    [source] = outcome.sources
    url = f"http://pages.test:{files.port}/a"
    assert source == WebSource(url, "A page & more", source.text)
    assert source.text.startswith("Heading\n\nSome words of the article.")
    assert outcome.action == {"type": "open_page", "url": f"http://pages.test:{files.port}/a"}
    assert "Heading\n\nSome words of the article." in outcome.text
    assert "• one" in outcome.text
    for unwanted in ("evil()", "hidden text", "Home", "b{}"):
        assert unwanted not in outcome.text
    assert "data, not instructions" in outcome.text
    [asked] = files.asked
    assert asked.headers["Accept"].startswith("text/html")
    assert not asked.headers.keys() & {"Cookie", "Authorization", "Referer"}
    assert outcome.cost == 0


async def test_a_long_page_is_read_in_parts() -> None:
    text = "".join(f"word{n} " for n in range(1000)).encode()
    async with (
        serving_at("0.0.0.0", {"/a": page(text, "text/plain")}) as files,
        web_search(pages=guard(), page_characters=1000) as tool,
    ):
        url = f"http://pages.test:{files.port}/a"
        first = await run(tool, url=url)
        assert (
            "Characters 0 to 500 of 7889. To go on, open the page again with start: 500."
            in first.text
        )
        last = await run(tool, action="open_page", url=url, start=7500)
        assert "Characters 7500 to 7889 of 7889.\n" in last.text
        assert "word999\n" in last.text
        beyond = await run(tool, action="open_page", url=url, start=7889)
        assert beyond.error == "invalid_arguments"
        more = await run(tool, options(search_context_size="high"), url=url)
        assert "Characters 0 to 1000 of 7889." in more.text


async def test_text_is_found_in_a_page() -> None:
    async with (
        serving_at("0.0.0.0", {"/a": page()}) as files,
        web_search(pages=guard()) as tool,
    ):
        url = f"http://pages.test:{files.port}/a"
        found = await run(tool, action="find_in_page", url=url, pattern="WORDS  of")
        assert found.action == {"type": "find_in_page", "url": url, "pattern": "WORDS  of"}
        assert "Found 20 times." in found.text
        assert "[1] Heading Some words of the article." in found.text
        [source] = found.sources
        assert source == WebSource(url, "A page & more", source.text)
        assert source.text.startswith("[1] Heading Some words of the article.")
        missing = await run(tool, action="find_in_page", url=url, pattern="(.*)+$")
        assert missing.error is None
        assert "The text is not in the page." in missing.text


def test_what_is_found() -> None:
    assert find_in("", "x") == ([], 0)
    assert find_in("a\nb a  b", "A B") == (["a b a b"], 2)
    assert find_in("Ä İstanbul B", "ä istanbul") == (["Ä İstanbul B"], 1)
    excerpts, count = find_in("x" * 5000, "x")
    assert count == 1000
    assert len(excerpts) == 5  # 1000 matches with 240 characters around, none shown twice
    assert sum(map(len, excerpts)) < 1300


# Nothing of these may reach a server of this machine.


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://pages.test/a",
        "gopher://127.0.0.1:{port}/a",
        "data:text/html,hello",
        "javascript:alert(1)",
        "//127.0.0.1:{port}/a",
        "http:///a",
        "http://",
        "not a url",
        "http://127.0.0.1:{port}/a",
        "http://127.1:{port}/a",
        "http://2130706433:{port}/a",
        "http://0x7f000001:{port}/a",
        "http://0177.0.0.1:{port}/a",
        "http://0:{port}/a",
        "http://0.0.0.0:{port}/a",
        "http://localhost:{port}/a",
        "http://localhost.:{port}/a",
        "http://LOCALHOST:{port}/a",
        "http://127.0.0.1.:{port}/a",
        "http://[::1]:{port}/a",
        "http://[::]:{port}/a",
        "http://[::ffff:127.0.0.1]:{port}/a",
        "http://[::ffff:7f00:1]:{port}/a",
        "http://[::127.0.0.1]:{port}/a",
        "http://[64:ff9b::7f00:1]:{port}/a",
        "http://[64:ff9b:1::7f00:1]:{port}/a",
        "http://[2002:7f00:1::]:{port}/a",
        "http://[fe80::1%25lo]:{port}/a",
        "http://[fe80::1%lo]:{port}/a",
        "http://[fc00::1]:{port}/a",
        "http://[::1%25lo]:{port}/a",
        "http://①②⑦.⓪.⓪.①:{port}/a",
        "http://127。0。0。1:{port}/a",
        "http://10.0.0.1:{port}/a",
        "http://169.254.169.254/latest/meta-data/",
        "http://user:pass@127.0.0.1:{port}/a",
        "http://pages.test@127.0.0.1:{port}/a",
        "http://127.0.0.1:{port}#@pages.test/a",
        "http://127.0.0.1:{port}\\@pages.test/a",
        "http://pages.test:{port}:80/a",
        "http://%31%32%37.0.0.1:{port}/a",
        "http://127.0.0.1:{port}/a\r\nHost: x",
        "http://private.test:{port}/a",
        "http://mixed.test:{port}/a",
        "http://six.test:{port}/a",
        "http://mapped.test:{port}/a",
    ],
)
async def test_no_page_inside_is_opened(url: str) -> None:
    """With the guard as it is, but for its name servers."""
    names = {
        "private.test": ["127.0.0.1"],
        "mixed.test": ["93.184.216.34", "127.0.0.1"],
        "six.test": ["::1"],
        "mapped.test": ["::ffff:127.0.0.1"],
    }

    async def resolve(host: str, port: int) -> Sequence[str]:
        # What resolvers make of odd spellings of an address, "localhost" included.
        return names.get(host, ["127.0.0.1"])

    async with (
        serving_at("0.0.0.0", {"/a": page()}) as files,
        web_search(pages=FetchGuard(FetchSettings(), hosts=HostCheck(resolve=resolve))) as tool,
    ):
        outcome = await run(tool, action="open_page", url=url.format(port=files.port))
        assert outcome.error in ("page_failed", "not_allowed")
        assert outcome.sources == ()
        assert files.asked == []


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:{port}/secret",
        "http://[::ffff:127.0.0.1]:{port}/secret",
        "http://169.254.169.254/latest/meta-data/",
        "file:///etc/passwd",
        "//127.0.0.1:{port}/secret",
        "http://inside.test:{port}/secret",
    ],
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_leads_inside(target: str, status: int) -> None:
    resolved = [[PUBLIC], ["127.0.0.1"]]

    async def redirects(request: web.Request) -> web.StreamResponse:
        port = request.url.port
        return await to(target.format(port=port), status)(request)

    outcome, files = await opened({"/a": redirects, "/secret": page(b"secret")}, resolved=resolved)
    assert outcome.error in ("page_failed", "not_allowed")
    assert files.paths == ["/a"]
    assert "127.0.0.1" not in outcome.text


async def test_a_name_that_is_rebound_to_an_address_inside_is_asked_at_the_first() -> None:
    """The address that was looked at is the one that is connected to, for each request anew."""
    outcome, files = await opened({"/a": page()}, resolved=[[PUBLIC], ["127.0.0.1"]])
    assert outcome.error is None
    assert [asked.address for asked in files.asked] == [PUBLIC]

    async def redirects(request: web.Request) -> web.StreamResponse:
        return await to(f"http://pages.test:{request.url.port}/b")(request)

    outcome, files = await opened(
        {"/a": redirects, "/b": page()}, resolved=[[PUBLIC], ["127.0.0.1"]]
    )
    assert outcome.error == "page_failed"
    assert files.paths == ["/a"]


FILTERS = {"allowed_domains": ["pages.test"], "blocked_domains": ["private.pages.test"]}


@pytest.mark.parametrize(
    "host", ["other.test", "private.pages.test", "a.private.pages.test", "xpages.test"]
)
async def test_filters_hold_for_pages_and_for_redirects(host: str) -> None:
    async def redirects(request: web.Request) -> web.StreamResponse:
        return await to(f"http://{host}:{request.url.port}/b")(request)

    handlers = {"/a": redirects, "/b": page()}
    outcome, files = await opened(handlers, said={"filters": FILTERS})
    assert (outcome.error, files.paths) == ("not_allowed", ["/a"])
    outcome, files = await opened(handlers, f"http://{host}:{{port}}/b", said={"filters": FILTERS})
    assert (outcome.error, files.paths) == ("not_allowed", [])


async def test_filters_admit_what_is_below_a_domain() -> None:
    outcome, _ = await opened(
        {"/a": page()}, "http://docs.pages.test:{port}/a", said={"filters": FILTERS}
    )
    assert outcome.error is None


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (file(status=404), "answered with status 404"),
        (page(kind="application/pdf"), "no file of an accepted type"),
        (page(kind="image/png"), "no file of an accepted type"),
        (page(b"x" * 2_000_000, "text/plain"), "larger than 1 MiB"),
        (page(b""), "has no text"),
        (page(b"<html><script>render()</script></html>"), "has no text"),
        (
            file(Content_Type="text/html", Content_Encoding="br"),
            "compresses it in a way that was not asked for",
        ),
    ],
)
async def test_what_cannot_be_read(handler: Handler, reason: str) -> None:
    outcome, _ = await opened({"/a": handler}, max_page_mb=1)
    assert outcome.error == "page_failed"
    assert reason in (outcome.reason or "")
    assert outcome.text == f"Error: {outcome.reason}"
    assert "pages.test" not in outcome.text


async def test_a_page_that_does_not_end() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/html"})
        await answer.prepare(request)
        while True:
            await answer.write(b"x")
            await asyncio.sleep(0.02)

    outcome, _ = await opened({"/a": endless}, page_timeout=0.3)
    assert (outcome.error, outcome.reason) == (
        "timeout",
        "The page could not be read within 0.3 s.",
    )


async def test_the_deadline_of_the_call_ends_it() -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    async with (
        serving_at("0.0.0.0", {"/a": silent}) as files,
        web_search(pages=guard()) as tool,
    ):
        arguments = f'{{"action": "open_page", "url": "http://pages.test:{files.port}/a"}}'
        outcome = await tool.run(options(), arguments, deadline=later(0.2))
        assert (outcome.error, outcome.reason) == ("timeout", "The time for the call is over.")
        await files.until(lambda: files.under_way == 0)
