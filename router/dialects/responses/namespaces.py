"""Groups of tools, and tools that are loaded on demand, for endpoints that know functions only.

OpenAI's API has tools in groups (``namespace``), tools that a model sees only once it has searched
for them (``tool_search``, ``defer_loading``), and items that bring more of them. Agents use all of
it. ``flatten`` makes a request of it that any endpoint understands:

    namespace             its tools, as NAMESPACE__TOOL
    additional_tools      the tools in it are tools of the request
    tool_search           a function, whose calls become ``tool_search_call`` items again
    defer_loading         such a tool is offered once a ``tool_search_output`` has brought it
    tool_search_call      function_call
    tool_search_output    function_call_output, which names what was found

What a function stands for follows from the request alone (``FlatRequest.names``): nothing has to be
kept between requests, and any router reads an answer alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import orjson

from router.dialects.flat_names import flat_names, marked
from router.response.call_items import ToolName

__all__ = [
    "GROUPED_ITEMS",
    "GROUPED_TOOLS",
    "FlatRequest",
    "deferred_tools",
    "flatten",
    "without_deferred",
]

Item = dict[str, Any]
Key = tuple[str | None, str]
"""The namespace of a tool, and its name."""

GROUPED_TOOLS: Final = frozenset({"namespace", "tool_search"})
GROUPED_ITEMS: Final = frozenset({"additional_tools", "tool_search_call", "tool_search_output"})
"""Types of tools and of items that are not sent as they are."""

_CALLABLE: Final = frozenset({"function", "custom"})
_CALLS: Final = frozenset({"function_call", "custom_tool_call"})
_BRING_TOOLS: Final = frozenset({"additional_tools", "tool_search_output"})

_SEARCH: Final = "tool_search"
_SEARCH_DESCRIPTION: Final = (
    "Searches for tools that are not on offer yet. Those that are found can be called afterwards."
)
_SEARCH_PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What the tool is to do, in a few words."},
        "limit": {"type": "integer", "description": "The most tools to be found."},
    },
    "required": ["query"],
    "additionalProperties": False,
}
_NOTHING_FOUND: Final = "No tools were found."
_FOUND: Final = "These tools were found, and can be called now:"
_MOST_DESCRIBED: Final = 200
"""Characters of a tool's description that the output of a search repeats."""

_NOT_SENT: Final = frozenset({"defer_loading", "allowed_callers", "output_schema"})
"""Fields of a tool that only who knows groups of tools knows."""


@dataclass(frozen=True, slots=True)
class FlatRequest:
    """A request without groups. ``names`` has what those of its functions stand for whose calls
    the client knows by another name or type. Of ``body``, items that are only about groups are
    left where they were, so that places are the same: see ``GROUPED_ITEMS``.
    """

    body: dict[str, Any]
    names: Mapping[str, ToolName]


def flatten(body: Mapping[str, Any]) -> FlatRequest:
    """The request without groups of tools; ``body`` is validated, and stays as it is."""
    items = body.get("input")
    items = items if isinstance(items, list) else []
    tools = _Tools(body.get("tools") or (), items, body.get("tool_choice"))
    flat = dict(body)
    if offered := tools.offered():
        flat["tools"] = offered
    else:
        flat.pop("tools", None)
    if items:
        flat["input"] = _items(items, tools)
    if isinstance(choice := body.get("tool_choice"), dict):
        flat["tool_choice"] = _choice(choice, tools)
    return FlatRequest(flat, tools.stand_for())


def _offered_tools(tools: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str | None, Item, bool]]:
    """Each tool with the namespace that it is in, and whether it is loaded on demand. What is no
    function or custom tool is as it came, in no namespace.
    """
    for tool in tools:
        if tool["type"] != "namespace":
            yield None, dict(tool), bool(tool.get("defer_loading"))
            continue
        namespace, about = tool["name"], _about(tool)
        for member in tool["tools"]:
            member = dict(member)
            if about:
                texts = (about, member.get("description"))
                member["description"] = "\n\n".join(text for text in texts if text)
                about = None
            yield namespace, member, bool(member.get("defer_loading"))


def deferred_tools(tools: Iterable[Item]) -> Iterator[tuple[str | None, Item]]:
    """The tools that are loaded on demand, each with the namespace that it is in."""
    for tool in tools:
        members = tool["tools"] if tool["type"] == "namespace" else (tool,)
        namespace = tool["name"] if tool["type"] == "namespace" else None
        for member in members:
            if member["type"] in _CALLABLE and member.get("defer_loading"):
                yield namespace, member


def without_deferred(tools: Iterable[Item]) -> list[Item]:
    """The tools but for those that are loaded on demand."""
    kept = []
    for tool in tools:
        if tool["type"] == "namespace":
            members = [member for member in tool["tools"] if not member.get("defer_loading")]
            if members:
                kept.append({**tool, "tools": members})
        elif not tool.get("defer_loading"):
            kept.append(tool)
    return kept


def _about(namespace: Mapping[str, Any]) -> str | None:
    """What is said of a namespace, for its first tool to say; None for what says nothing."""
    about = (namespace.get("description") or "").strip()
    name = namespace["name"]
    if not about or about == f"Tools in the {name} namespace.":  # so it is where nothing is known
        return None
    return f"Of all tools in {name}: {about}"


@dataclass(slots=True)
class _Offered:
    """The tools of a request as they are offered: functions and custom tools by their key, others
    by their place.
    """

    known: dict[Key, Item] = field(default_factory=dict)
    deferred: set[Key] = field(default_factory=set)
    hosted: list[tuple[int, Item]] = field(default_factory=list)

    def add(self, tools: Iterable[Mapping[str, Any]], *, loaded: bool = False) -> None:
        """Later definitions of a tool take the place of earlier ones."""
        for namespace, tool, waits in _offered_tools(tools):
            if tool["type"] not in _CALLABLE:
                self.hosted.append((len(self.known), tool))
                continue
            key = (namespace, tool["name"])
            first = key not in self.known
            self.known[key] = {k: v for k, v in tool.items() if k not in _NOT_SENT}
            if loaded or not waits:
                self.deferred.discard(key)
            elif first:
                self.deferred.add(key)


class _Tools:
    """What a request offers, and what its functions are called."""

    def __init__(
        self, tools: Sequence[Mapping[str, Any]], items: Sequence[Item], choice: Any
    ) -> None:
        search = next((tool for tool in tools if tool["type"] == _SEARCH), None)
        self._group = group = _Offered()
        group.add(tool for tool in tools if tool is not search and tool["type"] != _SEARCH)
        called: list[Key] = []
        for item in items:
            kind = item.get("type")
            if kind in _BRING_TOOLS:
                brought = [tool for tool in item.get("tools") or () if tool["type"] != _SEARCH]
                group.add(brought, loaded=kind == "tool_search_output")
            elif kind in _CALLS and isinstance(item.get("namespace"), str):
                called.append((item["namespace"], item["name"]))
        # Where nobody could search, everything is on offer.
        self._search = (
            search if search is not None and search.get("execution") == "client" else None
        )
        if self._search is None:
            group.deferred.clear()
        plain = {name for namespace, name in group.known if namespace is None}
        self.search = _SEARCH if _SEARCH not in plain else marked("", _SEARCH)
        grouped = [
            (namespace, name)
            for namespace, name in (*group.known, *called)
            if namespace is not None
        ]
        self._flat = flat_names(grouped, plain | {self.search})
        group.deferred.difference_update(self._keys_of(choice))

    def flat(self, namespace: str | None, name: str) -> str:
        """What the function is called that stands for a tool of the request, or of its history."""
        return name if namespace is None else self._flat[namespace, name]

    def offered(self) -> list[Item]:
        """The tools as an endpoint is sent them."""
        entries = list(self._group.known.items())
        hosted = iter(self._group.hosted)
        place, tool = next(hosted, (-1, {}))
        offered = []
        for index in range(len(entries) + 1):
            while place == index:
                offered.append(tool)
                place, tool = next(hosted, (-1, {}))
            if index < len(entries) and entries[index][0] not in self._group.deferred:
                key, entry = entries[index]
                offered.append({**entry, "name": self.flat(*key)})
        if self._search is not None:
            offered.append(self._search_function(self._search))
        return offered

    def _search_function(self, search: Mapping[str, Any]) -> Item:
        return {
            "type": "function",
            "name": self.search,
            "description": search.get("description") or _SEARCH_DESCRIPTION,
            "parameters": search.get("parameters") or _SEARCH_PARAMETERS,
            "strict": False,
        }

    def stand_for(self) -> dict[str, ToolName]:
        """What functions stand for, by their names."""
        names = {
            flat: ToolName(self._group.known[key]["type"], key[1], key[0])
            for key, flat in self._flat.items()
            if key in self._group.known
        }
        if self._search is not None:
            names[self.search] = ToolName("tool_search", _SEARCH)
        return names

    def chosen(self, choice: Mapping[str, Any]) -> list[Item]:
        """The functions that a ``tool_choice``, or an entry of its allowed tools, is about."""
        if choice["type"] == _SEARCH and self._search is not None:
            return [{"type": "function", "name": self.search}]
        if choice["type"] not in _CALLABLE and choice["type"] != "namespace":
            return [dict(choice)]
        keys = self._keys_of(choice)
        if not keys:
            return [dict(choice)]
        return [{"type": self._group.known[key]["type"], "name": self.flat(*key)} for key in keys]

    def _keys_of(self, choice: Any) -> list[Key]:
        """The tools that a choice names. OpenAI's has no field for a namespace: a name alone is
        that of a tool in none, or of all tools so called.
        """
        if not isinstance(choice, dict):
            return []
        if choice["type"] == "allowed_tools":
            return [key for one in choice["tools"] for key in self._keys_of(one)]
        name, namespace = choice.get("name"), choice.get("namespace")
        known = self._group.known
        if choice["type"] == "namespace":
            return [key for key in known if key[0] == name]
        if choice["type"] not in _CALLABLE:
            return []
        if namespace is not None or (None, name) in known:
            return [key for key in known if key == (namespace, name)]
        return [key for key in known if key[1] == name]


def _choice(choice: Mapping[str, Any], tools: _Tools) -> Item:
    """``tool_choice`` without groups."""
    if choice["type"] == "allowed_tools":
        allowed = [entry for one in choice["tools"] for entry in tools.chosen(one)]
        return {**choice, "tools": allowed}
    chosen = tools.chosen(choice)
    if len(chosen) == 1:
        return chosen[0]
    return {"type": "allowed_tools", "mode": "required", "tools": chosen}


def _items(items: Sequence[Item], tools: _Tools) -> list[Item]:
    """The items without groups, each in its place."""
    call_ids = _search_ids(items)
    made = []
    for place, item in enumerate(items):
        kind = item.get("type")
        if kind == "tool_search_call" and place in call_ids:
            item = _search_call(item, call_ids[place], tools.search)
        elif kind == "tool_search_output" and place in call_ids:
            item = _search_output(item, call_ids[place], tools)
        elif "namespace" in item:
            item = _without_namespace(item, kind, tools)
        made.append(item)
    return made


def _without_namespace(item: Item, kind: Any, tools: _Tools) -> Item:
    flat = {name: value for name, value in item.items() if name != "namespace"}
    if kind in _CALLS and isinstance(item["namespace"], str):
        flat["name"] = tools.flat(item["namespace"], item["name"])
    return flat


def _search_call(item: Item, call_id: str, name: str) -> Item:
    arguments = item.get("arguments")
    if not isinstance(arguments, str):
        arguments = orjson.dumps(arguments or {}).decode()
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def _search_output(item: Item, call_id: str, tools: _Tools) -> Item:
    """What the model is told was found."""
    lines = [
        f"- {tools.flat(namespace, tool['name'])}{_described(tool)}"
        for namespace, tool, _ in _offered_tools(item.get("tools") or ())
        if tool["type"] in _CALLABLE
    ]
    output = "\n".join([_FOUND, *lines]) if lines else _NOTHING_FOUND
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _described(tool: Mapping[str, Any]) -> str:
    text = " ".join((tool.get("description") or "").split())
    if len(text) > _MOST_DESCRIBED:
        text = f"{text[:_MOST_DESCRIBED]}…"
    return f": {text}" if text else ""


def _search_ids(items: Sequence[Item]) -> dict[int, str]:
    """The ``call_id`` of each search and of what came of it, by their places. Those that a server
    made have none: an output is that of the first search before it that has none yet.
    """
    found: dict[int, str] = {}
    waiting: list[int] = []
    for place, item in enumerate(items):
        kind = item.get("type")
        if kind not in ("tool_search_call", "tool_search_output"):
            continue
        call_id = item.get("call_id")
        if isinstance(call_id, str) and call_id:
            found[place] = call_id
        elif kind == "tool_search_call":
            waiting.append(place)
        elif waiting:
            call = waiting.pop(0)
            found[call] = found[place] = _call_id(items[call], call)
    return found


def _call_id(item: Item, place: int) -> str:
    known = str(item.get("id") or place)
    return f"call_{sha256(known.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
