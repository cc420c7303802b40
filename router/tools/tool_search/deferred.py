"""Search over a request's deferred tools, run here for models whose endpoint has no such thing.

To the model it is the search that a client would run (``"execution": "client"``), in the place of
which the loop answers; the client is shown what OpenAI shows of its own search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from router.dialects.responses.namespaces import deferred_tools
from router.response.call_items import search_arguments
from router.tools.hosted import TOOL_SEARCH, HostedCall, ToolResult
from router.tools.tool_search.catalogue import Compute, ToolCatalogue

__all__ = ["DeferredTools", "is_server_search"]

Item = dict[str, Any]
Found = tuple[str | None, Item]
"""A tool, with the namespace that it is in."""

_MOST: Final = 8
"""So many tools are found where the model asks for no other number."""
_LIMIT: Final = 32
_MOST_NAMED: Final = 4000
"""Characters of the names of tools that the model is told."""

_MOST_QUERY: Final = 1000
"""Characters of a query that are looked at."""

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

    def __init__(self, index: int, tools: Sequence[Item], compute: Compute) -> None:
        self.index = index
        self._compute = compute
        # A namespace and a name are one name here, as no tool has it.
        self._tools = {
            f"{space or ''}\n{tool['name']}": (space, tool) for space, tool in deferred_tools(tools)
        }
        self._about = {
            tool["name"]: tool.get("description") for tool in tools if tool["type"] == "namespace"
        }
        named = [{**tool, "name": name} for name, (_, tool) in self._tools.items()]
        self._catalogue = ToolCatalogue(named)

    async def prepare(self) -> None:
        """See ``HostedTool.prepare``: there is nothing to ask for."""

    def listed(self) -> Sequence[Item]:
        """See ``HostedTool.listed``: that is for the model to find out."""
        return ()

    def functions(self) -> Sequence[Mapping[str, Any]]:
        """See ``HostedTool.functions``: it is a search of the client's, as far as anybody knows."""
        names = ", ".join(_shown(*tool) for tool in self._tools.values())
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

    def loaded(self) -> Sequence[Mapping[str, Any]]:
        """See ``HostedTool.loaded``: what is found is in the history that follows."""
        return ()

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
        names = await self._compute(self._catalogue.by_words, query[:_MOST_QUERY], most)
        return ToolResult("", {}, tools=self._grouped(self._tools[name] for name in names))

    def failed(self, call: HostedCall, message: str, error: str) -> ToolResult:
        """See ``HostedTool.failed``."""
        return ToolResult("", {"status": "incomplete"}, error, tools=[])

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
