"""The text of pages, nasty ones included, within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path

import pytest

from router.tools.web_search.outcome import SearchFailed
from router.tools.web_search.page_text import PageText, PageTextExtractor, missing_extractor
from router.tools.web_search.pages import find_in
from router.tools.web_search.tool import WebSearch
from tests.support.waiting import until
from tests.tools.web_search.world import guard, settings


async def text_of(
    body: bytes | str, kind: str = "text/html", charset: str = "", seconds: float = 20
) -> PageText:
    data = body.encode() if isinstance(body, str) else body
    extractor = PageTextExtractor(seconds)
    try:
        return await extractor.extract(kind, data, charset)
    finally:
        extractor.close()


@pytest.mark.parametrize(
    ("body", "charset", "text"),
    [
        ("<p>bücher 😀</p>".encode(), "utf-8", "bücher 😀"),
        ("<p>bücher</p>".encode("latin-1"), "iso-8859-1", "bücher"),
        ("<p>日本語のページ</p>".encode("shift_jis"), "Shift_JIS", "日本語のページ"),
        ("<meta charset=koi8-r><p>Привет, мир</p>".encode("koi8-r"), "", "Привет, мир"),
        ("<p>bücher</p>".encode(), "no-such-thing", "bücher"),
        (b"<p>a\xff\xfe\x00b</p>", "utf-8", "a\ufffd\ufffdb"),
        ("<p>x</p>".encode("utf-16"), "utf-16", "x"),
        (b"<p>a&#0;b&#xD800;c&#x202e;d", "", None),
        (b"\x00" * 1000, "", ""),
        (b"", "", ""),
        (b"<", "", "<"),
        (b"<script>" + b"x" * 100_000, "", ""),
        (b"<!--" + b"x" * 100_000, "", ""),
        (b"plain words, no tags", "", "plain words, no tags"),
        (b"<p>one</p>\r\n\r\n\r\n<p>two", "", "one\n\ntwo"),
    ],
)
async def test_encodings_and_broken_pages(body: bytes, charset: str, text: str | None) -> None:
    found = (await text_of(body, charset=charset)).text
    assert text is None or found == text
    assert not any(ord(sign) < 32 and sign not in "\n\t" for sign in found)
    found.encode()


@pytest.mark.parametrize(
    "charset", ["punycode", "idna", "unicode_escape", "utf-7", "zip", "base64", "x" * 99]
)
async def test_encodings_that_are_none_of_pages(charset: str) -> None:
    for kind in ("text/plain", "text/html"):
        assert (await text_of(b"a\\x41b-c", kind, charset)).text == "a\\x41b-c"


async def test_the_main_part_of_a_page_is_enough_where_it_says_something() -> None:
    around = "<nav>menu</nav><div>a teaser</div>{}<footer>imprint</footer>"
    long, short = "<p>" + "words " * 50, "<p>few words"
    assert "teaser" not in (await text_of(around.format(f"<main>{long}</main>"))).text
    whole = (await text_of(around.format(f"<main>{short}</main>"))).text
    assert "teaser" in whole
    assert "few words" in whole
    assert "menu" not in whole
    listed = (await text_of(f"<main>{long}<ul><li>one<li>two</ul><pre>a\n  b</pre></main>")).text
    assert "• one\n  • two\na\n  b" in listed


async def test_plain_text() -> None:
    assert await text_of(b"a\r\nb\x07", "text/plain") == PageText("", "a\nb")
    assert (await text_of("bücher".encode("latin-1"), "text/plain", "ISO-8859-1")).text == "bücher"
    assert len((await text_of(b"x" * 3_000_000, "text/plain")).text) == 1_000_000


@pytest.mark.parametrize("sign", [" ", "\n", " \n", "\t", "\xa0", "a ", "\r", "\x00", "a"])
async def test_a_text_of_one_sign_takes_little_time(sign: str) -> None:
    body = (sign * 1_000_000 + "end").encode()
    begun = time.process_time()
    page = await text_of(body, "text/plain")
    find_in(page.text, "a a b")
    find_in(page.text, "a " * 249 + "c")
    assert time.process_time() - begun < 2


async def test_the_title_is_one_short_line() -> None:
    page = await text_of("<title>a\n\n b\x07" + "x" * 5000 + "</title><p>t")
    assert page.title.startswith("a b")
    assert len(page.title) <= 1000


_NASTY = {
    "main": "<main>" + "<div>" * 200_000 + "<p>x" * 100_000,
    "deep": "<div>" * 400_000,
    "formatting": "<p><a><b><i><u>x" * 100_000,
    "attributes": "<div " + " ".join(f"a{n}=1" for n in range(250_000)) + ">x",
    "tables": "<table><tr><td>" * 130_000,
    "foster": "<table>" + "a<b>" * 400_000,
    "lists": "<ul><li>" * 250_000,
    "text": "<p>" + "word " * 400_000,
    "entities": "&amp;" * 400_000,
    "open": "<" * 2_000_000,
}


@pytest.mark.parametrize("kind", _NASTY)
async def test_a_nasty_page_ends_in_time_and_leaves_the_loop_alone(kind: str) -> None:
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(0.01)
            longest = max(longest, time.perf_counter() - begun)

    body = _NASTY[kind].encode()
    watching = asyncio.create_task(watch())
    begun = time.perf_counter()
    found = ""
    with contextlib.suppress(SearchFailed):
        found = (await text_of(body, seconds=1)).text
    assert len(found) <= 1_000_000
    assert time.perf_counter() - begun < 5
    watching.cancel()
    assert longest < 0.8


def children() -> set[int]:
    """The processes that this one has started, and that have not ended."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # one that has just ended
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and fields[0] != "Z":
                found.add(int(stat.parent.name))
    return found


async def test_a_process_that_nobody_waits_for_is_killed() -> None:
    before = children()
    extractor = PageTextExtractor(60)
    body = _NASTY["attributes"].encode()
    tasks = [asyncio.create_task(extractor.extract("text/html", body, "")) for _ in range(3)]
    await until(lambda: len(children() - before) == 2)  # and the third waits for a place
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await until(lambda: not children() - before)
    assert (await extractor.extract("text/html", b"<p>x", "")).text == "x", "its place is free"
    extractor.close()


async def test_the_process_gets_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    before = children()
    extractor = PageTextExtractor(60)
    body = _NASTY["attributes"].encode()
    task = asyncio.create_task(extractor.extract("text/html", body, ""))
    await until(lambda: bool(children() - before))
    [child] = children() - before
    environ = Path(f"/proc/{child}/environ")
    command = Path(f"/proc/{child}/cmdline")
    await until(lambda: b"page_text_child.py" in command.read_bytes())
    assert b"sk-secret" not in await asyncio.to_thread(environ.read_bytes)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until(lambda: not children() - before)
    extractor.close()


async def test_a_process_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(SearchFailed) as caught:
        await text_of("<p>x")
    assert caught.value.error == "page_failed"


async def test_without_the_extra_no_pages_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_extractor() is None
    monkeypatch.setattr("router.tools.web_search.page_text.find_spec", lambda name: None)
    tool = WebSearch(settings(), guard())
    assert "install the extra 'tools'" in (tool.problem or "")
    assert "pip install '.[tools]'" in (tool.problem or "")
    assert tool.offered()["parameters"]["properties"].keys() == {"action", "query"}
    assert WebSearch(settings(open_pages=False), guard()).problem is None
