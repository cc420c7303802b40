"""Any search service with a JSON API, asked as ``tools.web_search.mapping`` says. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from router.settings.web_search import PLACEHOLDERS, SearchMappingSettings
from router.tools.web_search.results import SearchQuery, SearchResult, results_in, value_at
from router.tools.web_search.service import ServiceRequest

__all__ = ["MappedProvider"]

_PLACEHOLDER: Final = re.compile("{(" + "|".join(PLACEHOLDERS) + ")}")

Value = str | int | list[str]


class MappedProvider:
    """``url`` has placeholders, as the mapping's headers and body do."""

    def __init__(self, url: str, key: str, mapping: SearchMappingSettings) -> None:
        self._url = url
        self._key = key
        self._mapping = mapping
        self._headers = {n: value.get_secret_value() for n, value in mapping.headers.items()}

    def request(self, query: SearchQuery) -> ServiceRequest:
        """See ``SearchProvider``."""
        values = self._values(query)
        headers = {name: _filled(text, values) for name, text in self._headers.items()}
        return ServiceRequest(
            _filled(self._url, values, lambda text: quote(text, safe="")),
            self._mapping.method,
            # A header holds no line ends and only ASCII: what a client says of itself may not.
            {n: re.sub(r"[^\x20-\x7e]", "", value) for n, value in headers.items()},
            _body(self._mapping.body, values),
        )

    def results(self, answer: Any) -> list[SearchResult]:
        """See ``SearchProvider``."""
        fields = self._mapping
        return results_in(
            value_at(answer, fields.results.split(".")),
            fields.title.split("."),
            fields.url.split("."),
            fields.snippet.split("."),
            fields.date.split(".") if fields.date is not None else (),
        )

    def _values(self, query: SearchQuery) -> Mapping[str, Value]:
        options = query.options
        return {
            "query": query.text,
            "count": query.count,
            "country": options.location.country or "",
            "region": options.location.region or "",
            "city": options.location.city or "",
            "timezone": options.location.timezone or "",
            "allowed_domains": options.domains.allowed_hosts,
            "blocked_domains": options.domains.blocked_hosts,
            "api_key": self._key,
        }


def _filled(template: str, values: Mapping[str, Value], encode: Callable[[str], str] = str) -> str:
    """The text with its placeholders filled in, once: what is filled in is not looked at again."""

    def value(match: re.Match[str]) -> str:
        found = values[match[1]]
        return encode(",".join(found) if isinstance(found, list) else str(found))

    return _PLACEHOLDER.sub(value, template)


def _body(template: Any, values: Mapping[str, Value]) -> Any:
    if isinstance(template, dict):
        return {name: _body(value, values) for name, value in template.items()}
    if isinstance(template, list):
        return [_body(value, values) for value in template]
    if not isinstance(template, str):
        return template
    alone = _PLACEHOLDER.fullmatch(template)
    return values[alone[1]] if alone else _filled(template, values)
