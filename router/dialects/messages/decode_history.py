"""The messages of a request as input items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from router.dialects.messages.content import CONTENT, parts_of, text_parts
from router.dialects.messages.fields import given, need, objects, one_of, refused, typed
from router.dialects.messages.thinking import reasoning_item

__all__ = ["MessagesHistory"]

_OF_USERS: Final = (*CONTENT, "tool_result")
_OF_MODELS: Final = ("text", "thinking", "redacted_thinking", "tool_use")
_OF_SERVERS: Final = ("server_tool_use", "container_upload", "mcp_tool_use", "mcp_tool_result")
_FAILED: Final = "The tool failed."


class MessagesHistory:
    """The ``items`` of the messages it is given; ``dropped_thinking`` is how many blocks of
    thinking were signed by somebody else, and left out.
    """

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.dropped_thinking = 0
        self._parts: list[dict[str, Any]] = []
        self._texts: list[str] = []

    def add(self, messages: list[Any]) -> None:
        """Take all messages; raises InvalidRequest with the path of what is wrong."""
        for where, message in objects(messages, "messages"):
            role = need(message, "role", str, where)
            one_of(role, ("user", "assistant", "system"), f"{where}.role")
            content = message.get("content")
            path = f"{where}.content"
            if not isinstance(content, str):
                content = need(message, "content", list, where)
            if role == "assistant":
                self._assistant(content, path)
            elif role == "user":
                self._user(content, path)
            else:
                self._parts = text_parts(content, path)
                self._say("system")

    def _user(self, content: str | list[Any], where: str) -> None:
        if isinstance(content, str):
            self._parts = text_parts(content, where)
        else:
            for path, block in objects(content, where):
                if _kind_of(block, _OF_USERS, path) == "tool_result":
                    self._say("user")
                    self._result(block, path)
                else:
                    self._parts += parts_of(block, path)
        self._say("user")

    def _say(self, role: str) -> None:
        parts, self._parts = self._parts, []
        if parts:
            self.items.append({"type": "message", "role": role, "content": parts})

    def _result(self, block: Mapping[str, Any], where: str) -> None:
        output: str | list[dict[str, Any]] = []
        content, within = block.get("content"), f"{where}.content"
        if isinstance(content, str):
            output = content
        elif content is not None:
            output = [
                part
                for path, inner in objects(typed(content, list, within), within)
                for part in _part_of_result(inner, path)
            ]
            if len(output) == 1 and output[0]["type"] == "input_text":
                output = output[0]["text"]
        if given(block, "is_error", bool, where):
            output = _as_failure(output)
        self.items.append(
            {
                "type": "function_call_output",
                "call_id": need(block, "tool_use_id", str, where),
                "output": output or "",
            }
        )

    def _assistant(self, content: str | list[Any], where: str) -> None:
        if isinstance(content, str):
            self._texts.append(content)
        else:
            for path, block in objects(content, where):
                kind = _kind_of(block, _OF_MODELS, path)
                if kind == "text":
                    self._texts.append(need(block, "text", str, path))
                    continue
                self._answer()
                if kind == "tool_use":
                    self.items.append(_call(block, path))
                else:
                    self._think(block, kind, path)
        self._answer()

    def _answer(self) -> None:
        """Texts in a row are one text, which was cut where a source was cited."""
        text, self._texts = "".join(self._texts), []
        if text:
            self.items.append({"type": "message", "role": "assistant", "content": text})

    def _think(self, block: Mapping[str, Any], kind: str, where: str) -> None:
        if kind == "thinking":
            text = need(block, "thinking", str, where)
            signature = given(block, "signature", str, where) or ""
        else:
            text, signature = "", need(block, "data", str, where)
        item = reasoning_item(text, signature)
        if item is None:
            self.dropped_thinking += 1
        else:
            self.items.append(item)


def _kind_of(block: Mapping[str, Any], kinds: tuple[str, ...], where: str) -> str:
    kind = need(block, "type", str, where)
    if kind in _OF_SERVERS or (kind.endswith("_tool_result") and kind != "tool_result"):
        raise refused(f"{where}.type", f"A '{kind[:64]}' block", "Leave it out of the history.")
    return one_of(kind, kinds, f"{where}.type")


def _part_of_result(block: dict[str, Any], where: str) -> list[dict[str, Any]]:
    one_of(need(block, "type", str, where), CONTENT, f"{where}.type")
    return parts_of(block, where)


def _as_failure(output: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """A result has no field that says so: the model is told in words."""
    if isinstance(output, str):
        return f"{_FAILED}\n{output}" if output else _FAILED
    return [{"type": "input_text", "text": _FAILED}, *output]


def _call(block: Mapping[str, Any], where: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": need(block, "id", str, where),
        "name": need(block, "name", str, where),
        "arguments": orjson.dumps(need(block, "input", dict, where)).decode(),
    }
