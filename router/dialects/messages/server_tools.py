"""Tools that the router has run, as blocks of a message, and those blocks in a history.

A call is a ``server_tool_use`` and its result, in the same message:

    web_search_call     web_search_tool_result: the pages, each with its text for the model
    tool_search_call    tool_search_tool_result: the tools, as ``tool_reference``

``encrypted_content`` of a page is the mark below and the text that the model was shown, in base64:
it is not secret, the client may know it. What Anthropic has encrypted is of no use here; then the
model is shown the title and the URL again.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

import orjson

from router.dialects.hosted_items import QUOTED, WEB_SEARCH
from router.dialects.messages.fields import given, need, objects, one_of, typed
from router.dialects.messages.tool_search import SEARCH_CALL, SEARCH_TOOLS, failed_text, found_text

__all__ = [
    "RAN_HERE",
    "RESULTS",
    "citations_of",
    "place_of",
    "references_in",
    "result_text",
    "use_and_result",
]

Block = dict[str, Any]

RAN_HERE: Final = (WEB_SEARCH, *SEARCH_TOOLS)
"""The names that a ``server_tool_use`` may have."""

RESULTS: Final = ("web_search_tool_result", "tool_search_tool_result")

_MARK: Final = "pmw1."
_CITED: Final = 150
"""Characters of a ``cited_text``, as Anthropic documents it."""

_SEARCH_ERRORS: Final[Mapping[str, str]] = {
    "invalid_arguments": "invalid_tool_input",
    "not_allowed": "invalid_tool_input",
    "max_uses_exceeded": "max_uses_exceeded",
}
_UNAVAILABLE: Final = "unavailable"
_ASKED: Final = ("query", "url", "pattern")


def use_and_result(item: Mapping[str, Any]) -> tuple[Block, str, Block] | None:
    """The call that an output item is, as it begins, its input as JSON, and its result; None for an
    item of any other type.
    """
    kind = item.get("type")
    if kind == "web_search_call":
        name, arguments, kind, content = WEB_SEARCH, *_searched(item)
    elif kind == SEARCH_CALL and _text(item, "name") in SEARCH_TOOLS:
        name, arguments = _text(item, "name"), _text(item, "arguments") or "{}"
        kind, content = "tool_search_tool_result", _found(item)
    else:
        return None
    ident = "srvtoolu_" + _text(item, "id").partition("_")[2]
    use = {"type": "server_tool_use", "id": ident, "name": name, "input": {}}
    return use, arguments, {"type": kind, "tool_use_id": ident, "content": content}


def _searched(item: Mapping[str, Any]) -> tuple[str, str, Any]:
    action = _dict(item.get("action"))
    asked = {name: text for name in _ASKED if (text := _text(action, name))}
    arguments = orjson.dumps(asked).decode()
    if item.get("status") == "failed":
        code = _SEARCH_ERRORS.get(_text(item, "error"), _UNAVAILABLE)
        failed = {"type": "web_search_tool_result_error", "error_code": code}
        return arguments, "web_search_tool_result", failed
    pages = _list(item.get("results")) or _list(action.get("sources"))
    shown = [
        {
            "type": "web_search_result",
            "url": page["url"],
            "title": _text(page, "title") or page["url"],
            "encrypted_content": _MARK + b64encode(_text(page, "text").encode()).decode(),
            "page_age": _text(page, "date") or None,
        }
        for page in pages
        if isinstance(page, dict) and isinstance(page.get("url"), str)
    ]
    return arguments, "web_search_tool_result", shown


def _found(item: Mapping[str, Any]) -> Block:
    error = item.get("error")
    if isinstance(error, dict):
        return {
            "type": "tool_search_tool_result_error",
            "error_code": _text(error, "code") or _UNAVAILABLE,
            "error_message": _text(error, "message") or None,
        }
    names = [name for name in _list(item.get("tool_references")) if isinstance(name, str)]
    return {
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": name} for name in names],
    }


def citations_of(part: Mapping[str, Any], pages: Mapping[str, str]) -> list[Block]:
    """The citations of pages in a text; ``pages`` are the texts of those that are known, by URL."""
    found = []
    for one in _list(part.get("annotations")):
        if isinstance(one, dict) and one.get("type") == "url_citation":
            url = _text(one, "url")
            place = f"{one.get('start_index')}-{one.get('end_index')}"
            found.append(
                {
                    "type": "web_search_result_location",
                    "url": url,
                    "title": _text(one, "title") or None,
                    "encrypted_index": _MARK + b64encode(place.encode()).decode(),
                    "cited_text": pages.get(url, "")[:_CITED],
                }
            )
    return found


def place_of(citation: Mapping[str, Any]) -> tuple[int, int] | None:
    """Which characters of its text a citation of ``citations_of`` is about; None for another's."""
    sealed = _text(citation, "encrypted_index")
    if not sealed.startswith(_MARK):
        return None
    try:
        start, _, end = b64decode(sealed[len(_MARK) :], validate=True).decode().partition("-")
        return int(start), int(end)
    except ValueError:  # of broken base64, too
        return None


def result_text(block: Mapping[str, Any], where: str) -> str:
    """What the model was told, from a result in the history; raises InvalidRequest."""
    content = block.get("content")
    path = f"{where}.content"
    if block["type"] == "tool_search_tool_result":
        content = need(block, "content", dict, where)
        if content.get("type") == "tool_search_tool_result_error":
            return failed_text(given(content, "error_message", str, path) or _code(content, path))
        return found_text(references_in(content, path))
    if isinstance(content, dict):
        return f"Error: {_code(content, path)}"
    pages = [_page(page, at) for at, page in objects(need(block, "content", list, where), path)]
    return "\n\n".join((QUOTED, *pages)) if pages else "Nothing was found."


def references_in(content: Mapping[str, Any], where: str) -> list[str]:
    """The names of the tools that a search found."""
    one_of(need(content, "type", str, where), ("tool_search_tool_search_result",), f"{where}.type")
    found = need(content, "tool_references", list, where)
    return [
        need(typed(one, dict, at), "tool_name", str, at)
        for at, one in objects(found, f"{where}.tool_references")
    ]


def _code(content: Mapping[str, Any], where: str) -> str:
    return need(content, "error_code", str, where)


def _page(page: Mapping[str, Any], where: str) -> str:
    one_of(need(page, "type", str, where), ("web_search_result",), f"{where}.type")
    title, url = given(page, "title", str, where) or "", need(page, "url", str, where)
    sealed = given(page, "encrypted_content", str, where) or ""
    text = ""
    if sealed.startswith(_MARK):
        try:
            text = b64decode(sealed[len(_MARK) :], validate=True).decode(errors="replace")
        except binascii.Error:
            text = ""  # cut by the client: the page's name is what is left
    return "\n".join(line for line in (title, url, text) if line)


def _text(holder: Mapping[str, Any], name: str) -> str:
    value = holder.get(name)
    return value if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
