"""The messages of a chat as the input items of a Responses request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from router.dialects.chat.schema import kind_of, needed
from router.dialects.parameters import (
    array,
    bad_value,
    object_,
    string,
    wrong_type,
)
from router.errors import InvalidRequest

__all__ = ["to_items"]

Item = dict[str, Any]
Part = Callable[[dict[str, Any], str], Item]

_ROLES: Final = ("developer", "system", "user", "assistant", "tool")
_CALLS: Final[Mapping[str, tuple[str, str]]] = {
    "function": ("function_call", "arguments"),
    "custom": ("custom_tool_call", "input"),
}
_OUTPUTS: Final = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
}
_FILE: Final = ("file_data", "file_id", "filename")


def to_items(messages: list[Any], *, reasoning: bool) -> tuple[list[Item], list[str], list[str]]:
    """The items of the messages, where in the chat each of them stood, and what is not in them.

    ``reasoning`` keeps that of assistant messages, as items with a summary. Raises InvalidRequest
    with the path of the field.
    """
    if not messages:
        raise InvalidRequest(
            "Invalid 'messages': empty array. Expected an array with minimum length 1.",
            code="empty_array",
            param="messages",
        )
    made = _Items(reasoning)
    for index, message in enumerate(messages):
        made.add(message, f"messages[{index}]")
    return made.items, made.places, made.dropped


class _Items:
    def __init__(self, keep_reasoning: bool) -> None:
        self.items: list[Item] = []
        self.places: list[str] = []
        self.dropped: list[str] = []
        self._keep_reasoning = keep_reasoning
        self._calls: dict[str, str] = {}  # the kind of a call, by its id

    def add(self, message: dict[str, Any], where: str) -> None:
        role = needed(message, "role", where, string)
        if role == "function":
            raise _old(f"{where}.role")
        if role not in _ROLES:
            raise bad_value(f"{where}.role", role, _ROLES)
        if role == "assistant":
            self._assistant(message, where)
        elif role == "tool":
            self._tool(message, where)
        else:
            part = _user_part if role == "user" else _text_part
            content = _content(needed(message, "content", where, _text_or_parts), where, part)
            self._put({"type": "message", "role": role, "content": content}, where)
        if message.get("name") and role != "tool" and not self.dropped:
            self.dropped.append(f"{where}.name")  # the first stands for all

    def _put(self, item: Item, where: str) -> None:
        self.items.append(item)
        self.places.append(where)

    def _assistant(self, message: dict[str, Any], where: str) -> None:
        if message.get("function_call") is not None:
            raise _old(f"{where}.function_call")
        if message.get("audio") is not None:
            raise _no_audio(f"{where}.audio")
        thoughts = message.get("reasoning_content") or message.get("reasoning")
        if self._keep_reasoning and isinstance(thoughts, str) and thoughts:
            summary = [{"type": "summary_text", "text": thoughts}]
            self._put({"type": "reasoning", "summary": summary}, where)
        calls = message.get("tool_calls")
        calls = [] if calls is None else calls
        array(calls, f"{where}.tool_calls")
        content = _said(message, where)
        if content or not calls:
            self._put({"type": "message", "role": "assistant", "content": content}, where)
        for index, call in enumerate(calls):
            self._call(call, f"{where}.tool_calls[{index}]")

    def _call(self, call: Any, where: str) -> None:
        object_(call, where)
        # Not every client names the type of the only kind of call that there used to be.
        kind = kind_of({"type": "function", **call}, where, tuple(_CALLS))
        ident = needed(call, "id", where, string)
        given, place = needed(call, kind, where, object_), f"{where}.{kind}"
        item, field = _CALLS[kind]
        name, text = needed(given, "name", place, string), needed(given, field, place, string)
        self._calls[ident] = item
        self._put({"type": item, "call_id": ident, "name": name, field: text}, where)

    def _tool(self, message: dict[str, Any], where: str) -> None:
        ident = needed(message, "tool_call_id", where, string)
        given = needed(message, "content", where, _text_or_parts)
        kind = _OUTPUTS[self._calls.get(ident, "function_call")]
        output = _content(given, where, _user_part)
        self._put({"type": kind, "call_id": ident, "output": output}, where)


def _said(message: Mapping[str, Any], where: str) -> str | list[Item]:
    """What an assistant said: its content, and a refusal beside it."""
    content: str | list[Item] = ""
    if (given := message.get("content")) is not None:
        _text_or_parts(given, f"{where}.content")
        content = _content(given, where, _assistant_part)
    refusal = message.get("refusal")
    if refusal is None:
        return content
    string(refusal, f"{where}.refusal")
    if isinstance(content, str):
        content = [{"type": "output_text", "text": content}] if content else []
    return [*content, {"type": "refusal", "refusal": refusal}] if refusal else content


def _content(given: str | list[Any], where: str, part: Part) -> str | list[Item]:
    if isinstance(given, str):
        return given
    made = []
    for index, entry in enumerate(given):
        place = f"{where}.content[{index}]"
        object_(entry, place)
        made.append(part(entry, place))
    return made


def _text_or_parts(value: Any, param: str) -> None:
    if type(value) is not str and type(value) is not list:
        raise wrong_type(param, "a string or an array of content parts", value)


def _text_part(part: dict[str, Any], where: str) -> Item:
    kind_of(part, where, ("text",))
    return {"type": "input_text", "text": needed(part, "text", where, string)}


def _assistant_part(part: dict[str, Any], where: str) -> Item:
    kind = kind_of(part, where, ("text", "refusal"))
    text = needed(part, kind, where, string)
    return {"type": kind, kind: text} if kind == "refusal" else {"type": "output_text", kind: text}


def _user_part(part: dict[str, Any], where: str) -> Item:
    kind = kind_of(part, where, ("text", "image_url", "file", "input_audio"))
    if kind == "text":
        return _text_part(part, where)
    if kind == "input_audio":
        raise _no_audio(where)
    given, place = needed(part, kind, where, object_), f"{where}.{kind}"
    if kind == "image_url":
        detail = given.get("detail") or "auto"
        string(detail, f"{place}.detail")
        url = needed(given, "url", place, string)
        return {"type": "input_image", "image_url": url, "detail": detail}
    made = {name: needed(given, name, place, string) for name in _FILE if given.get(name)}
    if not made.keys() - {"filename"}:
        needed(given, "file_data", place, string)
    return {"type": "input_file", **made}


def _old(where: str) -> InvalidRequest:
    return InvalidRequest(
        f"Unsupported value: '{where}' is of the old form of tool calls. Send 'tool_calls', and "
        "their results in messages with the role 'tool'.",
        code="unsupported_value",
        param=where,
    )


def _no_audio(where: str) -> InvalidRequest:
    return InvalidRequest(
        f"Unsupported value: '{where}' is audio, which this model's endpoint does not take. Send "
        "text or images.",
        code="unsupported_value",
        param=where,
    )
