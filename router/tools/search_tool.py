"""A request's tool of type ``web_search``, under any of its names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from router.dialects.responses.tools import is_web_search
from router.tools.hosted import HostedCall, ToolResult
from router.tools.web_search.options import SearchOptions
from router.tools.web_search.outcome import WebSearchAction
from router.tools.web_search.tool import WebSearch

__all__ = ["SearchTool"]

Item = dict[str, Any]

_SOURCES: Final = "web_search_call.action.sources"
"""What ``include`` names for a search to tell all that it found."""


class SearchTool:
    """Implements ``router.tools.hosted.HostedTool``, for the tool at ``index`` of a request with
    these ``options``. ``include`` is the request's; with ``results`` its items have what the model
    was shown of each page, as ``results``: ``url``, ``title``, ``text`` and ``date``.
    """

    kind = "web_search"
    type = "web_search_call"

    def __init__(
        self,
        index: int,
        options: SearchOptions,
        search: WebSearch,
        include: Collection[str],
        *,
        results: bool = False,
    ) -> None:
        self.index = index
        self.server: str = search.provider
        self._options = options
        self._search = search
        self._shows_sources = _SOURCES in include
        self._shows_results = results
        self._function = search.offered(options)
        self._used = 0

    async def prepare(self) -> None:
        """See ``HostedTool.prepare``: there is nothing to ask for."""

    def listed(self) -> Sequence[Item]:
        """See ``HostedTool.listed``: everybody knows what it can do."""
        return ()

    def functions(self) -> Sequence[Mapping[str, Any]]:
        """See ``HostedTool.functions``."""
        return (self._function,)

    def loaded(self) -> Sequence[Mapping[str, Any]]:
        """See ``HostedTool.loaded``: it finds no tools."""
        return ()

    def chosen(self, choice: Mapping[str, Any]) -> Sequence[str] | None:
        """See ``HostedTool.chosen``."""
        return (self._function["name"],) if is_web_search(choice.get("type")) else None

    def needs_approval(self, call: HostedCall) -> bool:
        """See ``HostedTool.needs_approval``: it changes nothing."""
        return False

    def item(self, call: HostedCall) -> Item:
        """See ``HostedTool.item``."""
        return {"action": self._search.action(call.arguments)}

    async def run(self, call: HostedCall, deadline: float) -> ToolResult:
        """See ``HostedTool.run``."""
        used, self._used = self._used, self._used + 1
        found = await self._search.run(self._options, call.arguments, deadline=deadline, used=used)
        shown: Item = {"action": self._shown(found.action)}
        if self._shows_results:
            shown["results"] = [asdict(source) for source in found.sources]
            shown["error"] = found.error
        return ToolResult(found.text, shown, found.error, found.sources, cost=found.cost)

    def _shown(self, action: WebSearchAction) -> Mapping[str, Any]:
        if self._shows_sources:
            return action
        return {name: value for name, value in action.items() if name != "sources"}

    def failed(self, call: HostedCall, message: str, error: str) -> ToolResult:
        """See ``HostedTool.failed``."""
        return ToolResult(f"Error: {message}", {}, error)
