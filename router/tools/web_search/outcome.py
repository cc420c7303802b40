"""What a call of the web search tool came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict

__all__ = [
    "FindAction",
    "OpenAction",
    "SearchAction",
    "SearchActionSource",
    "SearchError",
    "SearchFailed",
    "SearchOutcome",
    "WebSearchAction",
    "WebSource",
]


class SearchActionSource(TypedDict):
    """A result, as a ``web_search_call`` names it."""

    type: Literal["url"]
    url: str


class SearchAction(TypedDict):
    """OpenAI's ``WebSearchActionSearch``. ``query`` is deprecated there; SDKs still read it."""

    type: Literal["search"]
    query: str
    queries: list[str]
    sources: NotRequired[list[SearchActionSource]]


class OpenAction(TypedDict):
    """OpenAI's ``WebSearchActionOpenPage``."""

    type: Literal["open_page"]
    url: str


class FindAction(TypedDict):
    """OpenAI's ``WebSearchActionFind``."""

    type: Literal["find_in_page"]
    url: str
    pattern: str


WebSearchAction = SearchAction | OpenAction | FindAction


@dataclass(frozen=True, slots=True)
class WebSource:
    """A page that the model was shown something of, and may cite. ``text`` is what it was shown,
    ``date`` when the page was published, as the search service writes it.
    """

    url: str
    title: str
    text: str = ""
    date: str = ""


SearchError = Literal[
    "invalid_arguments",  # the model asked for what there is not
    "not_allowed",  # its filters, or the settings, keep the page from being opened
    "max_uses_exceeded",
    "search_failed",  # the search service did not answer, or refused
    "page_failed",  # the page could not be fetched or read
    "timeout",
]
"""Short, for metrics and the ledger."""


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """``action`` is for the ``web_search_call`` item, ``text`` for the model.

    A search's action has its ``sources``, which OpenAI shows only where the request includes
    ``web_search_call.action.sources``. Where the call failed, ``error`` says how, ``reason`` is a
    sentence without keys or the address of the search service, and ``text`` tells the model.
    ``cost`` is the price of what was asked of the search service, in US dollars.
    """

    action: WebSearchAction
    text: str
    sources: tuple[WebSource, ...] = ()
    error: SearchError | None = None
    reason: str | None = None
    cost: float = 0.0


class SearchFailed(Exception):
    """A search or a page gave nothing, and why: a sentence that holds no key.

    ``retry_after`` is for how many seconds a search service wants to be left alone.
    """

    def __init__(
        self,
        message: str,
        error: SearchError = "search_failed",
        *,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.error: SearchError = error
        self.retry_after = retry_after
