"""Opens a page on the public Internet, and finds text in it."""

from __future__ import annotations

import asyncio
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
    line, wanted = " ".join(text.split()), _folded(" ".join(pattern.split()))
    folded = _folded(line)  # no regular expression: one for many words takes quadratic time
    excerpts: list[str] = []
    shown_to = count = 0
    start = folded.find(wanted)
    while start >= 0 and count < _MOST_COUNTED:
        count += 1
        end = start + len(wanted)
        if start >= shown_to and len(excerpts) < _MOST_MATCHES:
            first, last = max(start - _AROUND, shown_to), end + _AROUND
            before, after = "…" if first > 0 else "", "…" if last < len(line) else ""
            excerpts.append(before + line[first:last].strip() + after)
            shown_to = last
        start = folded.find(wanted, end)
    return excerpts, count


def _folded(text: str) -> str:
    """In lower case, and of the same length: there is one letter that becomes two."""
    return text.replace("\u0130", "I").lower()


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
