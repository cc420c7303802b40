"""What ``pointsman check`` says of the tools that the router runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.settings.code_interpreter import CodeInterpreterSettings
    from router.settings.schema import Settings
    from router.settings.tools import ToolsSettings

__all__ = ["glance"]


def glance(settings: Settings) -> tuple[bool, str]:
    """Whether the tools can be used as they are configured, and a line that says so: every MCP
    server is asked for its tools, a sandbox is tried out, and the index of vector stores is looked
    for. An empty line where none are configured.
    """
    import asyncio

    tools = settings.tools
    told = asyncio.run(_servers(settings)) if tools.mcp.servers else []
    if (search := _search(tools)) is not None:
        told.append(search)
    if settings.vector_stores is not None:
        told.append(asyncio.run(_vector_stores(settings)))
    if tools.code_interpreter is not None:
        told.append(asyncio.run(_code(tools.code_interpreter)))
    line = "; ".join(text for _, text in told)
    return all(well for well, _ in told), f"tools  {line}" if line else ""


async def _servers(settings: Settings) -> list[tuple[bool, str]]:
    import asyncio

    from router.fetch.guard import FetchGuard
    from router.tools.mcp import McpClients, McpError, McpServer

    guard = FetchGuard(settings.fetch)
    clients = McpClients(settings.tools, guard)

    async def asked(server: McpServer) -> tuple[bool, str]:
        try:
            found = await clients.list_tools(server)
        except McpError as error:
            return False, f"mcp {server.label}: FAILED: {error.message}"
        return True, f"mcp {server.label}: {len(found)} tools"

    try:
        servers = map(McpServer.configured, settings.tools.mcp.servers)
        return list(await asyncio.gather(*map(asked, servers)))
    finally:
        await clients.close()
        guard.close()


async def _vector_stores(settings: Settings) -> tuple[bool, str]:
    """Whether the index can be opened, and what makes vectors can be loaded."""
    from cache.embedder import EmbedderError
    from router.state.connect import SQLITE
    from router.vector_stores.embedding import embedder_for, missing_packages
    from router.vector_stores.index import IndexUnavailable
    from router.vector_stores.service import make_index

    stores, url = settings.vector_stores, settings.state.url.get_secret_value()
    assert stores is not None
    if (missing := missing_packages(stores, sqlite=url.startswith(SQLITE))) is not None:
        return False, f"vector stores: FAILED: {missing}"
    index = make_index(settings.state, stores)
    embedder = embedder_for(stores, lambda _: None)
    try:
        await index.check()
        await embedder.start()
    except (IndexUnavailable, EmbedderError) as error:
        return False, f"vector stores: FAILED: {error}"
    finally:
        await index.close()
        await embedder.close()
    return True, "vector stores: ok"


def _search(tools: ToolsSettings) -> tuple[bool, str] | None:
    from router.tools.web_search.page_text import missing_extractor

    search = tools.web_search
    if search is None:
        return None
    problem = missing_extractor() if search.open_pages else None
    return True, f"search {search.provider}: {problem or 'ok'}"


async def _code(settings: CodeInterpreterSettings) -> tuple[bool, str]:
    from router.containers.runners import make_runner

    runner = make_runner(settings)
    assert runner is not None
    try:
        problem = await runner.problem()
    finally:
        await runner.close()
    about = f"code interpreter ({runner.kind})"
    if problem is not None:
        return False, f"{about}: FAILED: {problem}"
    local = settings.local
    if local is None or local.cgroup is not None:
        return True, f"{about}: ok"
    return True, f"{about}: ok; memory is limited by process, since cgroup is not set"
