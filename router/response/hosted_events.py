"""The events of hosted tools' items: calls that somebody else than the client has run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["HOSTED_EVENTS", "Event", "begin_events", "end_events"]

Item = dict[str, Any]
Event = tuple[str, Mapping[str, Any]]
"""An event that has no number yet: its type and its other fields."""


@dataclass(frozen=True, slots=True)
class _ItemEvents:
    """The events between the two that announce and end an item: those that it begins with, the
    prefix of those that bring its arguments (None: it has none), and the one that it ends with.
    ``field`` is what its arguments are called, ``working`` the event after them, if there is one.
    """

    begin: tuple[str, ...]
    arguments: str | None
    completed: str
    failed: str
    field: str = "arguments"
    working: str | None = None


HOSTED_EVENTS: Final[Mapping[Any, _ItemEvents]] = {
    "mcp_call": _ItemEvents(
        ("response.mcp_call.in_progress",),
        "response.mcp_call_arguments",
        "response.mcp_call.completed",
        "response.mcp_call.failed",
    ),
    # Nor is there one for code that failed.
    "code_interpreter_call": _ItemEvents(
        ("response.code_interpreter_call.in_progress",),
        "response.code_interpreter_call_code",
        "response.code_interpreter_call.completed",
        "response.code_interpreter_call.completed",
        field="code",
        working="response.code_interpreter_call.interpreting",
    ),
    "mcp_list_tools": _ItemEvents(
        ("response.mcp_list_tools.in_progress",),
        None,
        "response.mcp_list_tools.completed",
        "response.mcp_list_tools.failed",
    ),
    # There is no event for a search that failed: its item says so.
    "file_search_call": _ItemEvents(
        ("response.file_search_call.in_progress", "response.file_search_call.searching"),
        None,
        "response.file_search_call.completed",
        "response.file_search_call.completed",
    ),
    "web_search_call": _ItemEvents(
        ("response.web_search_call.in_progress", "response.web_search_call.searching"),
        None,
        "response.web_search_call.completed",
        "response.web_search_call.completed",
    ),
}
"""By the item's type; those that are not here have none between."""


def begin_events(item: Item, place: int) -> list[Event]:
    """What announces an item that is worked on, with what it is called with."""
    names = HOSTED_EVENTS.get(item["type"])
    field = names.field if names is not None else ""
    announced, text = dict(item), item.get(field)
    arguments = names.arguments if names is not None and isinstance(text, str) else None
    if arguments is not None:
        announced[field] = ""
    about = {"item_id": item["id"], "output_index": place}
    events: list[Event] = [
        ("response.output_item.added", {"output_index": place, "item": announced}),
        *((name, about) for name in (names.begin if names else ())),
    ]
    if arguments is not None:
        events.append((f"{arguments}.delta", {**about, "delta": text}))
        events.append((f"{arguments}.done", {**about, field: text}))
    if names is not None and names.working is not None:
        events.append((names.working, about))
    return events


def end_events(item: Item, place: int, *, failed: bool = False) -> list[Event]:
    """What ends the item; it is as it stays by then."""
    events: list[Event] = []
    names = HOSTED_EVENTS.get(item["type"])
    if names is not None:
        name = names.failed if failed else names.completed
        events.append((name, {"item_id": item["id"], "output_index": place}))
    events.append(("response.output_item.done", {"output_index": place, "item": item}))
    return events
