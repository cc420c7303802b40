"""The web search tool: what a model is offered, and what becomes of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from router.dialects.hosted_items import QUOTED
from router.fetch.guard import FetchGuard
from router.settings.web_search import WebSearchSettings
from router.tools.web_search.arguments import (
    SearchCall,
    function_for,
    parse_call,
    shown_action,
)
from router.tools.web_search.citations import plain_url
from router.tools.web_search.options import ContextSize, SearchOptions, UserLocation
from router.tools.web_search.outcome import (
    FindAction,
    OpenAction,
    SearchAction,
    SearchFailed,
    SearchOutcome,
    WebSearchAction,
    WebSource,
)
from router.tools.web_search.page_text import missing_extractor
from router.tools.web_search.pages import PageReader, find_in
from router.tools.web_search.providers import provider_for
from router.tools.web_search.results import SearchQuery, SearchResult
from router.tools.web_search.service import SearchService

__all__ = ["WebSearch"]

_MOST_ASKED: Final = 20
"""Results that are asked for where some may be filtered out."""

_RESULTS: Final[Mapping[ContextSize, int]] = {"low": 3, "medium": 6, "high": 12}
_SNIPPET: Final[Mapping[ContextSize, int]] = {"low": 300, "medium": 600, "high": 1500}
"""Characters of a result's text."""

_PAGE_SHARE: Final[Mapping[ContextSize, float]] = {"low": 0.25, "medium": 0.5, "high": 1.0}
"""Of ``page_characters``."""

_CITE: Final = "Cite what you use as a Markdown link with the page's URL, like ([title](url))."


class WebSearch:
    """Searches with the service of ``settings``; pages are fetched through ``guard``.

    ``problem`` is why models are offered no pages although the settings allow them, or None.
    """

    def __init__(self, settings: WebSearchSettings, guard: FetchGuard) -> None:
        self.provider = settings.provider
        self.problem = missing_extractor() if settings.open_pages else None
        self._settings = settings
        self._opens_pages = settings.open_pages and self.problem is None
        self._asked = provider_for(settings)
        self._service = SearchService(settings.timeout)
        self._pages = PageReader(settings, guard)

    def offered(self, options: SearchOptions | None = None) -> dict[str, Any]:
        """The function tool of the Responses API that a model is offered. It is told where the user
        is, if the ``options`` say so: most search services cannot be.
        """
        location = options.location if options is not None else UserLocation()
        return function_for(pages=self._opens_pages, location=location)

    def action(self, arguments: str) -> WebSearchAction:
        """What the item says of a call that has not been run; an empty search for one that is no
        valid call.
        """
        return shown_action(arguments, pages=self._opens_pages)

    async def run(
        self, options: SearchOptions, arguments: str, *, deadline: float, used: int = 0
    ) -> SearchOutcome:
        """What a model's call comes to, by ``deadline`` of the event loop's clock.

        ``used`` is how many calls of the tool came before in this response. A failure is an outcome
        that says so: nothing is raised but CancelledError.
        """
        action = self.action(arguments)
        try:
            call = parse_call(arguments, pages=self._opens_pages)
            _check_allowed(options, used)
            async with asyncio.timeout_at(deadline):
                return await self._run(call, options)
        except TimeoutError:
            return self._failed(action, SearchFailed("The time for the call is over.", "timeout"))
        except SearchFailed as failure:
            return self._failed(action, failure)

    async def close(self) -> None:
        """End the connections to the search service, and open no pages any more."""
        self._pages.close()
        await self._service.close()

    async def _run(self, call: SearchCall, options: SearchOptions) -> SearchOutcome:
        action = call.action
        if action["type"] == "search":
            return await self._search(action, options)
        if action["type"] == "open_page":
            return await self._open(action, call.start, options)
        return await self._find(action, options)

    async def _search(self, action: SearchAction, options: SearchOptions) -> SearchOutcome:
        most = min(_RESULTS[options.size], self._settings.max_results)
        filtered = options.domains.allowed is not None or options.domains.blocked
        query = SearchQuery(action["query"], _MOST_ASKED if filtered else most, options)
        answer = await self._service.ask(self._asked.request(query))
        results = _chosen(self._asked.results(answer), options, most)
        shown: SearchAction = {
            **action,
            "sources": [{"type": "url", "url": result.url} for result in results],
        }
        most_shown = _SNIPPET[options.size]
        return SearchOutcome(
            shown,
            _results_text(action["query"], results, most_shown),
            tuple(
                WebSource(one.url, one.title or one.url, _cut(one.snippet, most_shown), one.date)
                for one in results
            ),
            cost=self._settings.price_per_call,
        )

    async def _open(self, action: OpenAction, start: int, options: SearchOptions) -> SearchOutcome:
        url = action["url"]
        page = await self._pages.read(url, options.domains)
        most = max(int(self._settings.page_characters * _PAGE_SHARE[options.size]), 1)
        if start >= len(page.text):
            raise SearchFailed(
                f"The page's text has {len(page.text)} characters only.", "invalid_arguments"
            )
        end = min(start + most, len(page.text))
        part = f"Characters {start} to {end} of {len(page.text)}."
        if end < len(page.text):
            part += f" To go on, open the page again with start: {end}."
        title = page.title or url
        shown = page.text[start:end]
        text = f"{title}\n{url}\n{part}\n{QUOTED}\n\n{shown}\n\n{_CITE}"
        return SearchOutcome(action, text, (WebSource(url, title, shown),))

    async def _find(self, action: FindAction, options: SearchOptions) -> SearchOutcome:
        url = action["url"]
        page = await self._pages.read(url, options.domains)
        excerpts, count = await asyncio.to_thread(find_in, page.text, action["pattern"])
        title = page.title or url
        if not excerpts:
            text = f"{title}\n{url}\nThe text is not in the page. Try other words, or open it."
            return SearchOutcome(action, text, (WebSource(url, title),))
        found = "\n\n".join(f"[{n}] {excerpt}" for n, excerpt in enumerate(excerpts, 1))
        text = f"{title}\n{url}\nFound {count} times.\n{QUOTED}\n\n{found}\n\n{_CITE}"
        return SearchOutcome(action, text, (WebSource(url, title, found),))

    def _failed(self, action: WebSearchAction, failure: SearchFailed) -> SearchOutcome:
        return SearchOutcome(
            action, f"Error: {failure.message}", error=failure.error, reason=failure.message
        )


def _check_allowed(options: SearchOptions, used: int) -> None:
    if not options.live:
        raise SearchFailed("The request allows no access to the web.", "not_allowed")
    if options.max_uses is not None and used >= options.max_uses:
        raise SearchFailed(
            f"The request allows {options.max_uses} calls of this tool, and all are used. Answer "
            "with what you have.",
            "max_uses_exceeded",
        )


def _chosen(results: list[SearchResult], options: SearchOptions, most: int) -> list[SearchResult]:
    """The first results that the request's domains admit, each page once."""
    seen: dict[str, SearchResult] = {}
    for result in results:
        if options.domains.admits(result.url):
            seen.setdefault(plain_url(result.url), result)
    return list(seen.values())[:most]


def _results_text(query: str, results: list[SearchResult], most: int) -> str:
    if not results:
        return f"Nothing was found for: {query}\nTry other words."
    shown = "\n\n".join(
        f"[{number}] {_one_text(one, most)}" for number, one in enumerate(results, 1)
    )
    return f"Results for: {query}\n{QUOTED}\n\n{shown}\n\n{_CITE}"


def _one_text(result: SearchResult, most: int) -> str:
    published = f"Published: {result.date}" if result.date else ""
    lines = (result.title or result.url, result.url, published, _cut(result.snippet, most))
    return "\n".join(line for line in lines if line)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most].rstrip() + "…"
