"""A search, and what a service's answer says of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from router.tools.web_search.options import SearchOptions
from router.tools.web_search.outcome import SearchFailed
from router.tools.web_search.service import ServiceRequest

__all__ = ["SearchProvider", "SearchQuery", "SearchResult", "results_in", "value_at"]

_MOST_LISTED: Final = 200
_MOST_URL: Final = 2048
_MOST_TITLE: Final = 200
_MOST_DATE: Final = 40
_MOST_SNIPPET: Final = 8000
_BLANKS: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """``count`` is how many results are wanted, at most 20."""

    text: str
    count: int
    options: SearchOptions


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A page that was found; all but its URL is on one line and may be empty. ``date`` is when it
    was published, as the service writes it.
    """

    url: str
    title: str
    snippet: str
    date: str = ""


class SearchProvider(Protocol):
    """A search service: how it is asked, and where its answer has what."""

    def request(self, query: SearchQuery) -> ServiceRequest:
        """What to send for a search."""
        ...

    def results(self, answer: Any) -> list[SearchResult]:
        """What the JSON of an answer says, in its order; raises SearchFailed where it is no answer
        to a search.
        """
        ...


def value_at(answer: Any, path: Sequence[str]) -> Any:
    """What is at a path of names in a JSON value; None where there is nothing, or no path."""
    for name in path:
        if not isinstance(answer, dict):
            return None
        answer = answer.get(name)
    return answer if path else None


def results_in(
    listed: Any,
    title: Sequence[str],
    url: Sequence[str],
    snippet: Sequence[str],
    date: Sequence[str],
) -> list[SearchResult]:
    """The results of a list, without those that have no URL; raises SearchFailed where it is no
    list, or where nothing in it has one.
    """
    if not isinstance(listed, list):
        raise SearchFailed("The search service's answer has no list of results.")
    found = []
    for item in listed[:_MOST_LISTED]:
        place = value_at(item, url)
        if isinstance(place, str) and 0 < len(place) <= _MOST_URL and place.isprintable():
            found.append(
                SearchResult(
                    place,
                    _one_line(value_at(item, title), _MOST_TITLE),
                    _one_line(value_at(item, snippet), _MOST_SNIPPET),
                    _one_line(value_at(item, date), _MOST_DATE),
                )
            )
    if listed and not found:
        raise SearchFailed("The search service's results have no URLs.")
    return found


def _one_line(text: Any, most: int) -> str:
    if isinstance(text, list):
        text = " … ".join(part for part in text if isinstance(part, str))
    if not isinstance(text, str):
        return ""
    return _BLANKS.sub(" ", text[: 4 * most]).strip()[:most]
