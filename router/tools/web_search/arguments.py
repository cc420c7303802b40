"""What a model may ask the web search tool for: the function it is offered, and its calls."""

from __future__ import annotations

from typing import Any, Final

import orjson

from router.tools.web_search.options import UserLocation
from router.tools.web_search.outcome import SearchFailed, WebSearchAction

__all__ = ["FUNCTION_NAME", "SearchCall", "function_for", "parse_call", "shown_action"]

FUNCTION_NAME: Final = "web_search"

_MOST_QUERY: Final = 1000
_MOST_URL: Final = 4096
_MOST_PATTERN: Final = 500

_ABOUT: Final = (
    "Search the web for current or uncertain facts. Results are numbered, with title, URL and an "
    "excerpt."
)
_PAGES: Final = (
    " Open a page to read it, or find a text in it. A long page is shown in parts: open it again "
    "with 'start'."
)
_CITE: Final = (
    " Cite what you use of a page in your answer as a Markdown link with its URL, like "
    "([title](url)); cite no page that you were not shown."
)


class SearchCall:
    """A call as the model made it: the action, and where in a long page to begin."""

    __slots__ = ("action", "start")

    def __init__(self, action: WebSearchAction, start: int = 0) -> None:
        self.action = action
        self.start = start


def function_for(*, pages: bool, location: UserLocation) -> dict[str, Any]:
    """A function tool of the Responses API; ``pages`` is whether pages may be opened."""
    actions = ["search", "open_page", "find_in_page"] if pages else ["search"]
    fields: dict[str, Any] = {
        "action": {"type": "string", "enum": actions},
        "query": {"type": "string", "description": "search: what to search for"},
    }
    if pages:
        fields["url"] = {"type": "string", "description": "open_page, find_in_page: the page"}
        fields["pattern"] = {"type": "string", "description": "find_in_page: the text to find"}
        fields["start"] = {
            "type": "integer",
            "description": "open_page: the character to begin at, 0 if left out",
        }
    return {
        "type": "function",
        "name": FUNCTION_NAME,
        "description": _ABOUT + (_PAGES if pages else "") + _CITE + _where(location),
        "parameters": {
            "type": "object",
            "properties": fields,
            "required": ["action"],
            "additionalProperties": False,
        },
        "strict": False,
    }


def _where(location: UserLocation) -> str:
    places = [part for part in (location.city, location.region, location.country) if part]
    said = f" The user is in {', '.join(places)}." if places else ""
    return said + (f" The user's time zone is {location.timezone}." if location.timezone else "")


def parse_call(arguments: str, *, pages: bool) -> SearchCall:
    """What the model asks for; raises SearchFailed with a sentence for it.

    Models that leave the action out are understood where the other arguments say it all.
    """
    try:
        given = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        raise _bad("The arguments are no valid JSON.") from None
    if not isinstance(given, dict):
        raise _bad("The arguments must be a JSON object.")
    kind = given.get("action") or _implied(given)
    if kind == "search":
        query = _text(given, "query", _MOST_QUERY)
        return SearchCall({"type": "search", "query": query, "queries": [query]})
    if kind not in ("open_page", "find_in_page") or not pages:
        known = "'search', 'open_page' or 'find_in_page'" if pages else "'search'"
        raise _bad(f"The action must be {known}.")
    url = _text(given, "url", _MOST_URL)
    if kind == "find_in_page":
        pattern = _text(given, "pattern", _MOST_PATTERN)
        return SearchCall({"type": "find_in_page", "url": url, "pattern": pattern})
    start = given.get("start") or 0
    if type(start) is not int or start < 0:
        raise _bad("'start' must be a whole number from 0.")
    return SearchCall({"type": "open_page", "url": url}, start)


def shown_action(arguments: str, *, pages: bool) -> WebSearchAction:
    """The action for an item whose call has not been run; an empty search for one that cannot."""
    try:
        return parse_call(arguments, pages=pages).action
    except SearchFailed:
        return {"type": "search", "query": "", "queries": []}


def _implied(given: dict[str, Any]) -> str | None:
    if given.get("url"):
        return "find_in_page" if given.get("pattern") else "open_page"
    return "search" if given.get("query") else None


def _text(given: dict[str, Any], name: str, most: int) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value.strip():
        raise _bad(f"'{name}' must be a text that is not empty.")
    value = value.strip()
    if len(value) > most:
        raise _bad(f"'{name}' must be no longer than {most} characters.")
    return value


def _bad(message: str) -> SearchFailed:
    return SearchFailed(message, "invalid_arguments")
