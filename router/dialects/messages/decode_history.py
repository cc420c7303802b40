"""The messages of a request as input items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from router.dialects.messages.citations import cited_in
from router.dialects.messages.content import CONTENT, parts_of, text_parts
from router.dialects.messages.fields import given, need, objects, one_of, refused, typed
from router.dialects.messages.server_tools import RAN_HERE, RESULTS, references_in, result_text
from router.dialects.messages.thinking import reasoning_item
from router.dialects.messages.tool_search import found_text

__all__ = ["MessagesHistory"]

_OF_USERS: Final = (*CONTENT, "tool_result")
_OF_RESULTS: Final = (*CONTENT, "tool_reference")
_OF_MODELS: Final = (
    "text",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "server_tool_use",
    *RESULTS,
    "compaction",
)
_OF_SERVERS: Final = ("container_upload", "mcp_tool_use", "mcp_tool_result")
_FAILED: Final = "The tool failed."
_NOT_FINISHED: Final = "(not finished)"
_SUMMARY: Final = "Summary of the conversation before this point:"


class MessagesHistory:
    """The ``items`` of the messages it is given; ``dropped_thinking`` is how many blocks of
    thinking were signed by somebody else, and left out. ``references`` are the names of tools that
    a search has found, in that order. ``may_cite``: a document is given to be cited.
    """

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.dropped_thinking = 0
        self.references: dict[str, None] = {}
        self.may_cite = False
        self._parts: list[dict[str, Any]] = []
        self._texts: list[str] = []
        self._cites: list[dict[str, Any]] = []
        self._running: dict[str, None] = {}

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
                    self._note_citable(block)
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
            output = self._parts_of_result(typed(content, list, within), within)
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

    def _parts_of_result(self, content: list[Any], where: str) -> list[dict[str, Any]]:
        """Its parts; tools that the client itself has searched for are found from now on."""
        parts: list[dict[str, Any]] = []
        found: dict[str, None] = {}
        for path, block in objects(content, where):
            kind = one_of(need(block, "type", str, path), _OF_RESULTS, f"{path}.type")
            if kind == "tool_reference":
                found[need(block, "tool_name", str, path)] = None
            else:
                parts += parts_of(block, path)
                self._note_citable(block)
        if found:
            self.references |= found
            parts.append({"type": "input_text", "text": found_text(list(found))})
        return parts

    def _note_citable(self, block: Mapping[str, Any]) -> None:
        wanted = block.get("citations")
        self.may_cite |= isinstance(wanted, dict) and wanted.get("enabled") is True

    def _assistant(self, content: str | list[Any], where: str) -> None:
        if isinstance(content, str):
            self._texts.append(content)
        else:
            for path, block in objects(content, where):
                kind = _kind_of(block, _OF_MODELS, path)
                if kind == "text":
                    self._text(need(block, "text", str, path), block.get("citations"))
                    continue
                self._answer()
                self._block(block, kind, path)
        self._answer()
        for ident in list(self._running):
            self._ran(ident, _NOT_FINISHED)

    def _block(self, block: Mapping[str, Any], kind: str, where: str) -> None:
        if kind == "tool_use":
            self.items.append(_call(block, where))
        elif kind == "server_tool_use":
            one_of(need(block, "name", str, where), RAN_HERE, f"{where}.name")
            self.items.append(_call(block, where))
            self._running[block["id"]] = None
        elif kind in RESULTS:
            self._ran(need(block, "tool_use_id", str, where), result_text(block, where))
            content = block["content"]
            if kind == "tool_search_tool_result" and "tool_references" in content:
                self.references |= dict.fromkeys(references_in(content, f"{where}.content"))
        elif kind == "compaction":
            self._compacted(given(block, "content", str, where))
        else:
            self._think(block, kind, where)

    def _ran(self, ident: str, text: str) -> None:
        """The result of a tool that was run for the model. Its call may have been cut off."""
        if ident in self._running:
            del self._running[ident]
            output = {"type": "function_call_output", "call_id": ident, "output": text}
            self.items.append(output)

    def _compacted(self, summary: str | None) -> None:
        """A summary stands for all that was before it; one that failed, for nothing."""
        if summary:
            self.items.clear()
            self._parts = [{"type": "input_text", "text": f"{_SUMMARY}\n{summary}"}]
            self._say("user")

    def _text(self, text: str, citations: Any) -> None:
        if citations:
            self._cites += cited_in(text, citations, sum(map(len, self._texts)))
        self._texts.append(text)

    def _answer(self) -> None:
        """Texts in a row are one text, which was cut where a source was cited."""
        text, self._texts = "".join(self._texts), []
        cites, self._cites = self._cites, []
        content: Any = text
        if cites:
            content = [{"type": "output_text", "text": text, "annotations": cites}]
        if text:
            self.items.append({"type": "message", "role": "assistant", "content": content})

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
    others = kind.endswith("_tool_result") and kind not in RESULTS
    if kind in _OF_SERVERS or others:
        raise refused(f"{where}.type", f"A '{kind[:64]}' block", "Leave it out of the history.")
    return one_of(kind, kinds, f"{where}.type")


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
