"""Opens a page on the public Internet, and finds text in it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Final

from router.errors import NoFileDescriptors
from router.fetch.guard import FetchGuard, NotFetched
from router.settings.web_search import WebSearchSettings
from router.tools.web_search.options import DomainFilter
from router.tools.web_search.outcome import SearchFailed
from router.tools.web_search.page_text import (
    HTML_TYPES,
    TEXT_TYPES,
    PageText,
    PageTextExtractor,
)

__all__ = ["PageReader", "find_in"]

_MIB: Final = 1024 * 1024
_TYPES: Final = HTML_TYPES | TEXT_TYPES
_ACCEPT: Final = {"Accept": "text/html, application/xhtml+xml, text/plain;q=0.9, */*;q=0.1"}
_MOST_MATCHES: Final = 10
_MOST_COUNTED: Final = 1000
_AROUND: Final = 240
"""Characters of the page that are shown before and after a match."""


class PageReader:
    """Fetches pages through ``guard``, whose own limits hold beside those of ``settings``."""

    def __init__(self, settings: WebSearchSettings, guard: FetchGuard) -> None:
        self._settings = settings
        self._guard = guard
        self._extractor = PageTextExtractor()

    async def read(self, url: str, domains: DomainFilter) -> PageText:
        """The page, if ``domains`` admit it and every page that it redirects to.

        Raises SearchFailed, with a sentence that holds nothing of the URL.
        """
        check = _checker(domains)
        check(url)
        limit = self._settings.page_timeout
        try:
            async with asyncio.timeout(limit):
                file = await self._guard.fetch(
                    url,
                    types=_TYPES,
                    count=_counter(int(self._settings.max_page_mb * _MIB)),
                    headers=_ACCEPT,
                    check=check,
                )
                page = await self._extractor.extract(file.media_type, file.body, file.charset)
        except TimeoutError:
            raise SearchFailed(
                f"The page could not be read within {limit:g} s.", "timeout"
            ) from None
        except NotFetched as error:
            raise SearchFailed(
                f"The page was not opened. {error.message}", "page_failed"
            ) from error
        except NoFileDescriptors as error:
            raise SearchFailed("The router cannot open pages now.", "page_failed") from error
        if not page.text:
            raise SearchFailed(
                "The page has no text; it may need a browser to be shown.", "page_failed"
            )
        return page

    def close(self) -> None:
        """Read nothing any more. The guard is the caller's."""
        self._extractor.close()


def find_in(text: str, pattern: str) -> tuple[list[str], int]:
    """Where a text has the pattern, case and the kind of blanks aside: the first excerpts, on one
    line each and without overlap, and how often it is there, counted up to 1000.
    """
    words = [re.escape(word) for word in pattern.split()]
    excerpts: list[str] = []
    shown_to = count = 0
    for match in re.finditer(r"\s+".join(words), text, re.IGNORECASE):
        count += 1
        if match.start() >= shown_to and len(excerpts) < _MOST_MATCHES:
            start, end = max(match.start() - _AROUND, shown_to), match.end() + _AROUND
            before, after = "…" if start > 0 else "", "…" if end < len(text) else ""
            excerpts.append(before + " ".join(text[start:end].split()) + after)
            shown_to = end
        if count == _MOST_COUNTED:
            break
    return excerpts, count


def _checker(domains: DomainFilter) -> Callable[[str], None]:
    def check(url: str) -> None:
        if not domains.admits(url):
            raise SearchFailed(
                "The page was not opened: its address is no http or https URL, or the request's "
                "domain filters exclude it.",
                "not_allowed",
            )

    return check


def _counter(limit: int) -> Callable[[int], None]:
    total = 0

    def count(size: int) -> None:
        nonlocal total
        total += size
        if total > limit:
            raise NotFetched(f"It is larger than {limit / _MIB:g} MiB.")

    return count
