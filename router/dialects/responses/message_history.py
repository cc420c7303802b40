"""``previous_input_messages``: the messages of earlier responses as the history of a request.

The form is that of ``response_messages``, read as generously as it is written by others: role and
name in ``author`` or on top, a content that is a text or parts. A call is the model's message with
a recipient, and the next message of a tool by that name is its output, unless a ``call_id`` says
better. Tools of MCP servers become ``mcp_call`` items; web searches calls of a function, since an
item of theirs has no place for what was found.

System and developer messages at the beginning are left out, as vLLM does: instructions and tools
are those of the request itself, as after ``previous_response_id``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping
from typing import Any, Final

import orjson

from router.dialects.history import consistent
from router.dialects.hosted_items import WEB_SEARCH
from router.dialects.parameters import (
    array,
    bad_value,
    missing,
    object_,
    string,
    wrong_type,
)
from router.dialects.responses.input_items import TEXT_PARTS, check_part
from router.dialects.responses.response_messages import (
    BROWSER,
    DEVELOPER,
    FUNCTIONS,
    PYTHON,
    PYTHON_LABEL,
)
from router.dialects.system_messages import SYSTEM_ROLES
from router.errors import InvalidRequest

__all__ = ["FIELD", "check_messages", "with_previous_messages"]

Item = dict[str, Any]

FIELD: Final = "previous_input_messages"

_ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_NO_RECIPIENT: Final = frozenset({"", "all", "assistant", "user"})
"""Recipients that are no tool."""

_SYSTEM_PARTS: Final = frozenset({"system_content", DEVELOPER})
_SHOWN: Final = 64


def check_messages(value: Any, param: str) -> None:
    """A list of messages whose tools answer calls; raise InvalidRequest naming the message."""
    _as_items(value, param, ())


def with_previous_messages(body: dict[str, Any]) -> dict[str, Any]:
    """The body of a valid create request whose input begins with its earlier messages.

    Calls among them that nothing answers are left out. Raises InvalidRequest where the request
    names another history, too, or where nothing is left to answer.
    """
    for other in ("previous_response_id", "conversation"):
        if body.get(other) is not None:
            raise InvalidRequest(
                f"Mutually exclusive parameters: send either '{FIELD}' or '{other}', not both.",
                code="mutually_exclusive_parameters",
                param=FIELD,
            )
    custom = {tool["name"] for tool in body.get("tools") or () if tool["type"] == "custom"}
    history = _as_items(body[FIELD], FIELD, custom)
    given = body.get("input") or []
    own = [{"type": "message", "role": "user", "content": given}] if type(given) is str else given
    items = [*consistent(history, own), *own]
    if not items:
        raise missing("input")
    return {**{name: value for name, value in body.items() if name != FIELD}, "input": items}


def _as_items(messages: Any, param: str, custom: Container[str]) -> list[Item]:
    """The messages as input items; ``custom`` are the names of the client's custom tools."""
    array(messages, param)
    history = _History(custom)
    for i, message in enumerate(messages):
        where = f"{param}[{i}]"
        object_(message, where)
        history.add(_EarlierMessage(message, where), i)
    return history.items


class _EarlierMessage:
    """One message, checked. ``parts`` are its parts, of which those with text are ``text``."""

    def __init__(self, given: Mapping[str, Any], where: str) -> None:
        author = given.get("author")
        if author is not None:
            object_(author, f"{where}.author")
        at, who = (where, given) if author is None else (f"{where}.author", author)
        self.where = where
        self.role = _word(who, "role", at)
        if self.role is None:
            raise missing(f"{at}.role")
        if self.role not in _ROLES:
            raise bad_value(f"{at}.role", self.role, _ROLES)
        self.name = _word(who, "name", at)
        self.channel = _word(given, "channel", where)
        self.recipient = _word(given, "recipient", where) or ""
        self.call_id = _word(given, "call_id", where)
        self.parts = self._parts(given.get("content"), f"{where}.content")

    @property
    def text(self) -> str:
        return "".join([part["text"] for part in self.parts if part["type"] == "input_text"])

    def _parts(self, content: Any, where: str) -> list[Item]:
        if content is None:
            raise missing(where)
        if type(content) is str:
            return [{"type": "input_text", "text": content}]
        if type(content) is not list:
            raise wrong_type(where, "a string or an array of content parts", content)
        return [
            made
            for j, part in enumerate(content)
            if (made := self._part(part, f"{where}[{j}]")) is not None
        ]

    def _part(self, part: Any, where: str) -> Item | None:
        """A part; a text is an ``input_text``. None for what says nothing to a model."""
        object_(part, where)
        kind = part.get("type")
        if self.role in SYSTEM_ROLES and kind in _SYSTEM_PARTS:
            text = _word(part, "instructions", where) if kind == DEVELOPER else None
            return {"type": "input_text", "text": text} if text else None
        check_part(part, where)
        if kind in TEXT_PARTS:
            return {"type": "input_text", "text": part[TEXT_PARTS[kind]]}
        if self.role == "assistant":
            raise bad_value(f"{where}.type", kind, TEXT_PARTS)
        return dict(part)


class _UnansweredCalls:
    """Calls without an output, by name and by id, oldest first."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str | None], deque[Item]] = {}
        self._answered: set[int] = set()  # calls, by their identity: each waits in several places

    def add(self, name: str, call: Item) -> None:
        for key in (("name", name), ("id", call.get("call_id")), _ANY):
            self._waiting.setdefault(key, deque()).append(call)

    def take(self, name: str | None, call_id: str | None) -> Item | None:
        """The call that is answered: the one of this id, or else the oldest of this name."""
        by_name = _ANY if name is None else ("name", name)
        for key in (("id", call_id), by_name) if call_id else (by_name,):
            calls = self._waiting.get(key, ())
            while calls:
                call = calls.popleft()
                if id(call) not in self._answered:
                    self._answered.add(id(call))
                    return call
        return None


_ANY: Final = ("any", None)


class _History:
    """Items, made message by message."""

    def __init__(self, custom: Container[str]) -> None:
        self.items: list[Item] = []
        self._custom = custom
        self._open = _UnansweredCalls()

    def add(self, message: _EarlierMessage, number: int) -> None:
        role, called = message.role, message.recipient not in _NO_RECIPIENT
        if role == "tool":
            self._output(message)
        elif role == "assistant" and called:
            self._call(message, number)
        elif role == "assistant":
            self._said(message)
        elif (self.items or role not in SYSTEM_ROLES) and message.parts:
            self.items.append({"type": "message", "role": role, "content": message.parts})

    def _said(self, message: _EarlierMessage) -> None:
        """What the model thought (``analysis``), or said: whatever else the channel is called."""
        text = message.text
        if not text:
            return
        if message.channel == "analysis":
            parts = [{"type": "reasoning_text", "text": text}]
            self.items.append({"type": "reasoning", "summary": [], "content": parts})
            return
        parts = [{"type": "output_text", "text": text}]
        self.items.append({"type": "message", "role": "assistant", "content": parts})

    def _call(self, message: _EarlierMessage, number: int) -> None:
        name, text = message.recipient.removeprefix(FUNCTIONS), message.text
        searches = name.startswith(BROWSER)
        if name == message.recipient and not searches and ("." in name or name == PYTHON):
            item = _hosted(name, text)
        else:
            call_id = message.call_id or f"call_previous_{number}"
            item = {"call_id": call_id, "name": WEB_SEARCH if searches else name}
            if name in self._custom:
                item |= {"type": "custom_tool_call", "input": text}
            else:
                item |= {"type": "function_call", "arguments": text}
        self.items.append(item)
        self._open.add(name, item)

    def _output(self, message: _EarlierMessage) -> None:
        wanted = None if message.name is None else message.name.removeprefix(FUNCTIONS)
        call = self._open.take(wanted, message.call_id)
        if call is None:
            name = "a tool" if message.name is None else f"'{message.name[:_SHOWN]}'"
            raise InvalidRequest(
                f"Invalid '{message.where}': it is the output of {name}, which no message before "
                "it calls.",
                code="invalid_value",
                param=message.where,
            )
        if "call_id" not in call:
            call["output"] = message.text
            return
        parts = message.parts
        only_text = all(part["type"] == "input_text" for part in parts)
        output = message.text if only_text else parts
        self.items.append(
            {"type": f"{call['type']}_output", "call_id": call["call_id"], "output": output}
        )


def _hosted(name: str, text: str) -> Item:
    """The call of a tool of an MCP server."""
    label, _, tool = name.partition(".")
    if label == PYTHON:
        label = PYTHON_LABEL
        if not _is_object(text):  # the code itself
            text = orjson.dumps({"code": text}).decode()
    return {
        "type": "mcp_call",
        "server_label": label,
        "name": tool or name,
        "arguments": text,
        "output": None,
        "error": None,
    }


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _word(given: Mapping[str, Any], name: str, where: str) -> str | None:
    value = given.get(name)
    if value is not None:
        string(value, f"{where}.{name}")
    return value
