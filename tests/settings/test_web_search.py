"""The settings of web search: what each service needs, and mistakes by their field."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from router.settings.web_search import WebSearchSettings

SEARXNG = {"provider": "searxng", "url": "http://10.0.0.7:8888/"}
BRAVE = {"provider": "brave", "api_key": "sk-secret"}
HTTP = {"provider": "http", "url": "https://s.test/find?q={query}", "mapping": {}}


@pytest.mark.parametrize(
    "fields",
    [
        SEARXNG,
        BRAVE,
        {"provider": "tavily", "api_key": "sk-secret", "url": "http://127.0.0.1:1/tavily"},
        HTTP,
        {
            **HTTP,
            "url": "https://s.test/",
            "mapping": {"method": "POST", "body": {"a": ["{query}"]}},
        },
        {**HTTP, "api_key": "k", "mapping": {"headers": {"X-Key": "Key {api_key}"}}},
    ],
)
def test_what_is_valid(fields: dict[str, Any]) -> None:
    settings = WebSearchSettings.model_validate(fields)
    assert settings.url is None or not settings.url.endswith("/")
    assert "sk-secret" not in repr(settings)


@pytest.mark.parametrize(
    ("fields", "at", "message"),
    [
        ({"provider": "google"}, "provider", ""),
        ({"provider": "searxng"}, "url", "is required with provider: searxng"),
        ({"provider": "brave"}, "api_key", "is required with provider: brave"),
        ({"provider": "tavily"}, "api_key", "is required with provider: tavily"),
        ({"provider": "http", "mapping": {}}, "url", "is required with provider: http"),
        ({"provider": "http", "url": "https://s.test?{query}"}, "mapping", "is required"),
        ({**SEARXNG, "mapping": {}}, "mapping", "is for provider: http only"),
        ({**SEARXNG, "url": "http://s.test/?q=1"}, "url", "must not contain a query"),
        ({**SEARXNG, "url": "http://u:p@s.test"}, "url", "user or password"),
        ({**SEARXNG, "url": "http://s.test#a"}, "url", "fragment"),
        ({**SEARXNG, "url": "s.test"}, "url", "must be a URL"),
        ({**SEARXNG, "url": "http://[::1"}, "url", "must be a URL"),
        ({**SEARXNG, "url": "http://a b"}, "url", "blanks"),
        ({**HTTP, "url": "https://{country}.s.test/{query}"}, "url", "a fixed host"),
        ({**HTTP, "url": "https://s.test/{qurey}"}, "url", "has a placeholder that is none of"),
        ({**HTTP, "url": "https://s.test/"}, "url", "has no {query}"),
        ({**HTTP, "mapping": {"headers": {"X": "{key}"}}}, "mapping", "has a placeholder"),
        ({**HTTP, "mapping": {"headers": {"X": "{api_key}"}}}, "api_key", "is required where"),
        ({**HTTP, "mapping": {"headers": {"X Y": "z"}}}, "mapping.headers.X Y.[key]", "must be"),
        ({**HTTP, "mapping": {"headers": {"X": "a\nb"}}}, "mapping.headers.X", "line ends"),
        ({**HTTP, "mapping": {"body": {"q": "{query}"}}}, "mapping.body", "is for method: POST"),
        ({**HTTP, "mapping": {"results": "a..b"}}, "mapping.results", "must be the name"),
        ({**SEARXNG, "max_results": 21}, "max_results", ""),
        ({**SEARXNG, "max_page_mb": 33}, "max_page_mb", ""),
        ({**SEARXNG, "page_characters": 10}, "page_characters", ""),
        ({**SEARXNG, "price_per_call": -1}, "price_per_call", ""),
        ({**SEARXNG, "timeout": 0}, "timeout", ""),
        ({**SEARXNG, "surprise": 1}, "surprise", ""),
    ],
)  # fmt: skip
def test_mistakes(fields: dict[str, Any], at: str, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        WebSearchSettings.model_validate(fields)
    found = {".".join(map(str, error["loc"])): error["msg"] for error in caught.value.errors()}
    assert at in found, found
    assert message in found[at]
