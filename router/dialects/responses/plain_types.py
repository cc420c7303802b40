"""Responses requests for endpoints that took the API over without all of its types.

``without_types`` makes of a request what such an endpoint knows: groups of tools are functions (see
``namespaces.flatten``), custom tools are functions with one string, and what has to be run by
whoever serves the model is left out, and named. ``PlainTypesDecoder`` reads the answer: the client
gets the calls of the tools that it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from router.dialects.chat.encode_request import chat_function
from router.dialects.responses.decode_stream import ResponsesDecoder
from router.dialects.responses.namespaces import GROUPED_ITEMS, flatten
from router.response.builder import ResponseBuilder
from router.response.call_items import ToolName, custom_input, search_arguments
from router.response.frame import Frame, load_object

__all__ = ["PlainRequest", "PlainTypesDecoder", "groups_of_types", "without_types"]

Item = dict[str, Any]
Event = dict[str, Any]

_GROUPS: Final = "namespace"
_CUSTOM: Final = "custom"

_TOGETHER: Final[Mapping[str, str]] = {
    "additional_tools": _GROUPS,
    "custom_tool_call": _CUSTOM,
    "custom_tool_call_output": _CUSTOM,
    "defer_loading": _GROUPS,
    "phase": _GROUPS,
    "tool_search": _GROUPS,
    "tool_search_call": _GROUPS,
    "tool_search_output": _GROUPS,
}
"""Types that who does not know one of does not know the others of, either."""

_CALLS: Final = frozenset({"function_call", "custom_tool_call"})


def groups_of_types(types: Collection[str]) -> frozenset[str]:
    """For types that an endpoint refuses, what to leave out of its requests: ``namespace`` and
    ``custom`` stand for all that came with them.
    """
    return frozenset(_TOGETHER.get(kind, kind) for kind in types)


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """A request without some types. ``names`` has what its functions stand for, where that is not
    themselves; ``dropped`` are the types of tools that are left out.
    """

    body: dict[str, Any]
    names: Mapping[str, ToolName]
    dropped: tuple[str, ...] = ()


def without_types(body: dict[str, Any], refused: Collection[str]) -> PlainRequest:
    """The request without the types ``refused``, which are those of ``groups_of_types``; ``body``
    stays as it is.
    """
    names: dict[str, ToolName] = {}
    if _GROUPS in refused:
        flat = flatten(body)
        body, names = _without_groups(flat.body), dict(flat.names)
    if _CUSTOM in refused:
        body = _without_custom(body, names)
    others = frozenset(refused) - {_GROUPS, _CUSTOM}
    dropped = tuple(
        dict.fromkeys(tool["type"] for tool in body.get("tools") or () if tool["type"] in others)
    )
    if dropped:
        body = _without_tools(body, dropped)
    return PlainRequest(body, names, dropped)


def _without_tools(body: dict[str, Any], types: Collection[str]) -> dict[str, Any]:
    kept = [tool for tool in body["tools"] if tool["type"] not in types]
    plain = {**body, "tools": kept}
    choice = body.get("tool_choice")
    if not kept or (isinstance(choice, dict) and choice["type"] in types):
        plain.pop("tool_choice", None)
    elif isinstance(choice, dict) and choice["type"] == "allowed_tools":
        allowed = [one for one in choice["tools"] if one["type"] not in types]
        plain["tool_choice"] = {**choice, "tools": allowed} if allowed else "none"
    if not kept:
        del plain["tools"]
    return plain


def _without_groups(body: dict[str, Any]) -> dict[str, Any]:
    """A flat request without what is left in it that is about groups only."""
    items = body.get("input")
    if not isinstance(items, list):
        return body
    kept = [
        {name: value for name, value in item.items() if name != "phase"}
        if "phase" in item
        else item
        for item in items
        if item.get("type") not in GROUPED_ITEMS
    ]
    return {**body, "input": kept}


def _without_custom(body: dict[str, Any], names: dict[str, ToolName]) -> dict[str, Any]:
    """The request with functions for custom tools, which ``names`` has then, too."""
    plain = dict(body)
    if tools := body.get("tools"):
        plain["tools"] = [_as_function(tool, names) for tool in tools]
    if isinstance(items := body.get("input"), list):
        plain["input"] = [_call_of_function(item) for item in items]
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        choice = {**choice, "type": "function"} if choice["type"] == "custom" else choice
        if choice["type"] == "allowed_tools":
            allowed = choice["tools"]
            custom = [{**one, "type": "function"} for one in allowed if one["type"] == "custom"]
            others = [one for one in allowed if one["type"] != "custom"]
            choice = {**choice, "tools": [*others, *custom]}
        plain["tool_choice"] = choice
    return plain


def _as_function(tool: Item, names: dict[str, ToolName]) -> Item:
    if tool["type"] != "custom":
        return tool
    names.setdefault(tool["name"], ToolName("custom", tool["name"]))
    return {"type": "function", **chat_function(tool)["function"], "strict": False}


def _call_of_function(item: Item) -> Item:
    kind = item.get("type")
    if kind == "custom_tool_call":
        call = {name: value for name, value in item.items() if name != "input"}
        arguments = orjson.dumps({"input": item["input"]}).decode()
        return {**call, "type": "function_call", "arguments": arguments}
    if kind == "custom_tool_call_output":
        return {**item, "type": "function_call_output"}
    return item


class PlainTypesDecoder(ResponsesDecoder):
    """Reads the answer to a ``PlainRequest``; ``names`` are those of the request."""

    def __init__(
        self,
        names: Mapping[str, ToolName],
        builder: ResponseBuilder,
        account: str,
        redact: Callable[[str], str],
        *,
        hide: bool = False,
        taken: Container[str] = (),
    ) -> None:
        super().__init__(builder, account, redact, hide=hide, taken=taken)
        self._names = names
        self._calls: dict[Any, _StreamedCall] = {}

    def whole(self, body: bytes) -> bytes:
        """See ``StreamDecoder.whole``."""
        response = load_object(body, "a response")
        self._restore_response(response)
        return super().whole(orjson.dumps(response))

    def _event(self, data: bytes, frames: list[Frame]) -> None:
        if b"call" not in data and b'"response' not in data:
            super()._event(data, frames)
            return
        for event in self._restored(load_object(data, "a stream event")):
            super()._event(orjson.dumps(event), frames)

    def _restored(self, event: Event) -> Iterator[Event]:
        """The events that the client gets for an endpoint's."""
        kind = event.get("type")
        if isinstance(response := event.get("response"), dict):
            self._restore_response(response)
        if kind == "response.output_item.added" and isinstance(item := event.get("item"), dict):
            yield from self._added(event, item)
        elif kind == "response.output_item.done" and isinstance(item := event.get("item"), dict):
            yield from self._done(event, item)
        elif kind in _ARGUMENTS and (call := self._calls.get(_place(event))) is not None:
            yield from call.arguments(event, done=kind == _ARGUMENTS_DONE)
        else:
            yield event

    def _added(self, event: Event, item: Item) -> Iterator[Event]:
        tool = self._tool(item)
        if tool is not None:
            self._calls[_place(event)] = _StreamedCall(tool)
        yield {**event, "item": self._item(item, begun=True)}

    def _done(self, event: Event, item: Item) -> Iterator[Event]:
        call = self._calls.pop(_place(event), None)
        item = self._item(item)
        if call is not None:
            yield from call.rest(event, item)
        yield {**event, "item": item}

    def _restore_response(self, response: dict[str, Any]) -> None:
        """Put what the client asked with, and the calls of its tools, into a Response object."""
        echo = self.builder.echo
        for name in ("tools", "tool_choice"):
            if name in response:
                response[name] = echo.get(name)
        if isinstance(output := response.get("output"), list):
            response["output"] = [
                self._item(item) if isinstance(item, dict) else item for item in output
            ]

    def _tool(self, item: Item) -> ToolName | None:
        name = item.get("name")
        if item.get("type") not in _CALLS or not isinstance(name, str):
            return None
        return self._names.get(name)

    def _item(self, item: Item, *, begun: bool = False) -> Item:
        """A call as one of the client's tools. One that becomes of another type gets another id."""
        tool = self._tool(item)
        if tool is None:
            return item
        arguments = item.get("arguments")
        arguments = "" if begun or not isinstance(arguments, str) else arguments
        call = {name: value for name, value in item.items() if name not in ("id", "arguments")}
        if tool.kind == "tool_search":
            del call["name"]
            return {
                **call,
                "type": "tool_search_call",
                "execution": "client",
                "arguments": search_arguments(arguments),
            }
        call |= {"name": tool.name}
        if tool.namespace is not None:
            call["namespace"] = tool.namespace
        if tool.kind == "custom" and item["type"] == "function_call":
            text = custom_input(arguments) if arguments else ""
            return {**call, "type": "custom_tool_call", "input": text}
        same: Item = {name: item[name] for name in ("id", "arguments") if name in item}
        return {**call, **same}


_ARGUMENTS_DONE: Final = "response.function_call_arguments.done"
_ARGUMENTS: Final = frozenset({"response.function_call_arguments.delta", _ARGUMENTS_DONE})
_INPUT: Final = "response.custom_tool_call_input"


def _place(event: Event) -> Any:
    """Where an event belongs; an endpoint may leave out the one or the other."""
    place = event.get("output_index")
    if type(place) is int:
        return place
    item = event.get("item")
    ident = item.get("id") if isinstance(item, dict) else event.get("item_id")
    return ident if isinstance(ident, str) else None


class _StreamedCall:
    """A call of a function that stands for ``tool``, while it is streamed."""

    def __init__(self, tool: ToolName) -> None:
        self._tool = tool
        self._told = False

    def arguments(self, event: Event, *, done: bool) -> Iterator[Event]:
        """The client's events for one that brings arguments."""
        if self._tool.kind == "function":
            yield {**event, "name": self._tool.name} if "name" in event else event
        elif done and self._tool.kind == "custom" and isinstance(event.get("arguments"), str):
            yield from self._input(event, custom_input(event["arguments"]))

    def rest(self, event: Event, item: Item) -> Iterator[Event]:
        """What the client has still to be told before the item is done."""
        if item.get("type") == "custom_tool_call" and self._tool.kind == "custom":
            yield from self._input(event, item["input"])

    def _input(self, event: Event, text: str) -> Iterator[Event]:
        """The input, once. Its item has another id than the one that the endpoint gave it."""
        if self._told:
            return
        self._told = True
        at = {"output_index": event["output_index"]} if "output_index" in event else {}
        yield {"type": f"{_INPUT}.delta", **at, "delta": text}
        yield {"type": f"{_INPUT}.done", **at, "input": text}
