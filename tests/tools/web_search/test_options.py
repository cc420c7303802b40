"""What a request's tool says."""

from __future__ import annotations

from typing import Any

import pytest

from router.dialects.responses.tools import is_web_search
from router.errors import InvalidRequest
from router.tools.web_search.options import (
    SearchOptions,
    UserLocation,
    read_options,
)


def options(**fields: Any) -> SearchOptions:
    return read_options({"type": "web_search", **fields}, "tools[1]")


@pytest.mark.parametrize(
    ("kind", "is_one"),
    [
        ("web_search", True),
        ("web_search_preview", True),
        ("web_search_2025_08_26", True),
        ("web_search_preview_2025_03_11", True),
        ("web_search_20250305", False),
        ("web_search\n", False),
        ("file_search", False),
        (None, False),
    ],
)
def test_types(kind: object, is_one: bool) -> None:
    assert is_web_search(kind) is is_one


def test_nothing_said() -> None:
    assert options() == SearchOptions()
    null = {"filters": None, "user_location": None, "search_context_size": None, "max_uses": None}
    assert options(**null) == SearchOptions()
    assert options(filters={"allowed_domains": []}).domains.admits("https://anywhere.example/")


def test_everything_said() -> None:
    said = options(
        search_context_size="high",
        max_uses=3,
        external_web_access=False,
        user_location={
            "type": "approximate",
            "country": "gb",
            "region": "London",
            "city": "London",
            "timezone": "Europe/London",
        },
    )
    assert said.location == UserLocation("GB", "London", "London", "Europe/London")
    assert (said.size, said.max_uses, said.live) == ("high", 3, False)


@pytest.mark.parametrize(
    ("url", "admitted"),
    [
        ("https://example.com/", True),
        ("http://example.com:8080/a", True),
        ("https://EXAMPLE.com./a", True),
        ("https://docs.example.com/a", True),
        ("https://notexample.com/", False),
        ("https://example.com.evil.test/", False),
        ("https://evil.test/?example.com", False),
        ("https://example.com@evil.test/", False),
        ("https://private.example.com/", False),
        ("https://a.private.example.com/", False),
        ("https://news.test/world/today", True),
        ("https://news.test/world", True),
        ("https://news.test/worldwide", False),
        ("https://news.test/world/../sport", False),
        ("https://news.test/world/%2e%2E/sport", False),
        ("https://news.test/world/%2e./sport", False),
        ("https://news.test/%77orld/today", True),
        ("https://xn--bcher-kva.example/", True),
        ("https://bücher.example/", True),
        ("ftp://example.com/", False),
        ("javascript:alert(1)", False),
        ("//example.com/", False),
        ("https://[::1", False),
        ("", False),
    ],
)
def test_domains(url: str, admitted: bool) -> None:
    allowed = ["example.com", "https://news.test/world/", "bücher.example"]
    said = options(filters={"allowed_domains": allowed, "blocked_domains": ["private.example.com"]})
    assert said.domains.admits(url) is admitted


def test_domains_for_services() -> None:
    filters = {
        "allowed_domains": ["a.test/x", "A.test/y"],
        "blocked_domains": ["b.test", "c.test/d"],
    }
    domains = options(filters=filters).domains
    assert (domains.allowed_hosts, domains.blocked_hosts) == (["a.test"], ["b.test"])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"filters": []}, "filters"),
        ({"filters": {"allowed_domains": "a.test"}}, "filters.allowed_domains"),
        ({"filters": {"allowed_domains": ["a.test"] * 101}}, "filters.allowed_domains"),
        ({"filters": {"allowed_domains": ["a.test", 1]}}, "filters.allowed_domains[1]"),
        ({"filters": {"allowed_domains": [""]}}, "filters.allowed_domains[0]"),
        ({"filters": {"allowed_domains": ["*.a.test"]}}, "filters.allowed_domains[0]"),
        ({"filters": {"allowed_domains": ["u@a.test"]}}, "filters.allowed_domains[0]"),
        ({"filters": {"allowed_domains": ["a.test:80"]}}, "filters.allowed_domains[0]"),
        ({"filters": {"blocked_domains": ["a b"]}}, "filters.blocked_domains[0]"),
        ({"filters": {"blocked_domains": ["[::1"]}}, "filters.blocked_domains[0]"),
        ({"user_location": "Paris"}, "user_location"),
        ({"user_location": {"country": "France"}}, "user_location.country"),
        ({"user_location": {"city": 7}}, "user_location.city"),
        ({"user_location": {"city": "x\r\nEvil: 1"}}, "user_location.city"),
        ({"user_location": {"city": "x" * 300}}, "user_location.city"),
        ({"search_context_size": "huge"}, "search_context_size"),
        ({"search_context_size": 3}, "search_context_size"),
        ({"max_uses": "3"}, "max_uses"),
        ({"max_uses": True}, "max_uses"),
        ({"max_uses": 0}, "max_uses"),
    ],
)
def test_mistakes_name_their_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        options(**fields)
    assert caught.value.param == f"tools[1].{param}"
