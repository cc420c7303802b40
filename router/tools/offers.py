"""Which of a request's hosted tools are run here, and what each of them is.

Who runs a tool is for ``tools.run`` to say: the endpoint, the router, or (``auto``) the endpoint
where all that serve the model speak Responses, since any of them may be asked. What is run by
nobody is dropped, and named in a header, as every parameter is that an endpoint cannot be sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from router.containers.service import Containers
from router.core.exchange import AnswerKind, Exchange
from router.dialects.hosted_items import CODE_INTERPRETER, FILE_SEARCH
from router.dialects.messages.tool_search import is_tool_search
from router.dialects.operation import Operation
from router.dialects.parameters import missing, object_, string
from router.dialects.responses.tools import is_web_search
from router.endpoints.registry import Registry
from router.errors import Forbidden, InvalidRequest, RouterError
from router.fetch.guard import FetchGuard
from router.settings.mcp import CLIENT
from router.settings.tools import ToolsSettings
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks
from router.tools.code_interpreter.tool import CodeTool
from router.tools.file_search.options import read_file_search
from router.tools.file_search.tool import FileSearchTool
from router.tools.hosted import TOOL_SEARCH, HostedTool
from router.tools.mcp import McpClients, McpInvalid, McpServer
from router.tools.mcp_tool import McpToolset
from router.tools.search_tool import SearchTool
from router.tools.tool_search.deferred import DeferredTools, is_server_search
from router.tools.tool_search.tool import ToolSearch
from router.tools.web_search.options import read_options
from router.tools.web_search.tool import WebSearch
from router.vector_stores.service import VectorStores

__all__ = ["Runner", "ToolOffers"]

_log = get_logger("router.tools.offers")

Runner = Literal["router", "endpoint", "nobody"]

_MOST_NAMED: Final = 20
"""Vector stores of a request that are looked up."""

_SEARCHES: Final = 4
"""So many processes search tools by a regular expression at a time."""


class ToolOffers:
    """Makes the hosted tools of requests. ``search`` is None where none is configured;
    ``vector_stores`` and ``containers`` are given to it once there are any.
    """

    def __init__(self, settings: ToolsSettings, registry: Registry, guard: FetchGuard) -> None:
        self.containers: Containers | None = None
        self.settings = settings
        self.vector_stores: VectorStores | None = None
        self.mcp = McpClients(settings, guard)
        self.search = _search(settings, guard)
        self._guard = guard
        self._registry = registry
        self._processes = asyncio.Semaphore(_SEARCHES)
        self._tasks = Tasks()

    def configure(self, settings: ToolsSettings) -> None:
        """Go on with these settings. What searches under the former ones may end."""
        if settings.web_search != self.settings.web_search:
            if self.search is not None:
                # Responses that are under way may search until their time is over.
                former = _closed_after(self.settings.timeout, self.search)
                self._tasks.spawn(former, "close a former web search")
            self.search = _search(settings, self._guard)
        self.settings = settings
        self.mcp.settings = settings

    async def close(self) -> None:
        """End every connection."""
        await self.mcp.close()
        await self._tasks.close()
        if self.search is not None:
            await self.search.close()

    def concern(self, tools: Sequence[Mapping[str, Any]]) -> bool:
        """Whether any of a request's tools is a hosted one that the router knows."""
        return any(map(_is_known, tools))

    async def tools(self, exchange: Exchange) -> Sequence[HostedTool]:
        """The tools of the exchange that are run here, ready to be called; none is the rule.

        Raises InvalidRequest for a tool that is not well described, Forbidden for one that the key
        may not use, ToolServerFailed for a server that does not tell what tools it has.
        """
        if exchange.request.operation.kind is not AnswerKind.RESPONSE:
            return ()
        runners = [(index, tool, who) async for index, tool, who in self.runners(exchange)]
        made = [
            self._made(exchange, index, tool) for index, tool, who in runners if who == "router"
        ]
        if not made:
            return ()
        for tool in made:
            _check_allowed(exchange, tool)
        await _prepared(made)
        _check_names(exchange, made)
        return made

    async def runners(
        self, exchange: Exchange
    ) -> AsyncIterator[tuple[int, Mapping[str, Any], Runner]]:
        """Index, tool and who runs it, of each hosted tool that the router knows."""
        tools = exchange.body.get("tools") or ()
        found = [(i, tool) for i, tool in enumerate(tools) if _is_known(tool)]
        if found and TOOL_SEARCH in _own_names(tools):  # a search would have its name
            found = [(i, tool) for i, tool in found if tool["type"] != TOOL_SEARCH]
        native = bool(found) and await self._is_native(exchange)
        passed = native and exchange.passes is not None
        for index, tool in found:
            if is_tool_search(tool):  # only endpoints that the request passes to as it is have it
                yield index, tool, "endpoint" if passed else "router"
            elif tool["type"] == FILE_SEARCH:
                yield index, tool, await self._searches_files(exchange, tool, native=native)
            else:
                yield index, tool, self._runner(tool, native=native)

    async def _is_native(self, exchange: Exchange) -> bool:
        """Whether every endpoint that may be asked speaks Responses, or the client's own API."""
        passes = exchange.passes
        dialect = "responses" if passes is None else passes.dialect
        try:
            group = await self._registry.group(exchange.model or "", exchange.context.key)
        except RouterError:
            return True  # whoever chooses an endpoint says so
        return all(one.endpoint.settings.dialect == dialect for one in group.deployments)

    async def _searches_files(
        self, exchange: Exchange, tool: Mapping[str, Any], *, native: bool
    ) -> Runner:
        """With ``auto`` one that names a store of the caller's is run where the store is: here."""
        stores, where = self.vector_stores, self.settings.run.file_search
        if stores is not None and stores.on and where != "endpoint":
            if where == "router" or not native:
                return "router"
            named = tool.get("vector_store_ids")
            for ident in named[:_MOST_NAMED] if isinstance(named, list) else ():
                if isinstance(ident, str) and await stores.find(exchange.context.caller, ident):
                    return "router"
        return "endpoint" if native else "nobody"

    def _runner(self, tool: Mapping[str, Any], *, native: bool) -> Runner:
        settings = self.settings
        if tool["type"] == TOOL_SEARCH:
            return "endpoint" if native else "router"
        if tool["type"] == "mcp":
            named = tool.get("server_url") is not None
            elsewhere = named or tool.get("connector_id") is not None
            if not elsewhere and settings.mcp.labelled(tool.get("server_label")) is not None:
                return "router"
            # A connector, say, is something that only its vendor has.
            where, able = settings.run.mcp, named
        elif tool["type"] == CODE_INTERPRETER:
            where, able = settings.run.code_interpreter, self._runs_code()
        else:
            where, able = settings.run.web_search, self.search is not None
        if able and (where == "router" or (where == "auto" and not native)):
            return "router"
        return "endpoint" if native else "nobody"

    def _runs_code(self) -> bool:
        return self.containers is not None and self.containers.runner is not None

    def _made(self, exchange: Exchange, index: int, tool: Mapping[str, Any]) -> HostedTool:
        where = f"tools[{index}]"
        if tool["type"] == TOOL_SEARCH:
            return DeferredTools(index, exchange.body["tools"], exchange.compute)
        if is_tool_search(tool):
            return ToolSearch(index, tool, exchange.compute, self._processes)
        if tool["type"] == FILE_SEARCH:
            assert self.vector_stores is not None
            return FileSearchTool(
                index,
                read_file_search(tool, where),
                self.vector_stores,
                exchange.context.caller,
                exchange.request.id,
                exchange.body.get("include") or (),
            )
        if tool["type"] == CODE_INTERPRETER:
            assert self.containers is not None
            return CodeTool(
                index,
                tool,
                self.containers,
                exchange.context.caller,
                exchange.body.get("input"),
                exchange.body.get("include") or (),
            )
        if tool["type"] != "mcp":
            assert self.search is not None
            include = exchange.body.get("include") or ()
            results = exchange.request.operation is Operation.MESSAGES
            options = read_options(tool, where)
            return SearchTool(index, options, self.search, include, results=results)
        known = self.settings.mcp.labelled(tool.get("server_label"))
        if known is not None and tool.get("server_url") is None:
            server, name = McpServer.configured(known), known.label
        else:
            server, name = self._clients_own(exchange, tool, where), CLIENT
        history = exchange.body.get("input")
        return McpToolset(index, tool, server, name, self.mcp, self.settings, history)

    def _clients_own(self, exchange: Exchange, tool: Mapping[str, Any], where: str) -> McpServer:
        """The server that the client names; raises InvalidRequest."""
        if tool.get("server_label") is None:
            raise missing(f"{where}.server_label")
        for name in ("server_label", "server_url", "authorization"):
            if tool.get(name) is not None:
                string(tool[name], f"{where}.{name}")
        headers = tool.get("headers") or {}
        object_(headers, f"{where}.headers")
        for name, value in headers.items():
            string(value, f"{where}.headers.{name}")
        if not self.settings.mcp.client_servers:
            raise InvalidRequest(
                f"Unsupported '{where}.server_url': this router uses the MCP servers that it is "
                "configured with. Name one of them by 'server_label' alone.",
                code="unsupported_value",
                param=f"{where}.server_url",
            )
        try:
            return McpServer(
                label=tool["server_label"],
                url=tool["server_url"],
                headers=headers,
                authorization=tool.get("authorization"),
                owner=exchange.context.caller,
            )
        except McpInvalid as error:
            param = f"{where}.{error.param}"
            raise InvalidRequest(
                f"Invalid '{param}'. {error.message}", code="invalid_value", param=param
            ) from None


def _search(settings: ToolsSettings, guard: FetchGuard) -> WebSearch | None:
    if settings.web_search is None:
        return None
    search = WebSearch(settings.web_search, guard)
    if search.problem is not None:
        _log.warning("models are offered searches, but no pages", reason=search.problem)
    return search


async def _closed_after(seconds: float, search: WebSearch) -> None:
    try:
        await asyncio.sleep(seconds)
    finally:
        await search.close()


def _is_known(tool: Mapping[str, Any]) -> bool:
    kind = tool.get("type")
    return kind in ("mcp", CODE_INTERPRETER, FILE_SEARCH) or is_web_search(kind) or _is_search(tool)


def _is_search(tool: Mapping[str, Any]) -> bool:
    return is_tool_search(tool) or is_server_search(tool)


async def _prepared(tools: Sequence[HostedTool]) -> None:
    """Have all of them made ready, side by side; raises the RouterError of the first that fails."""
    try:
        async with asyncio.TaskGroup() as group:
            for tool in tools:
                group.create_task(tool.prepare())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


def _check_allowed(exchange: Exchange, tool: HostedTool) -> None:
    key = exchange.context.key
    # A search for the client's own tools leaves the router nowhere.
    if key is None or tool.kind == TOOL_SEARCH or key.may_run(tool.kind, tool.server):
        return
    raise Forbidden(
        f"This key may not use the tool of 'tools[{tool.index}]'.",
        code="tool_not_allowed",
        param=f"tools[{tool.index}]",
    )


def _check_names(exchange: Exchange, tools: Sequence[HostedTool]) -> None:
    """Raise InvalidRequest where two functions, the client's own included, have the same name."""
    names = set(_own_names(exchange.body["tools"]))
    for tool in tools:
        for function in tool.functions():
            name = function.get("name", TOOL_SEARCH)
            if name in names:
                raise InvalidRequest(
                    f"Invalid 'tools[{tool.index}]': its function '{name}' has the name of another "
                    "tool.",
                    code="invalid_value",
                    param=f"tools[{tool.index}]",
                )
            names.add(name)


def _own_names(tools: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for tool in tools:
        if tool["type"] in ("function", "custom"):
            yield tool["name"]
