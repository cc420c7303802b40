"""Search services behind one interface: what each is asked, and what its answer says. Pure."""

from __future__ import annotations

import html
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlencode

from router.settings.web_search import WebSearchSettings
from router.tools.web_search.mapping import MappedProvider
from router.tools.web_search.options import DomainFilter
from router.tools.web_search.outcome import SearchFailed
from router.tools.web_search.results import SearchProvider, SearchQuery, SearchResult, results_in
from router.tools.web_search.service import ServiceRequest

__all__ = ["provider_for"]

_MOST_SITES: Final = 8
"""Domains that are put into a query. Whatever a service makes of them, results are filtered."""

_BRAVE: Final = "https://api.search.brave.com/res/v1"
_BRAVE_MOST: Final = 400
"""Characters of a query that Brave takes; it counts words, too."""
_BRAVE_WORDS: Final = 50
_BRAVE_COUNTRIES: Final = (
    "AR AU AT BE BR CA CL DK FI FR DE HK IN ID IT JP KR MY MX NL NZ NO CN PL PT PH RU SA ZA ES SE "
    "CH TW TR GB US"
)
"""Those that Brave has results of; it refuses a request for another."""

_TAVILY: Final = "https://api.tavily.com"
_TAVILY_MOST: Final = 400


def provider_for(settings: WebSearchSettings) -> SearchProvider:
    """The service that the settings name."""
    key = settings.api_key.get_secret_value() if settings.api_key is not None else ""
    url = settings.url or ""
    match settings.provider:
        case "searxng":
            return _SearxngProvider(url, key)
        case "brave":
            return _BraveProvider(url or _BRAVE, key)
        case "tavily":
            return _TavilyProvider(url or _TAVILY, key)
        case "http":
            assert settings.mapping is not None
            return MappedProvider(url, key, settings.mapping)


class _SearxngProvider:
    """SearXNG, whose ``search.formats`` have to contain ``json``. It has no number of results and
    no country; a key is for a proxy before it.
    """

    def __init__(self, url: str, key: str) -> None:
        self._url = url.removesuffix("/search")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def request(self, query: SearchQuery) -> ServiceRequest:
        """See ``SearchProvider``."""
        fields = {"q": _with_sites(query.text, query.options.domains), "format": "json"}
        return ServiceRequest(f"{self._url}/search?{urlencode(fields)}", headers=self._headers)

    def results(self, answer: Any) -> list[SearchResult]:
        """See ``SearchProvider``. Engines that do not answer it are no reason for it to say so,
        but for a list.
        """
        found = _member(answer, "results")
        if found == [] and _member(answer, "unresponsive_engines"):
            raise SearchFailed("None of the search service's engines has answered.")
        return results_in(found, ("title",), ("url",), ("content",), ("publishedDate",))


class _BraveProvider:
    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._key = key

    def request(self, query: SearchQuery) -> ServiceRequest:
        """See ``SearchProvider``."""
        place = query.options.location
        plain = " ".join(query.text.split()[:_BRAVE_WORDS])[:_BRAVE_MOST]
        text = _with_sites(plain, query.options.domains)
        if len(text) > _BRAVE_MOST or len(text.split()) > _BRAVE_WORDS:
            text = plain
        fields = {
            "q": text,
            "count": str(query.count),
            "text_decorations": "false",
            "result_filter": "web",
        }
        if place.country and place.country in _BRAVE_COUNTRIES:
            fields["country"] = place.country
        located = {
            "X-Loc-Country": place.country,
            "X-Loc-State-Name": place.region,
            "X-Loc-City": place.city,
            "X-Loc-Timezone": place.timezone,
        }
        headers = {name: value for name, value in located.items() if value and value.isascii()}
        return ServiceRequest(
            f"{self._url}/web/search?{urlencode(fields)}",
            headers={**headers, "X-Subscription-Token": self._key},
        )

    def results(self, answer: Any) -> list[SearchResult]:
        """See ``SearchProvider``. Where nothing is found there is no ``web`` in the answer."""
        found = _member(answer, "web")
        if found is None and _member(answer, "type") == "search":
            return []
        results = results_in(
            _member(found, "results"), ("title",), ("url",), ("description",), ("page_age",)
        )
        return [
            replace(one, title=html.unescape(one.title), snippet=html.unescape(one.snippet))
            for one in results
        ]


class _TavilyProvider:
    """Tavily. Its countries are names, not codes: a user's location is not sent."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._key = key

    def request(self, query: SearchQuery) -> ServiceRequest:
        """See ``SearchProvider``."""
        body = {"query": query.text[:_TAVILY_MOST], "max_results": query.count}
        fields = {
            "include_domains": query.options.domains.allowed_hosts,
            "exclude_domains": query.options.domains.blocked_hosts,
        }
        return ServiceRequest(
            f"{self._url}/search",
            "POST",
            {"Authorization": f"Bearer {self._key}"},
            {**body, **{name: hosts for name, hosts in fields.items() if hosts}},
        )

    def results(self, answer: Any) -> list[SearchResult]:
        """See ``SearchProvider``."""
        listed = _member(answer, "results")
        return results_in(listed, ("title",), ("url",), ("content",), ("published_date",))


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _with_sites(text: str, domains: DomainFilter) -> str:
    """The query, with the operator that most engines have for domains, where they are few."""
    allowed, blocked = domains.allowed_hosts, domains.blocked_hosts
    if len(allowed) + len(blocked) > _MOST_SITES:
        return text
    sites = " OR ".join(f"site:{host}" for host in allowed)
    if len(allowed) > 1:
        sites = f"({sites})"
    return " ".join([text, *filter(None, [sites]), *(f"-site:{host}" for host in blocked)])
