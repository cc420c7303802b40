"""Input items as chat messages.

The messages are those of Chat Completions, which the other dialects are made from:

    {"role": "system" | "user", "content": str | [part, …]}
    {"role": "assistant", "content": str | None, "tool_calls"?: [call, …], "reasoning"?: str}
    {"role": "tool", "tool_call_id": str, "content": str}

Instructions, system and developer messages are one system message at the beginning; see
``router.dialects.system_messages`` for those that come later.

Consecutive calls are one assistant message, together with the text right before them; calls of
hosted tools are calls of functions (see ``router.dialects.hosted_items``). Results follow the
message with their calls, wherever they stood; nothing a client said is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import orjson

from router.dialects.hosted_items import placed_function_items
from router.dialects.parts import PartConverter, Where, chat_part, refused
from router.dialects.responses.input_items import TEXT_PARTS, item_type
from router.dialects.system_messages import SYSTEM_ROLES, SystemMessages, joined

__all__ = ["reasoning_text", "refuse_unsayable", "to_messages"]

_CALLS: Final = frozenset({"function_call", "custom_tool_call"})
_RESULTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})

_UNSAYABLE: Final = frozenset(
    {
        "apply_patch_call_output",
        "computer_call_output",
        "local_shell_call_output",
        "mcp_approval_response",
        "shell_call_output",
    }
)
"""What a client says to hosted tools, and a chat has no words for."""

_OPAQUE: Final = frozenset({"compaction", "compaction_trigger"})
"""They stand for history that only the endpoint which made them can read."""


def to_messages(
    body: Mapping[str, Any],
    *,
    convert: PartConverter = chat_part,
    reasoning: bool = False,
    later_system: SystemMessages = "merge",
) -> list[dict[str, Any]]:
    """The messages of a validated request body: instructions first, then the input in order.

    ``convert`` makes the dialect's form of the parts that are not text. ``reasoning`` keeps the
    text of reasoning items, as ``reasoning`` of the assistant message that follows them.
    ``later_system`` is what becomes of system messages that are not at the beginning.
    Raises InvalidRequest for what the dialect cannot carry, with the path to it.
    """
    instructions = body.get("instructions")
    given = body.get("input")
    conversation = _MessageBuilder(convert, reasoning, later_system)
    if isinstance(instructions, str):
        if instructions:
            conversation.system.append(instructions)
    elif instructions:
        conversation.add_items(instructions, "instructions")
    if isinstance(given, str):
        conversation.entries.append({"role": "user", "content": given})
    elif given:
        conversation.add_items(given, "input")
    return conversation.messages()


class _CallResults:
    """The results of one assistant message's calls, in the order of the calls; ``others`` are what
    no message of a tool can hold of them: images, files.
    """

    __slots__ = ("others", "results")

    def __init__(self) -> None:
        self.results: list[list[dict[str, Any]]] = []
        self.others: list[list[dict[str, Any]]] = []


class _Result:
    """A tool result where it stood in the input; ``placed`` once it was given to its call."""

    __slots__ = ("message", "others", "placed")

    def __init__(self, message: dict[str, Any], others: list[dict[str, Any]]) -> None:
        self.message = message
        self.others = others
        self.placed = False


class _Matcher:
    """Brings calls and results together by ``call_id``, in one pass over the items.

    Some backends number their calls anew in every turn, so an id may occur again: a result
    belongs to the oldest call of its id that has none yet. One that came before its call waits
    for it, and a second result of a call joins the first.
    """

    def __init__(self) -> None:
        self._open: dict[str, deque[tuple[_CallResults, int]]] = {}
        self._last: dict[str, tuple[_CallResults, int]] = {}
        self._waiting: dict[str, deque[_Result]] = {}

    def call(self, call_id: str, calls: _CallResults) -> None:
        slot = (calls, len(calls.results))
        calls.results.append([])
        calls.others.append([])
        self._last[call_id] = slot
        waiting = self._waiting.get(call_id)
        if waiting:
            _place(waiting.popleft(), slot)
        else:
            self._open.setdefault(call_id, deque()).append(slot)

    def result(self, call_id: str, result: _Result) -> None:
        slots = self._open.get(call_id)
        if slots:
            _place(result, slots.popleft())
        else:
            self._waiting.setdefault(call_id, deque()).append(result)

    def finish(self) -> None:
        """Give what still waits to the last call of its id; what has none stays where it was."""
        for call_id, waiting in self._waiting.items():
            slot = self._last.get(call_id)
            if slot is not None:
                for result in waiting:
                    _place(result, slot)


def _place(result: _Result, slot: tuple[_CallResults, int]) -> None:
    calls, index = slot
    calls.results[index].append(result.message)
    calls.others[index].extend(result.others)
    result.placed = True


class _MessageBuilder:
    """Builds the messages, item by item."""

    def __init__(
        self, convert: PartConverter, keep_reasoning: bool, later_system: SystemMessages
    ) -> None:
        self.system: list[str | list[dict[str, Any]]] = []  # contents of the first message
        self.entries: list[dict[str, Any] | _Result] = []
        self._later_system = later_system
        self._convert = convert
        self._keep_reasoning = keep_reasoning
        self._matcher = _Matcher()
        self._calls: dict[int, _CallResults] = {}  # by the index of their assistant message
        self._turn: dict[str, Any] | None = None  # the assistant message that takes calls
        self._thoughts: list[str] = []

    def add_items(self, items: list[dict[str, Any]], base: str) -> None:
        for i, item in placed_function_items(items):
            kind = item_type(item)
            if kind == "message":
                self._message(item, (base, i))
            elif kind in _CALLS:
                self._call(item, kind)
            elif kind in _RESULTS:
                self._result(item, (base, i))
            elif kind == "reasoning":
                if self._keep_reasoning and (text := reasoning_text(item)):
                    self._thoughts.append(text)
            else:
                refuse_unsayable(kind, (base, i))

    def messages(self) -> list[dict[str, Any]]:
        self._matcher.finish()
        messages: list[dict[str, Any]] = []
        if self.system:
            messages.append({"role": "system", "content": joined(self.system)})
        for index, entry in enumerate(self.entries):
            if isinstance(entry, _Result):
                if not entry.placed:
                    messages.append(entry.message)
                    _append_others(messages, entry.others)
                continue
            messages.append(entry)
            if "reasoning" in entry:
                entry["reasoning"] = "\n\n".join(entry["reasoning"])
            calls = self._calls.get(index)
            if calls is not None:
                for results in calls.results:
                    messages.extend(results)
                _append_others(messages, [part for parts in calls.others for part in parts])
        return messages

    def _message(self, item: Mapping[str, Any], where: Where) -> None:
        role = item["role"]
        content = self._content(item["content"], (*where, "content"))
        if role == "assistant":
            if isinstance(content, list) and all(part["type"] == "text" for part in content):
                content = "".join(part["text"] for part in content)
            self._open_turn(content)
            return
        if role in SYSTEM_ROLES:
            if self._later_system == "merge" or not self.entries:
                self.system.append(content)
                return  # it ends no turn: the calls around it stay in one message
            # Few chat templates know the developer role by its own name.
            role = "user" if self._later_system == "user" else "system"
        self._turn = None
        self._thoughts.clear()
        self.entries.append({"role": role, "content": content})

    def _open_turn(self, content: Any) -> dict[str, Any]:
        self._turn = {"role": "assistant", "content": content}
        self._add_thoughts(self._turn)
        self.entries.append(self._turn)
        return self._turn

    def _add_thoughts(self, turn: dict[str, Any]) -> None:
        if self._thoughts:
            turn.setdefault("reasoning", []).extend(self._thoughts)
            self._thoughts.clear()

    def _call(self, item: Mapping[str, Any], kind: str) -> None:
        turn = self._turn
        if turn is None:
            turn = self._open_turn(None)
        else:
            self._add_thoughts(turn)
        if kind == "custom_tool_call":
            arguments = orjson.dumps({"input": item["input"]}).decode()
        else:
            arguments = item["arguments"] or "{}"
        index = len(self.entries) - 1  # an open turn is the last entry
        if "tool_calls" not in turn:
            turn["tool_calls"] = []
            turn["content"] = turn["content"] or None
            self._calls[index] = _CallResults()
        turn["tool_calls"].append(
            {
                "id": item["call_id"],
                "type": "function",
                "function": {"name": item["name"], "arguments": arguments},
            }
        )
        self._matcher.call(item["call_id"], self._calls[index])

    def _result(self, item: Mapping[str, Any], where: Where) -> None:
        self._turn = None
        output = self._content(item["output"], (*where, "output"))
        others: list[dict[str, Any]] = []
        if isinstance(output, list):
            others = [part for part in output if part["type"] != "text"]
            output = "\n".join(part["text"] for part in output if part["type"] == "text")
        call_id = item["call_id"]
        result = _Result({"role": "tool", "tool_call_id": call_id, "content": output}, others)
        self.entries.append(result)
        self._matcher.result(call_id, result)

    def _content(self, content: Any, where: Where) -> str | list[dict[str, Any]]:
        """A string, or a list of parts if there is more than one text."""
        if isinstance(content, str):
            return content
        if len(content) == 1 and content[0]["type"] in TEXT_PARTS:
            return str(content[0][TEXT_PARTS[content[0]["type"]]])
        parts = []
        for j, part in enumerate(content):
            field = TEXT_PARTS.get(part["type"])
            if field is not None:
                parts.append({"type": "text", "text": part[field]})
            else:
                parts.append(self._convert(part, (*where, j)))
        if not parts:
            return ""
        if len(parts) == 1 and parts[0]["type"] == "text":
            return str(parts[0]["text"])
        return parts


def refuse_unsayable(kind: str, where: Where) -> None:
    """Raise InvalidRequest for a type of item that only an endpoint with hosted tools, or with a
    store, can read; any other type says nothing to a model.
    """
    if kind == "item_reference":
        raise refused(
            "Stored items are not available to this model's endpoint. Send the item itself instead "
            "of a reference to it.",
            where,
        )
    if kind in _UNSAYABLE:
        raise refused(
            f"A '{kind}' item answers a hosted tool, which this model's endpoint does not have. "
            "Leave it out, or choose a model whose endpoint has the tool.",
            where,
        )
    if kind in _OPAQUE:
        raise refused(
            f"A '{kind}' item can be read only by the endpoint that made it, and this model's "
            "endpoint cannot. Send the history itself.",
            where,
        )


def _append_others(messages: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    """Images and files of tool results: tool messages hold text, so a user message shows them."""
    if others:
        messages.append({"role": "user", "content": others})


def reasoning_text(item: Mapping[str, Any]) -> str:
    """The raw reasoning where there is some, else its summary; "" when it is encrypted."""
    for field in ("content", "summary"):
        parts = item.get(field)
        if isinstance(parts, list):
            texts = [part.get("text") for part in parts if isinstance(part, dict)]
            text = "\n\n".join(text for text in texts if isinstance(text, str) and text)
            if text:
                return text
    return ""
