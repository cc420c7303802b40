"""``context_management``: what is cleared of a history before a model sees it.

The client keeps all of it, and sends all of it again: what is cleared follows from each request
alone. Nobody has counted its tokens yet, so that four characters are taken for one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from router.dialects.history import match
from router.dialects.messages.fields import bad, given, need, objects, one_of, typed
from router.response.tokens import estimate_tokens, prompt_chars

__all__ = ["CLEARED", "NO_EDITS", "AppliedEdits", "ContextEdits", "parse_edits"]

Item = dict[str, Any]
Applied = dict[str, Any]

CLEARED: Final = "[This tool result was cleared to save context.]"

_THINKING: Final = "clear_thinking_20251015"
_TOOL_USES: Final = "clear_tool_uses_20250919"
_COMPACT: Final = "compact_20260112"
_TYPES: Final = (_THINKING, _TOOL_USES, _COMPACT)
_TRIGGERS: Final = ("input_tokens", "tool_uses")
_DEFAULT_TRIGGER: Final = ("input_tokens", 100_000)
_DEFAULT_KEEP: Final = 3


@dataclass(frozen=True, slots=True)
class AppliedEdits:
    """``applied`` is for the answer; None where no edits were asked for."""

    applied: list[Applied] | None = None

    @property
    def tokens(self) -> int:
        """How many were cleared, about."""
        return sum(edit["cleared_input_tokens"] for edit in self.applied or ())

    def told(self) -> dict[str, Any]:
        """The field of a message that tells it; none where nothing was asked for."""
        if self.applied is None:
            return {}
        return {"context_management": {"applied_edits": self.applied}}


NO_EDITS: Final = AppliedEdits()

Edit = Callable[[dict[str, Any]], Applied | None]
"""Clears what it clears in a Responses request, and returns what to tell of it."""


class ContextEdits:
    """The edits of one request, in order. ``dropped`` are the paths of what is not done."""

    def __init__(self, edits: list[Edit] | None, dropped: list[str]) -> None:
        self._edits = edits
        self.dropped = dropped

    def apply(self, body: dict[str, Any]) -> AppliedEdits:
        """Put another list into the place of a Responses request's ``input``; its items stay."""
        if self._edits is None:
            return AppliedEdits()
        return AppliedEdits([done for edit in self._edits if (done := edit(body)) is not None])


def parse_edits(body: Mapping[str, Any]) -> ContextEdits:
    """The edits that a request asks for; raises InvalidRequest."""
    management, where = given(body, "context_management", dict, ""), "context_management"
    if management is None:
        return ContextEdits(None, [])
    dropped = [f"{where}.{name}" for name in management if name != "edits"]
    edits: list[Edit] = []
    where = f"{where}.edits"
    for path, edit in objects(given(management, "edits", list, "context_management") or [], where):
        kind = one_of(need(edit, "type", str, path), _TYPES, f"{path}.type")
        if kind == _COMPACT:
            dropped.append(path)
        elif kind == _TOOL_USES:
            edits.append(_ClearToolUses(edit, path).apply)
        elif edits:
            raise bad(path, f"'{_THINKING}' has to be the first edit")
        elif (keep := _turns_to_keep(edit, path)) is not None:
            edits.append(_ClearThinking(keep).apply)
    return ContextEdits(edits, dropped)


def _turns_to_keep(edit: Mapping[str, Any], where: str) -> int | None:
    """The number of turns; None for all."""
    keep = edit.get("keep")
    if keep is None:
        return 1
    path = f"{where}.keep"
    if isinstance(keep, str):
        one_of(keep, ("all",), path)
        return None
    kind = need(typed(keep, dict, path), "type", str, path)
    if one_of(kind, ("all", "thinking_turns"), f"{path}.type") == "all":
        return None
    return _number(keep, path, least=1)


def _number(holder: Mapping[str, Any], where: str, *, least: int = 0) -> int:
    value = need(holder, "value", int, where)
    if value < least:
        raise bad(f"{where}.value", f"Input should be greater than or equal to {least}")
    return value


class _ClearThinking:
    """Clears the reasoning of all turns with any, but for the last ``keep``. A turn goes from one
    message of a user to the next; results of tools are within it.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep

    def apply(self, body: dict[str, Any]) -> Applied | None:
        items: list[Item] = body["input"]
        turn, turns = 0, []
        for item in items:
            turn += item["type"] == "message" and item["role"] == "user"
            if item["type"] == "reasoning":
                turns.append(turn)
        cleared = sorted(set(turns))[: -self._keep]
        if not cleared:
            return None
        last, turn = cleared[-1], 0
        kept: list[Item] = []
        gone: list[Item] = []
        for item in items:
            turn += item["type"] == "message" and item["role"] == "user"
            (gone if item["type"] == "reasoning" and turn <= last else kept).append(item)
        body["input"] = kept
        return {
            "type": _THINKING,
            "cleared_thinking_turns": len(cleared),
            "cleared_input_tokens": _tokens(gone),
        }


class _ClearToolUses:
    """Clears results of tools, the oldest first, and what the tools were called with if that is
    asked for.
    """

    def __init__(self, edit: Mapping[str, Any], where: str) -> None:
        self._trigger = _DEFAULT_TRIGGER
        if (trigger := given(edit, "trigger", dict, where)) is not None:
            path = f"{where}.trigger"
            kind = one_of(need(trigger, "type", str, path), _TRIGGERS, f"{path}.type")
            self._trigger = (kind, _number(trigger, path, least=1))
        self._keep = _counted(edit, "keep", "tool_uses", where, _DEFAULT_KEEP)
        self._least = _counted(edit, "clear_at_least", "input_tokens", where, 0)
        self._excluded = _names(given(edit, "exclude_tools", list, where), f"{where}.exclude_tools")
        inputs = edit.get("clear_tool_inputs")
        self._all_inputs = inputs is True
        self._inputs: Collection[str] = ()
        if inputs is not None and not isinstance(inputs, bool):
            path = f"{where}.clear_tool_inputs"
            self._inputs = _names(typed(inputs, list, path), path)

    def apply(self, body: dict[str, Any]) -> Applied | None:
        items: list[Item] = body["input"]
        pairs = sorted((call, output) for output, call in match(items).calls.items())
        if not self._is_due(body, len(pairs)):
            return None
        older = pairs[: max(len(pairs) - self._keep, 0)]
        changed: dict[int, Item] = {}
        uses = 0
        for call, output in older:
            name = items[call]["name"]
            if name in self._excluded:
                continue
            uses += 1
            changed[output] = {**items[output], "output": CLEARED}
            if self._all_inputs or name in self._inputs:
                changed[call] = {**items[call], "arguments": "{}"}
        before = _tokens([items[place] for place in changed])
        cleared = before - _tokens(list(changed.values()))
        if not uses or cleared < max(self._least, 1):
            return None
        body["input"] = [changed.get(place, item) for place, item in enumerate(items)]
        return {
            "type": _TOOL_USES,
            "cleared_tool_uses": uses,
            "cleared_input_tokens": cleared,
        }

    def _is_due(self, body: dict[str, Any], uses: int) -> bool:
        kind, value = self._trigger
        return (uses if kind == "tool_uses" else estimate_tokens(prompt_chars(body))) > value


def _counted(edit: Mapping[str, Any], name: str, kind: str, where: str, default: int) -> int:
    """The number in a field such as ``keep``, which counts what ``kind`` says."""
    holder, path = given(edit, name, dict, where), f"{where}.{name}"
    if holder is None:
        return default
    one_of(need(holder, "type", str, path), (kind,), f"{path}.type")
    return _number(holder, path)


def _names(names: list[Any] | None, where: str) -> frozenset[str]:
    return frozenset(typed(name, str, f"{where}.{i}") for i, name in enumerate(names or ()))


def _tokens(items: list[Item]) -> int:
    return estimate_tokens(prompt_chars({"input": items}))
