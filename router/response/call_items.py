"""Tool calls as output items; see ``router.response.items``.

A model at an endpoint that knows nothing but functions calls one of those, whatever the client's
tool is: a ``ToolName`` says what a function stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

import orjson

from router.response.builder import ResponseBuilder
from router.response.frame import Frame
from router.response.items import ArgumentsText, InputText, ItemWriter

__all__ = [
    "CallItem",
    "CustomCallItem",
    "SearchCallItem",
    "ToolName",
    "custom_input",
    "search_arguments",
]

Item = dict[str, Any]

_LONGEST_ESCAPE: Final = len("\\ud83d\\ude00")


class ToolName(NamedTuple):
    """The tool that a function stands for: its type, its name and its namespace, if it has one."""

    kind: Literal["function", "custom", "tool_search"]
    name: str
    namespace: str | None = None


class CallItem(ItemWriter, ArgumentsText):
    """A function call; its arguments are streamed as the JSON text they are."""

    id_prefix = "fc_"

    __slots__ = ("call_id", "name", "namespace")

    def __init__(
        self,
        builder: ResponseBuilder,
        index: int,
        out: list[Frame],
        call_id: str,
        name: str,
        namespace: str | None = None,
    ) -> None:
        super().__init__(builder, index, out)
        self.call_id = call_id
        self.name = name
        self.namespace = namespace

    @property
    def received(self) -> list[str]:
        """The fragments of the arguments so far."""
        return self.pieces

    def open(self) -> None:
        added = {"output_index": self.index, "item": self._call("in_progress", "")}
        self._out.append(self.builder.event("response.output_item.added", added))

    def finished(self, status: str) -> Item:
        return self._call(status, "".join(self.pieces))

    def close(self, status: str) -> Item:
        if not any(piece.strip() for piece in self.pieces):
            # No arguments at all mean an empty object; a done event needs a delta before it.
            self.delta("{}")
        return self._end(self.finished(status))

    def _end(self, item: Item) -> Item:
        self.close_text(item)
        return self._done(item)

    def _done(self, item: Item) -> Item:
        done = {"output_index": self.index, "item": item}
        self._out.append(self.builder.event("response.output_item.done", done))
        return item

    def _call(self, status: str, arguments: str) -> Item:
        return {
            "id": self.id,
            "type": "function_call",
            "status": status,
            "arguments": arguments,
            "call_id": self.call_id,
            "name": self.name,
            **self._named(),
        }

    def _named(self) -> Item:
        return {} if self.namespace is None else {"namespace": self.namespace}


class CustomCallItem(CallItem, InputText):
    """A custom tool's call. Upstream it is a function with one string, ``input``, so that the
    input is known only once the arguments are complete: it is written as one delta at the end.
    """

    id_prefix = "ctc_"

    __slots__ = ("_arguments",)

    def __init__(
        self,
        builder: ResponseBuilder,
        index: int,
        out: list[Frame],
        call_id: str,
        name: str,
        namespace: str | None = None,
    ) -> None:
        super().__init__(builder, index, out, call_id, name, namespace)
        self._arguments: list[str] = []

    @property
    def received(self) -> list[str]:
        return self._arguments

    def delta(self, text: str, encoded: bytes | None = None) -> None:
        self._arguments.append(text)

    def close(self, status: str) -> Item:
        ItemWriter.delta(self, self._input())
        return self._end(self.finished(status))

    def finished(self, status: str) -> Item:
        return self._call(status, "".join(self.pieces) or self._input())

    def _input(self) -> str:
        return custom_input("".join(self._arguments))

    def _call(self, status: str, arguments: str) -> Item:
        return {
            "id": self.id,
            "type": "custom_tool_call",
            "status": status,
            "call_id": self.call_id,
            "name": self.name,
            **self._named(),
            "input": arguments,
        }


class SearchCallItem(CallItem):
    """A search for tools, which the client is to make. The contract has no events for what it is
    made with: the item that is done says it, as an object.
    """

    id_prefix = "tsc_"

    __slots__ = ()

    def delta(self, text: str, encoded: bytes | None = None) -> None:
        self.pieces.append(text)

    def close(self, status: str) -> Item:
        return self._done(self.finished(status))

    def _call(self, status: str, arguments: str) -> Item:
        return {
            "id": self.id,
            "type": "tool_search_call",
            "status": status,
            "call_id": self.call_id,
            "execution": "client",
            "arguments": search_arguments(arguments),
        }


def custom_input(arguments: str) -> str:
    """The input of a custom tool's call in the arguments of the function's that stands for it."""
    for text in _completions(arguments):
        value = _json(text)
        if isinstance(value, dict) and isinstance(value.get("input"), str):
            return str(value["input"])
    return arguments


def search_arguments(arguments: str) -> Item:
    """The arguments of a search as an object. What is none is taken for the query."""
    if not arguments.strip():
        return {}
    for text in _completions(arguments):
        value = _json(text)
        if isinstance(value, dict):
            return value
    value = _json(arguments)
    return {"query": value if isinstance(value, str) else arguments}


def _completions(text: str) -> Iterator[str]:
    """``text``, and what it may have been going to be: where a limit cut it off within a string,
    what there is of the string counts, less half an escape.
    """
    yield text
    yield text + "}"
    for cut in range(_LONGEST_ESCAPE):
        yield text[: len(text) - cut] + '"}'


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
