"""What each search service is asked, on a real connection, and what is made of its answers."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest
import trustme
from aiohttp import web

from router.tools.web_search.outcome import SearchOutcome
from tests.support.files import Handler, serving_at
from tests.tools.web_search.world import KEY, Service, options, run, service, web_search

FOUND = [
    {"title": "One", "url": "https://a.test/1", "content": "First  result\n here"},
    {"title": "Two", "url": "https://b.test/2", "content": "Second"},
]
FILTERS = {"allowed_domains": ["a.test", "b.test"], "blocked_domains": ["x.b.test"]}
LOCATION = {"country": "de", "region": "Bayern", "city": "München", "timezone": "Europe/Berlin"}


async def searched(served: Service, fields: dict[str, Any], **said: Any) -> SearchOutcome:
    async with web_search(served.url, **fields) as tool:
        return await run(tool, options(**said), action="search", query="what & why?")


async def test_searxng() -> None:
    async with service({"results": FOUND}) as served:
        outcome = await searched(served, {})
        await searched(served, {"api_key": KEY}, filters=FILTERS, user_location=LOCATION)
    plain, filtered = served.asked
    assert (plain.method, plain.path) == ("GET", "/search")
    assert plain.query == {"q": "what & why?", "format": "json"}
    assert "Authorization" not in plain.headers
    assert filtered.query["q"] == "what & why? (site:a.test OR site:b.test) -site:x.b.test"
    assert filtered.headers["Authorization"] == f"Bearer {KEY}"
    assert outcome.error is None
    assert outcome.action == {
        "type": "search",
        "query": "what & why?",
        "queries": ["what & why?"],
        "sources": [
            {"type": "url", "url": "https://a.test/1"},
            {"type": "url", "url": "https://b.test/2"},
        ],
    }
    assert [(source.url, source.title) for source in outcome.sources] == [
        ("https://a.test/1", "One"),
        ("https://b.test/2", "Two"),
    ]
    assert "[1] One\nhttps://a.test/1\nFirst result here\n\n[2] Two" in outcome.text
    assert "([title](url))" in outcome.text


async def test_engines_that_do_not_answer_are_not_taken_for_nothing_found() -> None:
    engines = {"unresponsive_engines": [["brave", "too many requests"]]}
    async with service({"results": [], **engines}) as served:
        outcome = await searched(served, {})
    assert outcome.reason == "None of the search service's engines has answered."
    async with service({"results": FOUND, **engines}) as served:
        assert (await searched(served, {})).error is None


async def test_brave() -> None:
    found = [
        {
            "title": "It&#x27;s",
            "url": "https://a.test/1",
            "description": "a &amp; b",
            "page_age": "2026-05-01T00:00:00",
        }
    ]
    brave = {"provider": "brave", "api_key": KEY}
    async with service({"type": "search", "web": {"results": found}}) as served:
        outcome = await searched(served, brave)
        await searched(served, brave, filters=FILTERS, user_location=LOCATION)
        many = {"blocked_domains": [f"d{n}.test" for n in range(20)]}
        await searched(served, brave, filters=many, user_location={"country": "IS"})
    plain, filtered, other = served.asked
    assert (plain.method, plain.path) == ("GET", "/web/search")
    assert (plain.query["q"], plain.query["count"]) == ("what & why?", "6")
    assert plain.headers["X-Subscription-Token"] == KEY
    assert "It's\nhttps://a.test/1\nPublished: 2026-05-01T00:00:00\na & b" in outcome.text
    assert filtered.query["q"] == "what & why? (site:a.test OR site:b.test) -site:x.b.test"
    assert (filtered.query["count"], filtered.query["country"]) == ("20", "DE")
    assert filtered.headers["X-Loc-Timezone"] == "Europe/Berlin"
    assert "X-Loc-City" not in filtered.headers, "a header is ASCII"
    assert (other.query["q"], other.headers["X-Loc-Country"]) == ("what & why?", "IS")
    assert "country" not in other.query


async def test_brave_that_finds_nothing_says_nothing_of_the_web() -> None:
    async with service({"type": "search"}) as served:
        outcome = await searched(served, {"provider": "brave", "api_key": KEY})
    assert outcome.error is None
    assert outcome.text.startswith("Nothing was found for: what & why?")


async def test_tavily() -> None:
    tavily = {"provider": "tavily", "api_key": KEY}
    async with service({"results": FOUND}) as served:
        outcome = await searched(served, tavily, search_context_size="low")
        await searched(served, tavily, filters=FILTERS)
    plain, filtered = served.asked
    assert (plain.method, plain.path) == ("POST", "/search")
    assert plain.body == {"query": "what & why?", "max_results": 3}
    assert plain.headers["Authorization"] == f"Bearer {KEY}"
    assert len(outcome.sources) == 2
    assert filtered.body["include_domains"] == ["a.test", "b.test"]
    assert filtered.body["exclude_domains"] == ["x.b.test"]


async def test_any_other_by_its_mapping() -> None:
    async def answer(request: web.Request) -> web.Response:
        meta = {"name": "One", "on": "May 1"}
        hit = {"meta": meta, "link": "https://a.test/1", "texts": ["x", "y"]}
        return web.json_response({"data": {"hits": [hit]}})

    mapping = {
        "method": "POST",
        "headers": {"X-Key": "{api_key}", "X-City": "{city}"},
        "body": {
            "n": "{count}",
            "at": "{country}/{timezone}",
            "only": "{allowed_domains}",
            "f": [1],
        },
        "results": "data.hits",
        "title": "meta.name",
        "url": "link",
        "snippet": "texts",
        "date": "meta.on",
    }
    async with service(answer) as served:
        url = f"{served.url}/find/{{query}}?d={{allowed_domains}}"
        async with web_search(url, provider="http", api_key=KEY, mapping=mapping) as tool:
            said = options(filters=FILTERS, user_location=LOCATION)
            outcome = await run(tool, said, action="search", query="a/b?c={api_key} 😀")
    [asked] = served.asked
    assert (asked.method, asked.path) == ("POST", "/find/a/b?c={api_key} 😀")
    assert asked.query == {"d": "a.test,b.test"}
    assert asked.body == {"n": 20, "at": "DE/Europe/Berlin", "only": ["a.test", "b.test"], "f": [1]}
    assert (asked.headers["X-Key"], asked.headers["X-City"]) == (KEY, "Mnchen")
    assert "[1] One\nhttps://a.test/1\nPublished: May 1\nx … y" in outcome.text


def says(status: int = 200, body: bytes = b"{}", **headers: str) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=body, headers=named)

    return handler


async def endless(request: web.Request) -> web.StreamResponse:
    """100 MB."""
    answer = web.StreamResponse()
    await answer.prepare(request)
    for _ in range(100):
        await answer.write(b" " * 1_000_000)
    return answer


async def broken(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Length": "100"})
    await answer.prepare(request)
    await answer.write(b'{"results"')
    assert request.transport is not None
    request.transport.abort()
    return answer


async def silent(request: web.Request) -> web.Response:
    await asyncio.sleep(60)
    return web.Response()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (says(500, KEY.encode()), "answered with status 500."),
        (says(401), "refuses the router (status 401)"),
        (says(403), "refuses the router (status 403)"),
        (says(302, Location="http://127.0.0.1:1/?key=" + KEY), "redirects (status 302)"),
        (says(204), "answered with status 204."),
        (says(429), "has had too many requests."),
        (says(429, Retry_After="7"), "asks for a pause of 7 s"),
        (says(429, Retry_After="Fri, 01 Jan 2100 00:00:00 GMT"), "too many requests."),
        (says(429, Retry_After="-1"), "too many requests."),
        (says(429, Retry_After="nan"), "too many requests."),
        (says(body=b"<html>hello</html>", Content_Type="text/html"), "something else than JSON"),
        (says(body=b""), "something else than JSON"),
        (says(body=b"[" * 100_000), "something else than JSON"),
        (says(body=b"\xff\xfe"), "something else than JSON"),
        (says(body=b"{}", Content_Encoding="gzip"), "did not speak HTTP"),
        (says(body=b"null"), "has no list of results"),
        (says(body=b"[]"), "has no list of results"),
        (says(body=b'{"results": {"a": 1}}'), "has no list of results"),
        (says(body=b'{"results": [1, null, "x", {}]}'), "results have no URLs"),
        (says(body=b'{"results": [{"url": 7}, {"url": ""}]}'), "results have no URLs"),
        (endless, "larger than 4 MiB"),
        (broken, "could not be reached"),
        (silent, "did not answer within 0.5 s."),
    ],
)
@pytest.mark.parametrize("provider", ["searxng", "tavily"])
async def test_odd_answers(
    provider: str, answer: Handler, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async with service(answer) as served:
        fields = {"provider": provider, "api_key": KEY, "timeout": 0.5}
        if answer is endless:
            fields["timeout"] = 20
        outcome = await searched(served, fields, search_context_size="low")
    assert outcome.error == ("timeout" if answer is silent else "search_failed")
    assert reason in (outcome.reason or "")
    assert outcome.text == f"Error: {outcome.reason}"
    assert outcome.action == {"type": "search", "query": "what & why?", "queries": ["what & why?"]}
    assert (outcome.sources, outcome.cost) == ((), 0.0)
    assert KEY not in str(outcome)
    assert "127.0.0.1" not in str(outcome)
    assert KEY not in "".join(capfd.readouterr())


async def test_a_certificate_that_is_not_trusted() -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    async with (
        serving_at("127.0.0.1", {}, tls) as files,
        web_search(f"https://127.0.0.1:{files.port}") as tool,
    ):
        outcome = await run(tool, query="x")
    assert outcome.reason == "The certificate of the search service is not trusted."
    assert files.asked == []


async def test_no_service_there() -> None:
    async with web_search("http://127.0.0.1:1") as tool:
        outcome = await run(tool, query="x")
    assert outcome.reason == "The search service could not be reached, or did not speak HTTP."


async def test_results_of_other_types_than_they_should_be() -> None:
    results: list[Any] = [
        {"url": "https://a.test/1", "title": 5, "content": {"x": 1}},
        {"url": "https://a.test/2", "title": None},
        {"url": "https://a.test/\n3", "title": "x"},
        {"url": "javascript:alert(1)", "title": "x"},
        {
            "url": "https://a.test/4",
            "title": "t\x00\x1b[31m\nu" + "v" * 500,
            "content": "w" * 99_999,
        },
        {"url": "https://a.test/4/?utm_source=x", "title": "the same page"},
    ]
    async with service({"results": results}) as served:
        outcome = await searched(served, {})
    assert [source.url for source in outcome.sources] == [f"https://a.test/{n}" for n in (1, 2, 4)]
    assert outcome.sources[0].title == "https://a.test/1"
    assert outcome.sources[2].title.startswith("t [31m uvvv")
    assert len(outcome.sources[2].title) == 200
    assert len(outcome.text) < 2000


async def test_results_are_filtered_whatever_the_service_does() -> None:
    results = [
        {"url": url, "title": "t"}
        for url in (
            "https://evil.test/",
            "https://a.test.evil.test/",
            "https://a.test@evil.test/",
            "https://sub.a.test/ok",
            "https://x.b.test/no",
            "https://b.test/ok",
        )
    ]
    async with service({"results": results}) as served:
        outcome = await searched(served, {}, filters=FILTERS)
    assert [source.url for source in outcome.sources] == [
        "https://sub.a.test/ok",
        "https://b.test/ok",
    ]
    assert "evil" not in outcome.text


@pytest.mark.parametrize(
    ("size", "count", "longest"), [("low", 3, 300), ("medium", 6, 600), ("high", 9, 1500)]
)
async def test_how_much_is_shown(size: str, count: int, longest: int) -> None:
    results = [{"url": f"https://a.test/{n}", "content": "w" * 5000} for n in range(30)]
    async with service({"results": results}) as served:
        outcome = await searched(served, {"max_results": 9}, search_context_size=size)
    assert len(outcome.sources) == count
    assert max(len(line) for line in outcome.text.splitlines()) == longest + 1


async def test_a_service_that_asks_for_a_pause_is_not_asked() -> None:
    async with (
        service(says(429, Retry_After="9")) as served,
        web_search(served.url) as tool,
    ):
        first, second = await run(tool, query="x"), await run(tool, query="x")
    assert len(served.asked) == 1
    assert (
        first.reason == "The search service has had too many requests, and asks for a pause of 9 s."
    )
    assert second.reason == first.reason


async def test_a_search_that_was_answered_costs() -> None:
    async with service({"results": FOUND}) as served:
        outcome = await searched(served, {"price_per_call": 0.005})
    assert outcome.cost == 0.005
