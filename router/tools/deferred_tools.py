"""Search over a request's deferred tools, run here for models whose endpoint has no such thing.

To the model it is the search that a client would run (``"execution": "client"``), in the place of
which the loop answers; the client is shown what OpenAI shows of its own search.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from router.dialects.responses.namespaces import deferred_tools
from router.response.call_items import search_arguments
from router.tools.hosted import TOOL_SEARCH, HostedCall, ToolResult

__all__ = ["DeferredTools", "is_server_search"]

Item = dict[str, Any]
Found = tuple[str | None, Item]
"""A tool, with the namespace that it is in."""

_MOST: Final = 8
"""So many tools are found where the model asks for no other number."""
_LIMIT: Final = 32
_MOST_NAMED: Final = 4000
"""Characters of the names of tools that the model is told."""

_MOST_WORDS: Final = 64
"""Words of a query that are looked for."""

_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_a-zA-Z]+")
_K: Final = 1.2
_B: Final = 0.75

_DESCRIPTION: Final = (
    "Searches for tools that are not on offer yet, by what they do. Those that are found can be "
    "called afterwards. There are: "
)
_PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What the tool is to do, in a few words."},
        "limit": {
            "type": "integer",
            "description": f"The most tools to be found; {_MOST} if not given.",
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}


def is_server_search(tool: Mapping[str, Any]) -> bool:
    """Whether this tool is a search that is not the client's to run."""
    return tool.get("type") == "tool_search" and tool.get("execution") != "client"


class DeferredTools:
    """Implements ``router.tools.hosted.HostedTool``, for the ``tool_search`` at ``index`` of these
    ``tools`` of a request.
    """

    kind = "tool_search"
    type = "tool_search_call"
    server = "router"

    def __init__(self, index: int, tools: Sequence[Item]) -> None:
        self.index = index
        self._tools = list(deferred_tools(tools))
        self._about = {
            tool["name"]: tool.get("description") for tool in tools if tool["type"] == "namespace"
        }
        self._words = [Counter(_words(_texts(*tool))) for tool in self._tools]
        self._having = Counter(word for words in self._words for word in words)

    async def prepare(self) -> None:
        """See ``HostedTool.prepare``: there is nothing to ask for."""

    def listed(self) -> Sequence[Item]:
        """See ``HostedTool.listed``: that is for the model to find out."""
        return ()

    def functions(self) -> Sequence[Mapping[str, Any]]:
        """See ``HostedTool.functions``: it is a search of the client's, as far as anybody knows."""
        names = ", ".join(_shown(*tool) for tool in self._tools)
        if len(names) > _MOST_NAMED:
            names = f"{names[:_MOST_NAMED]}…"
        return (
            {
                "type": "tool_search",
                "execution": "client",
                "description": f"{_DESCRIPTION}{names}",
                "parameters": _PARAMETERS,
            },
        )

    def chosen(self, choice: Mapping[str, Any]) -> Sequence[str] | None:
        """See ``HostedTool.chosen``."""
        return (TOOL_SEARCH,) if choice.get("type") == "tool_search" else None

    def needs_approval(self, call: HostedCall) -> bool:
        """See ``HostedTool.needs_approval``: it changes nothing."""
        return False

    def item(self, call: HostedCall) -> Item:
        """See ``HostedTool.item``."""
        arguments = search_arguments(call.arguments)
        return {"call_id": None, "execution": "server", "arguments": arguments}

    async def run(self, call: HostedCall, deadline: float) -> ToolResult:
        """See ``HostedTool.run``."""
        arguments = search_arguments(call.arguments)
        limit = arguments.get("limit")
        most = min(limit, _LIMIT) if type(limit) is int and limit > 0 else _MOST
        query = orjson.dumps([v for k, v in arguments.items() if k != "limit"]).decode()
        return ToolResult("", {}, tools=self._grouped(self._found(_words([query]), most)))

    def failed(self, call: HostedCall, message: str, error: str) -> ToolResult:
        """See ``HostedTool.failed``."""
        return ToolResult("", {"status": "incomplete"}, error, tools=[])

    def _found(self, query: Sequence[str], most: int) -> list[Found]:
        """The tools that fit best, the best first: by BM25 over their names and descriptions."""
        words, count = self._words, len(self._words)
        mean = sum(map(Counter.total, words)) / max(count, 1)
        rarities = {
            word: math.log(1 + (count - having + 0.5) / (having + 0.5))
            for word in query[:_MOST_WORDS]
            if (having := self._having[word])
        }
        scores = []
        for place, known in enumerate(words):
            score = 0.0
            length = _K * (1 - _B + _B * known.total() / mean) if mean else _K
            for word, rarity in rarities.items():
                if times := known[word]:
                    score += rarity * times * (_K + 1) / (times + length)
            if score > 0:
                scores.append((-score, place))
        return [self._tools[place] for _, place in sorted(scores)[:most]]

    def _grouped(self, found: Iterable[Found]) -> list[Item]:
        """The tools as a ``tool_search_output`` has them: those of a namespace together."""
        groups: dict[str, Item] = {}
        tools: list[Item] = []
        for namespace, tool in found:
            if namespace is None:
                tools.append(tool)
                continue
            if namespace not in groups:
                about = self._about.get(namespace) or ""
                group: Item = {
                    "type": "namespace",
                    "name": namespace,
                    "description": about,
                    "tools": [],
                }
                groups[namespace] = group
                tools.append(groups[namespace])
            groups[namespace]["tools"].append(tool)
        return tools


def _shown(namespace: str | None, tool: Mapping[str, Any]) -> str:
    return tool["name"] if namespace is None else f"{namespace}.{tool['name']}"


def _texts(namespace: str | None, tool: Mapping[str, Any]) -> list[str]:
    """What is said of a tool; its name says the most."""
    texts = [tool["name"]] * 3 + [namespace or "", tool.get("description") or ""]
    properties = (tool.get("parameters") or {}).get("properties")
    for name, about in properties.items() if isinstance(properties, dict) else ():
        texts.append(name)
        if isinstance(about, dict) and isinstance(about.get("description"), str):
            texts.append(about["description"])
    return texts


def _words(texts: Iterable[str]) -> list[str]:
    """The words, small, without the endings that most often differ."""
    return [_stem(word.lower()) for text in texts for word in _WORD.findall(text)]


def _stem(word: str) -> str:
    for ending in ("ing", "es", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
