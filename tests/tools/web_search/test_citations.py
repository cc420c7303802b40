"""Which parts of a text cite which source."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.tools.web_search.citations import (
    CitationFinder,
    UrlCitation,
    plain_url,
    url_citations,
)
from router.tools.web_search.outcome import WebSource

A = WebSource("https://a.test/x", "Page A")
B = WebSource("https://en.wiki.test/Foo_(bar)", "Foo (bar)")
C = WebSource("https://c.test", "C")
SOURCES = (A, B, C)


def cited(text: str, sources: tuple[WebSource, ...] = SOURCES) -> list[tuple[str, str]]:
    """The parts of the text that are citations, each with the title of its source."""
    found = url_citations(text, sources)
    return [(text[one["start_index"] : one["end_index"]], one["title"]) for one in found]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("See [it](https://a.test/x).", ["[it](https://a.test/x)"]),
        ("So ([a.test](https://a.test/x)).", ["([a.test](https://a.test/x))"]),
        ("So ([a](https://a.test/x)", ["[a](https://a.test/x)"]),
        (
            "([a](https://a.test/x), [c](https://c.test/))",
            ["[a](https://a.test/x)", "[c](https://c.test/)"],
        ),
        ("(([a](https://a.test/x)))", ["([a](https://a.test/x))"]),
        ("[[1]](https://a.test/x)", ["[[1]](https://a.test/x)"]),
        ("[a [b] c](https://a.test/x)", ["[a [b] c](https://a.test/x)"]),
        (r"[a \] c](https://a.test/x)", [r"[a \] c](https://a.test/x)"]),
        ("[a](<https://a.test/x>)", ["[a](<https://a.test/x>)"]),
        ('[a](https://a.test/x "Title (1)")', ['[a](https://a.test/x "Title (1)")']),
        ("[a](https://a.test/x 'T')", ["[a](https://a.test/x 'T')"]),
        (
            "[f](https://en.wiki.test/Foo_(bar)) and https://en.wiki.test/Foo_(bar).",
            ["[f](https://en.wiki.test/Foo_(bar))", "https://en.wiki.test/Foo_(bar)"],
        ),
        ("(https://en.wiki.test/Foo_(bar))", ["https://en.wiki.test/Foo_(bar)"]),
        ("https://a.test/x, and more", ["https://a.test/x"]),
        ("<https://a.test/x>", ["https://a.test/x"]),
        ("**https://a.test/x**", ["https://a.test/x"]),
        ("`https://a.test/x`", ["https://a.test/x"]),
        ("参见https://a.test/x。下", ["https://a.test/x"]),
        ("HTTPS://A.TEST/x", ["HTTPS://A.TEST/x"]),
        ("[https://a.test/x](https://a.test/x)", ["[https://a.test/x](https://a.test/x)"]),
        ("[https://a.test/x]", ["https://a.test/x"]),
        ("[https://a.test/x] (b)", ["https://a.test/x"]),
        ("[1]: https://a.test/x", ["https://a.test/x"]),
        (
            "[a](https://a.test/x?utm_source=openai#top)",
            ["[a](https://a.test/x?utm_source=openai#top)"],
        ),
        ("https://a.test:443/x/", ["https://a.test:443/x/"]),
        (
            "[a](https://a.test/x)[c](https://c.test)",
            ["[a](https://a.test/x)", "[c](https://c.test)"],
        ),
        ("😀 ([a](https://a.test/x)) é", ["([a](https://a.test/x))"]),
        ("[a\nb](https://a.test/x)", ["https://a.test/x"]),
        ("[a](https://a.test/x", ["https://a.test/x"]),
        ("[" + "x" * 2000 + "](https://a.test/x)", ["https://a.test/x"]),
    ],
)
def test_citations(text: str, parts: list[str]) -> None:
    assert [part for part, _ in cited(text)] == parts


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        "[1] and [2](3)",
        "[a](https://other.test/x)",
        "https://a.test/xy https://a.test/ https://a.test/x/y",
        "https://a.test.evil.test/x",
        "https://evil.test/https://a.test/x",
        "https://evil.test/?u=https://a.test/x",
        "https://evil.test@a.test/x",
        "[https://a.test/x](https://evil.test/)",
        "http://a.test/x",
        "https://a.test/x?q=1",
        "https://[bad/x",
        "ttps://a.test/x",
        "[a](" + "https://a.test/x" + "y" * 5000 + ")",
    ],
)
def test_what_is_no_source_is_not_cited(text: str) -> None:
    assert cited(text) == []


def test_an_annotation_is_like_openais() -> None:
    """As in a recorded stream of OpenAI's: with the parentheses, the end behind the last one."""
    text = "released on **2014\u201105\u201121** ([stat.example](https://stat.example/CRAN/?utm_source=openai))."
    source = WebSource("https://stat.example/CRAN/", "Index of /CRAN")
    assert url_citations(text, [source]) == [
        {
            "type": "url_citation",
            "start_index": 27,
            "end_index": len(text) - 1,
            "url": "https://stat.example/CRAN/",
            "title": "Index of /CRAN",
        }
    ]


def test_of_two_sources_that_are_one_page_the_first_counts() -> None:
    again = WebSource("https://a.test/x/?utm_medium=x", "again")
    assert cited("https://a.test/x", (A, again)) == [("https://a.test/x", "Page A")]


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("https://a.test", "https://a.test"),
        ("HTTPS://A.test:443/", "https://a.test"),
        ("http://a.test:80/b/", "http://a.test/b"),
        ("http://a.test:8080/b#c", "http://a.test:8080/b"),
        ("https://a.test/?utm_source=x&b=1&utm_campaign=y", "https://a.test?b=1"),
        ("https://a.test/?b=1&utm_source=openai", "https://a.test?b=1"),
        ("https://a.test/?b=2&c=1", "https://a.test?b=2&c=1"),
        ("https://[::1", "https://[::1"),
        ("", ""),
    ],
)
def test_plain_urls(url: str, plain: str) -> None:
    assert plain_url(url) == plain


def test_a_citation_is_certain_once_its_end_has_been_seen() -> None:
    finder = CitationFinder(SOURCES)
    fed = [
        finder.feed(piece)
        for piece in ("See ([a](https://a.te", "st/x)", ")", ". Or https:", "//c.test", " so")
    ]
    assert [len(found) for found in fed] == [0, 0, 1, 0, 0, 1]
    assert finder.finish() == []


_PIECES = st.sampled_from(
    [
        "[",
        "]",
        "(",
        ")",
        "](",
        "<",
        ">",
        " ",
        "\n",
        "a",
        "é",
        "😀",
        "\\",
        '"',
        ".",
        "。",
        "h",
        "http",
        "s://",
    ]
    + [source.url for source in SOURCES]
    + [
        "https://evil.test/",
        "[a](https://a.test/x)",
        "([c](https://c.test/))",
        "/",
        "?utm_source=o",
        "#f",
        "x" * 600,
    ]
)
_TEXTS = st.lists(_PIECES, max_size=40).map("".join)


@given(text=_TEXTS, data=st.data())
@settings(max_examples=300, deadline=None)
def test_any_split_gives_the_same(text: str, data: st.DataObject) -> None:
    whole = url_citations(text, SOURCES)
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=12).map(sorted))
    finder = CitationFinder(SOURCES)
    found: list[UrlCitation] = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        found += finder.feed(text[start:end])
    assert [*found, *finder.finish()] == whole
    one_by_one = CitationFinder(SOURCES)
    each = [one for sign in text for one in one_by_one.feed(sign)]
    assert [*each, *one_by_one.finish()] == whole


@given(text=_TEXTS)
@settings(max_examples=300, deadline=None)
def test_citations_never_overlap_and_are_of_sources(text: str) -> None:
    end = 0
    for one in url_citations(text, SOURCES):
        assert end <= one["start_index"] < one["end_index"] <= len(text)
        end = one["end_index"]
        source = next(source for source in SOURCES if source.url == one["url"])
        assert one["title"] == source.title
        shown = text[one["start_index"] : end].lower()
        assert source.url.lower().rstrip("/") in shown


@pytest.mark.parametrize(
    "piece", ["[", "(", "https://", "[a](", "[x", "[]", "[[]", "]", "[a](https://a.test/x "]
)
def test_a_hostile_text_takes_little_time_and_room(piece: str) -> None:
    """A stream of tokens of one character is the worst case: what is undecided is read again."""
    finder = CitationFinder(SOURCES)
    text = (piece * 8000)[:8000]
    begun = time.process_time()
    for sign in text:
        finder.feed(sign)
    assert time.process_time() - begun < 2
    assert len(finder._text) < 2100
    finder.feed("\n")
    assert finder.feed("https://a.test/x ")
