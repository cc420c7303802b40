"""The settings of web search: which service is asked, and how much is shown of what it finds."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from router.settings.section import Section
from router.settings.values import (
    Count,
    HeaderName,
    HeaderValue,
    Positive,
    Seconds,
    Secret,
    Usd,
    fail_at,
    http_url,
    wrong,
)

__all__ = ["PLACEHOLDERS", "SearchMappingSettings", "WebSearchSettings"]

PLACEHOLDERS: Final = (
    "query",
    "count",
    "country",
    "region",
    "city",
    "timezone",
    "allowed_domains",
    "blocked_domains",
    "api_key",
)
"""What a mapping may have in braces, in its URL, its headers and the texts of its body."""

_PLACEHOLDER: Final = re.compile(r"\{([a-z_]*)\}")
_PATH: Final = re.compile(r"[^.\s]{1,128}(\.[^.\s]{1,128}){0,9}")


def _search_url(value: str) -> str:
    """An http(s) URL without user and password; what is in braces may stand anywhere behind the
    host.
    """
    parts = http_url(value, "https://host:port/path", "a key belongs in api_key")
    if "{" in parts.netloc:
        raise wrong("must have a fixed host")
    if "#" in value:
        raise wrong("must not contain a fragment")
    return value.rstrip("/")


def _field_path(value: str) -> str:
    if not _PATH.fullmatch(value):
        raise wrong('must be the name of a field, or a path of names such as "web.results"')
    return value


SearchUrl = Annotated[str, AfterValidator(_search_url)]
FieldPath = Annotated[str, AfterValidator(_field_path)]


class SearchMappingSettings(Section):
    """How any other search service with a JSON API is asked, and where its answer has what.

    ``tools.web_search.url``, ``headers`` and the texts in ``body`` may contain `{query}` and the
    other ``PLACEHOLDERS``. A text of the body that is nothing but `{count}`, `{allowed_domains}` or
    `{blocked_domains}` becomes a number or a list; elsewhere lists are joined by commas.
    """

    method: Literal["GET", "POST"] = "GET"
    """How it is asked."""
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict)
    """Headers that it is sent, such as `Authorization: Bearer {api_key}`."""
    body: dict[str, Any] | None = None
    """The JSON body, for `POST`."""
    results: FieldPath = "results"
    """Where its answer has the list of results, such as `web.results`."""
    title: FieldPath = "title"
    """Where a result has its title."""
    url: FieldPath = "url"
    """Where a result has its URL."""
    snippet: FieldPath = "snippet"
    """Where a result has its text."""
    date: FieldPath | None = None
    """Where a result has the date of its page, if it has."""

    @model_validator(mode="after")
    def _body_is_posted(self) -> SearchMappingSettings:
        faults = [(("body",), "is for method: POST only")]
        fail_at("Mapping", faults if self.body is not None and self.method == "GET" else ())
        return self


class WebSearchSettings(Section):
    """The search service that the router asks for models whose endpoint cannot search, and the
    limits of what it shows.
    """

    provider: Literal["searxng", "brave", "tavily", "http"]
    """The service: `searxng`, `brave`, `tavily`, or any other by its `mapping` (`http`)."""
    url: SearchUrl | None = None
    """Its base URL, which `searxng` needs; with `http` the whole URL, such as
    `https://host/search?q={query}`.
    """
    api_key: Secret | None = None
    """The key that it is sent."""
    mapping: SearchMappingSettings | None = None
    """How it is asked, with `http`."""
    timeout: Seconds = 10.0
    """The longest that a search may take."""
    max_results: Annotated[Count, Field(le=20)] = 12
    """The most results that a search shows."""
    open_pages: bool = True
    """Whether models may open pages and find text in them; needs the extra `tools`."""
    page_timeout: Seconds = 20.0
    """The longest that opening a page may take, its text being extracted included."""
    max_page_mb: Annotated[Positive, Field(le=32)] = 5.0
    """The largest page, in MiB."""
    page_characters: Annotated[Count, Field(ge=500)] = 24_000
    """The most characters of a page that are shown at once."""
    price_per_call: Usd = 0.0
    """What a search costs in US dollars; it counts in budgets."""

    @model_validator(mode="after")
    def _has_what_its_provider_needs(self) -> WebSearchSettings:
        fail_at("WebSearch", [((field,), message) for field, message in self._faults()])
        return self

    def _faults(self) -> list[tuple[str, str]]:
        faults = []
        if self.provider in ("searxng", "http") and self.url is None:
            faults.append(("url", f"is required with provider: {self.provider}"))
        if self.provider in ("brave", "tavily") and self.api_key is None:
            faults.append(("api_key", f"is required with provider: {self.provider}"))
        if self.provider == "http" and self.mapping is None:
            faults.append(("mapping", "is required with provider: http"))
        if self.provider != "http":
            if self.mapping is not None:
                faults.append(("mapping", "is for provider: http only"))
            if self.url is not None and ("?" in self.url or "{" in self.url):
                faults.append(("url", "must not contain a query or braces"))
        return [*faults, *self._wrong_placeholders()]

    def _wrong_placeholders(self) -> list[tuple[str, str]]:
        if self.provider != "http" or self.mapping is None:
            return []
        headers = [value.get_secret_value() for value in self.mapping.headers.values()]
        parts = {"url": [self.url or ""], "mapping": [*headers, *_texts(self.mapping.body)]}
        used = {
            place: {name for text in texts for name in _PLACEHOLDER.findall(text)}
            for place, texts in parts.items()
        }
        known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        faults = [
            (place, f"has a placeholder that is none of {known}")
            for place, names in used.items()
            if names - set(PLACEHOLDERS)
        ]
        if not faults and self.url and "query" not in used["url"] | used["mapping"]:
            faults.append(("url", "has no {query}, nor has the mapping"))
        if "api_key" in used["url"] | used["mapping"] and self.api_key is None:
            faults.append(("api_key", "is required where {api_key} is used"))
        return faults


def _texts(value: Any) -> list[str]:
    """All texts in a JSON value, keys left out."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _texts(one)]
