"""Ollama's messages as input items of the Responses API.

Ollama's calls may do without ids, and their results without any or with the tool's name only. Then
a call is numbered by its place (``call_2_0`` is the first call of the third message), so that the
same history always has the same ids, and a result belongs to the oldest call that is open and goes
by its name.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import orjson

from router.dialects.ollama.schema import image_url
from router.dialects.parameters import (
    array,
    bad_value,
    missing,
    object_,
    string,
    wrong_type,
)

__all__ = ["input_items", "named_function", "prompt_item"]

_ROLES: Final = ("system", "developer", "user", "assistant", "tool")


def input_items(messages: list[Any]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The items, and the names of the fields that they leave out; raises InvalidRequest."""
    history = _OllamaHistory()
    for index, message in enumerate(messages):
        history.add(message, index)
    return history.items, tuple(history.dropped)


def prompt_item(prompt: str, images: Any) -> dict[str, Any]:
    """What the user says in one prompt; raises InvalidRequest for an image that is none."""
    return {"type": "message", "role": "user", "content": _content(prompt, images, "images")}


def named_function(holder: dict[str, Any], where: str) -> tuple[dict[str, Any], str]:
    """The ``function`` of a tool, or of a call, and its name; raises InvalidRequest."""
    function = holder.get("function")
    if function is None:
        raise missing(f"{where}.function")
    object_(function, f"{where}.function")
    name = function.get("name")
    if name in (None, ""):
        raise missing(f"{where}.function.name")
    string(name, f"{where}.function.name")
    return function, name


class _OpenCalls:
    """The calls that have no result yet, the oldest first."""

    def __init__(self) -> None:
        # What is answered is dropped from a queue when it gets to its front.
        self._waiting: dict[tuple[str, str], deque[list[str]]] = {}

    def add(self, call_id: str, name: str) -> None:
        call = [call_id]
        for key in (("id", call_id), ("name", name), ("any", "")):
            self._waiting.setdefault(key, deque()).append(call)

    def answer(self, call_id: str | None, name: str | None) -> str | None:
        """The id of the call that a result belongs to; None where there is none."""
        if call_id is not None:
            calls = self._waiting.get(("id", call_id))
        else:
            calls = self._waiting.get(("any", "") if name is None else ("name", name))
        while calls:
            call = calls.popleft()
            if call:
                return call.pop()
        return None


class _OllamaHistory:
    """Adds one message after the other."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.dropped: list[str] = []
        self._calls = _OpenCalls()

    def add(self, message: Any, index: int) -> None:
        where = f"messages[{index}]"
        object_(message, where)
        role = message.get("role")
        if role is None:
            raise missing(f"{where}.role")
        string(role, f"{where}.role")
        role = role.lower()
        text = message.get("content")
        if text is None:
            text = ""
        string(text, f"{where}.content")
        if role == "assistant":
            self._assistant(message, text, index)
        elif role == "tool":
            self._result(message, text, index)
        elif role in _ROLES:
            content = _content(text, message.get("images"), f"{where}.images")
            self.items.append({"type": "message", "role": role, "content": content})
        else:
            raise bad_value(f"{where}.role", role, _ROLES)

    def _assistant(self, message: dict[str, Any], text: str, index: int) -> None:
        where = f"messages[{index}]"
        thinking = message.get("thinking")
        if thinking:
            string(thinking, f"{where}.thinking")
            summary = [{"type": "summary_text", "text": thinking}]
            self.items.append({"type": "reasoning", "summary": summary})
        if message.get("images"):
            self.dropped.append(f"{where}.images")  # a model's own: none of the dialects takes them
        calls = message.get("tool_calls") or []
        array(calls, f"{where}.tool_calls")
        if text or not calls:
            self.items.append({"type": "message", "role": "assistant", "content": text})
        for number, call in enumerate(calls):
            self._call(call, f"{where}.tool_calls[{number}]", f"call_{index}_{number}")

    def _call(self, call: Any, where: str, default: str) -> None:
        object_(call, where)
        function, name = named_function(call, where)
        call_id = call.get("id") or default
        string(call_id, f"{where}.id")
        arguments = _arguments(function.get("arguments"), f"{where}.function.arguments")
        self._calls.add(call_id, name)
        self.items.append(
            {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
        )

    def _result(self, message: dict[str, Any], text: str, index: int) -> None:
        where = f"messages[{index}]"
        call_id = message.get("tool_call_id") or None
        name = message.get("tool_name") or message.get("name") or None
        for value, field in ((call_id, "tool_call_id"), (name, "tool_name")):
            if value is not None:
                string(value, f"{where}.{field}")
        # A result without a call is passed on all the same: it is for the endpoint to judge.
        ident = self._calls.answer(call_id, name) or call_id or f"call_{index}"
        output = _content(text, message.get("images"), f"{where}.images")
        self.items.append({"type": "function_call_output", "call_id": ident, "output": output})


def _arguments(arguments: Any, where: str) -> str:
    """Arguments as the text that the Responses API wants; some clients send them so already."""
    if arguments is None:
        return "{}"
    if type(arguments) is str:
        return arguments
    if type(arguments) is not dict:
        raise wrong_type(where, "an object", arguments)
    return orjson.dumps(arguments).decode()


def _content(text: str, images: Any, where: str) -> str | list[dict[str, Any]]:
    if not images:
        return text
    array(images, where)
    parts: list[dict[str, Any]] = [{"type": "input_text", "text": text}] if text else []
    for number, image in enumerate(images):
        url = image_url(image, f"{where}[{number}]")
        parts.append({"type": "input_image", "image_url": url, "detail": "auto"})
    return parts
