"""Anthropic's ``tool_search_tool_regex`` and ``tool_search_tool_bm25``, run by the router."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from router.dialects.messages.tool_search import (
    SEARCH_CALL,
    SEARCH_TOOLS,
    as_function,
    failed_text,
    found_text,
)
from router.tools.hosted import HostedCall, ToolResult
from router.tools.tool_search.catalogue import Compute, ToolCatalogue
from router.tools.tool_search.pattern import PatternInvalid, PatternTooSlow, by_pattern

__all__ = ["ToolSearch"]

Item = dict[str, Any]

_MOST_QUERY: Final = 1000
_INVALID: Final = "invalid_tool_input"
_ERRORS: Final[Mapping[str, str]] = {"timeout": "execution_time_exceeded", _INVALID: _INVALID}
"""Anthropic's codes for the loop's."""


class ToolSearch:
    """Implements ``router.tools.hosted.HostedTool``, for the search tool at ``index`` of a request,
    as ``dialects.messages.tool_search`` makes it. ``processes`` bounds those of all searches.
    """

    kind = "tool_search"
    server = "router"
    type = SEARCH_CALL

    def __init__(
        self, index: int, tool: Mapping[str, Any], compute: Compute, processes: asyncio.Semaphore
    ) -> None:
        self.index = index
        self._type = tool["type"]
        self._function = as_function(tool)
        self._catalogue = ToolCatalogue(tool["deferred"])
        self._compute = compute
        self._processes = processes
        self._found: dict[str, None] = {}

    async def prepare(self) -> None:
        """See ``HostedTool.prepare``: all is in the request."""

    def listed(self) -> Sequence[Item]:
        """See ``HostedTool.listed``: the client has them all."""
        return ()

    def functions(self) -> Sequence[Mapping[str, Any]]:
        """See ``HostedTool.functions``."""
        return (self._function,)

    def loaded(self) -> Sequence[Mapping[str, Any]]:
        """See ``HostedTool.loaded``."""
        return [self._catalogue.functions[name] for name in self._found]

    def chosen(self, choice: Mapping[str, Any]) -> Sequence[str] | None:
        """See ``HostedTool.chosen``."""
        return (self._function["name"],) if choice.get("type") == self._type else None

    def needs_approval(self, call: HostedCall) -> bool:
        """See ``HostedTool.needs_approval``: it changes nothing."""
        return False

    def item(self, call: HostedCall) -> Item:
        """See ``HostedTool.item``."""
        return {
            "call_id": call.call_id,
            "execution": "server",
            "name": self._function["name"],
            "arguments": call.arguments,
        }

    async def run(self, call: HostedCall, deadline: float) -> ToolResult:
        """See ``HostedTool.run``."""
        argument = SEARCH_TOOLS[self._type][0]
        asked = _argument(call.arguments, argument)
        if not asked:
            message = f"'{argument}' has to be a string that is not empty."
            return self.failed(call, message, _INVALID)
        try:
            if argument == "pattern":
                async with self._processes:
                    names = await by_pattern(asked, self._catalogue.texts)
            else:
                query = asked[:_MOST_QUERY]
                names = await self._compute(self._catalogue.by_words, query)
        except PatternInvalid as error:
            return self.failed(call, f"The pattern is not valid: {error}.", _INVALID)
        except PatternTooSlow as error:
            return self.failed(call, f"The pattern was not searched for: {error}.", "timeout")
        self._found |= dict.fromkeys(names)
        return ToolResult(found_text(names), {"tool_references": names})

    def failed(self, call: HostedCall, message: str, error: str) -> ToolResult:
        """See ``HostedTool.failed``."""
        code = _ERRORS.get(error, "unavailable")
        shown = {"error": {"code": code, "message": message}, "tool_references": []}
        return ToolResult(failed_text(message), shown, error)


def _argument(arguments: str, name: str) -> str | None:
    try:
        given = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return None
    value = given.get(name) if isinstance(given, dict) else None
    return value if isinstance(value, str) else None
