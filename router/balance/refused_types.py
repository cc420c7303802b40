"""What a refusal teaches about an endpoint that speaks Responses: types of tools and of items that
it does not know.

OpenAI's API grows; engines that took it over follow late, and answer 400, 422 or 500 to a type that
came later. They name it, or the place where it is, or what they would have taken instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from router.balance.overflow import without_quotations

__all__ = ["LATER_TYPES", "late_types", "may_name_types", "refused_types"]

LATER_TYPES: Final = frozenset(
    {
        "additional_tools", "apply_patch", "code_interpreter", "computer", "computer_use",
        "computer_use_preview", "custom", "custom_tool_call", "custom_tool_call_output",
        "defer_loading", "file_search", "image_generation", "local_shell", "mcp", "namespace",
        "phase", "programmatic_tool_calling", "shell", "tool_search", "tool_search_call",
        "tool_search_output", "web_search", "web_search_preview",
    }
)  # fmt: skip
"""Types of tools and items, and fields of them, that not every endpoint knows."""

_FIELDS: Final = ("defer_loading", "namespace", "phase")

_OF_ITEMS: Final = frozenset(
    {
        "additional_tools", "custom_tool_call", "custom_tool_call_output", "tool_search_call",
        "tool_search_output",
    }
)  # fmt: skip

_OF_TOOLS: Final = LATER_TYPES - _OF_ITEMS - frozenset(_FIELDS) | {"namespace"}

_REPLACEABLE: Final = _OF_ITEMS | {"custom", "defer_loading", "namespace", "phase", "tool_search"}
"""What an endpoint can do without."""

_PLACE: Final = re.compile(r"\b(tools|input)[.\[]'?(\d+)")
_LAST: Final = re.compile(r"\b(\w+)\]?$")

_OF_A_TYPE: Final = re.compile(
    r"\b(?:tools?|types?|items?|parameters?|fields?|keys?|variant|tag|discriminator|literal"
    r"|supported values)\b|_error\b",
    re.IGNORECASE,
)
_REFUSES: Final = re.compile(
    r"\b(?:unsupported|not supported|unknown|unrecognized|unexpected|invalid|not permitted"
    r"|not allowed|forbidden|does not match|must be|should be|expected|cannot|no such)\b|_error\b",
    re.IGNORECASE,
)
_INSTEAD: Final = re.compile(
    r"supported (?:values|types)|(?:must|should) be|expected(?: one of| tags| values)?\b|allowed"
    r"|available",
    re.IGNORECASE,
)
"""What comes before the values that would have been taken."""

_GIVEN: Final = re.compile(r"\b(?:input(?:_value)?['\"]?\s*[:=]\s*|tag )['\"](\w+)['\"]")
"""How Pydantic says what it was given."""

_TAGS: Final = re.compile(r"expected tags:(.*)", re.DOTALL)

_OF_THE_MODEL: Final = re.compile(r"\bmodels?\b", re.IGNORECASE)


def late_types(body: Mapping[str, Any]) -> frozenset[str]:
    """Those of ``LATER_TYPES`` that are in a validated request."""
    return frozenset(kind for kind in _types(body) if kind in LATER_TYPES)


def may_name_types(message: str) -> bool:
    """Whether a message may be about a type of tool, as far as it says itself."""
    text = without_quotations(message)
    named = re.search(r"(?<!\w)(?:namespace|tool_search\w*|additional_tools|defer_loading)\b", text)
    about = named is not None or re.search(r"\btool\b[^.]{0,40}\btype|type\b[^.]{0,40}\btool", text)
    return bool(about) and _OF_A_TYPE.search(text) is not None and bool(_REFUSES.search(text))


def refused_types(param: str | None, message: str, body: Mapping[str, Any]) -> frozenset[str]:
    """Which of its ``late_types`` the refusal of a request is about; none for any other refusal."""
    types = late_types(body)
    text = without_quotations(message)
    if not types or not _REFUSES.search(text) or not _OF_A_TYPE.search(f"{text} {param or ''}"):
        return frozenset()
    if given := {kind for kind in _GIVEN.findall(text) if kind in types}:
        tags = _TAGS.search(text)
        return frozenset(given | (_others(types, tags[1]) if tags is not None else set()))
    instead = _INSTEAD.search(text)
    said = text if instead is None else text[: instead.start()]
    taken = "" if instead is None else text[instead.end() :]
    refused = set(_named(types, said)) or set(_at_place(param or text, body, types))
    if _has(taken, "function"):  # a list of what it knows, or the only type that it does
        return frozenset(refused | _others(types, taken))
    refused = refused or set(_named(types, taken))
    if _OF_THE_MODEL.search(text):
        # What the endpoint knows, and not of this model, is for the client to hear of.
        refused &= _REPLACEABLE
    return frozenset(refused)


def _others(types: frozenset[str], known: str) -> set[str]:
    """The types that are not among those that an endpoint says it knows."""
    return {kind for kind in types if not _has(known, kind) and kind in _OF_TOOLS}


def _at_place(path: str, body: Mapping[str, Any], types: frozenset[str]) -> Iterator[str]:
    """What is at the place that a refusal names."""
    last = _LAST.search(path)
    if last is not None and last[1] in types and last[1] in _FIELDS:
        yield last[1]
        return
    place = _PLACE.search(path)
    entries = body.get(place[1]) if place is not None else None
    if place is None or not isinstance(entries, list) or int(place[2]) >= len(entries):
        return
    kind = entries[int(place[2])].get("type")
    if kind in types:
        yield kind


def _named(types: Iterable[str], text: str) -> Iterator[str]:
    return (kind for kind in types if _has(text, kind))


def _has(text: str, kind: str) -> bool:
    return re.search(rf"(?<!\w){kind}(?!\w)", text) is not None


def _types(body: Mapping[str, Any]) -> Iterator[str]:
    yield from _of_tools(body.get("tools"))
    items = body.get("input")
    for item in items if isinstance(items, list) else ():
        yield item.get("type") or "message"
        yield from (name for name in _FIELDS if item.get(name) is not None)
        yield from _of_tools(item.get("tools"))


def _of_tools(tools: Any) -> Iterator[str]:
    for tool in tools if isinstance(tools, list) else ():
        yield tool["type"]
        if tool.get("defer_loading"):
            yield "defer_loading"
        if tool["type"] == "namespace":
            yield from _of_tools(tool["tools"])
