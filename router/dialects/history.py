"""History as endpoints accept it: every tool call with its output, every output with its call.

History can lose one of the two: a response in mid-chain was deleted, an answer was cut short, a
call was never answered. Endpoints refuse both halves alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from router.dialects.responses.input_items import item_type

__all__ = ["CLIENT_CALLS", "Matches", "arguments_object", "consistent", "is_models_own", "match"]

Item = dict[str, Any]

_CALLS: Final[Mapping[str, str]] = {
    "apply_patch_call": "call_id",
    "computer_call": "call_id",
    "custom_tool_call": "call_id",
    "function_call": "call_id",
    "local_shell_call": "call_id",
    "mcp_approval_request": "id",
    "shell_call": "call_id",
    "tool_search_call": "call_id",
}
"""Items that wait for an answer, each with the field that the answer names."""

CLIENT_CALLS: Final = frozenset(_CALLS) - {"mcp_approval_request"}
"""Types of calls that only the client can answer, where nobody runs them for it."""

_OUTPUTS: Final[Mapping[str, str]] = {
    "apply_patch_call_output": "call_id",
    "computer_call_output": "call_id",
    "custom_tool_call_output": "call_id",
    "function_call_output": "call_id",
    "local_shell_call_output": "call_id",
    "mcp_approval_response": "approval_request_id",
    "shell_call_output": "call_id",
    "tool_search_output": "call_id",
}

_SHALLOW: Final = 200
"""Arguments with no more brackets than this can be written again (orjson: 254 levels)."""


@dataclass(slots=True)
class Matches:
    """Which output belongs to which call, by their places in a list of items.

    ``calls`` has the call of every output that has one, ``orphans`` are the outputs without a
    call before them, ``unanswered`` the calls without an output.
    """

    calls: dict[int, int] = field(default_factory=dict)
    orphans: set[int] = field(default_factory=set)
    unanswered: set[int] = field(default_factory=set)


def match(items: Sequence[Item]) -> Matches:
    """Bring calls and outputs together.

    Some backends number their calls anew in every turn, so an id may occur again: an output
    belongs to the oldest call of its id, in the last answer that has one, that has none yet; else
    to the last one.
    """
    found = Matches()
    waiting: dict[str, deque[int]] = {}
    last: dict[str, int] = {}
    begun = 0  # where the model's answer begins that the items are part of
    for place, item in enumerate(items):
        kind = item_type(item)
        if not is_models_own(item, kind):
            begun = place + 1
        if kind in _CALLS:
            key = item.get(_CALLS[kind])
            if isinstance(key, str):
                calls = waiting.setdefault(key, deque())
                if calls and calls[0] < begun:
                    calls.clear()
                calls.append(place)
                last[key] = place
                found.unanswered.add(place)
        elif kind in _OUTPUTS:
            key = _answered(item, kind)
            if key is None:
                continue
            if waiting.get(key):
                call = waiting[key].popleft()
                found.unanswered.discard(call)
                found.calls[place] = call
            elif key in last:
                found.calls[place] = last[key]
            else:
                found.orphans.add(place)
    return found


def consistent(history: list[Item], new_items: Sequence[Item]) -> list[Item]:
    """The history without calls that nothing answers and outputs that answer nothing.

    ``new_items`` follow the history and may answer its last calls; they are not pruned
    themselves. Calls at the very end stay while nothing follows them. Reasoning that led only to
    calls which go, goes with them. Returns ``history`` itself where nothing is to be pruned.
    """
    found = match([*history, *new_items])
    settled = len(history) if new_items else _settled(history)
    gone = {place for place in found.unanswered if place < settled}
    unwanted = {place for place in found.orphans if place < len(history)}
    if not gone and not unwanted:
        return history
    unwanted |= gone | _reasoning_of(gone, history)
    return [item for place, item in enumerate(history) if place not in unwanted]


def is_models_own(item: Item, kind: str) -> bool:
    """Whether an item of this type is the model's, not the client's. Of a chat that nobody has
    checked it may be a message without a role.
    """
    return item.get("role") == "assistant" if kind == "message" else kind not in _OUTPUTS


def _answered(item: Item, kind: str) -> str | None:
    """What the output answers; some clients name a local shell's call in the output's ``id``."""
    key = item.get(_OUTPUTS[kind])
    if key is None and kind == "local_shell_call_output":
        key = item.get("id")
    return key if isinstance(key, str) else None


def _settled(history: Sequence[Item]) -> int:
    """Where the model's last words begin: calls before it are answered by now, or never."""
    place = len(history)
    while place and is_models_own(history[place - 1], item_type(history[place - 1])):
        place -= 1
    return place


def _reasoning_of(gone: set[int], history: Sequence[Item]) -> set[int]:
    """The reasoning right before these calls, unless it also led to something that stays."""
    found: set[int] = set()
    led_to_gone = led_on = False  # led_on: what comes next and stays is the model's own
    for place in range(len(history) - 1, -1, -1):
        kind = item_type(history[place])
        if place in gone:
            led_to_gone = True
        elif kind != "reasoning":
            led_to_gone, led_on = False, is_models_own(history[place], kind)
        elif led_to_gone and not led_on:
            found.add(place)
        else:
            led_to_gone = led_on = False
    return found


def arguments_object(text: str) -> dict[str, Any]:
    """Arguments of a call as an object.

    What is none (a model was cut short, or wrote nonsense) is kept as ``{"input": …}``: refusing
    it would lock the client out of its own history.
    """
    if not text.strip():
        return {}
    try:
        value = orjson.loads(text)
        if text.count("{") + text.count("[") > _SHALLOW:
            orjson.dumps([[[[[[[[value]]]]]]]])  # it must fit into a message of the body
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return {"input": text}
    return value if isinstance(value, dict) else {"input": text}
