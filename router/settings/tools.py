"""The settings of tools that the router runs itself."""

from __future__ import annotations

from typing import Literal

from router.settings.code_interpreter import CodeInterpreterSettings
from router.settings.mcp import McpSettings
from router.settings.section import Section
from router.settings.values import Count, Seconds
from router.settings.web_search import WebSearchSettings

__all__ = ["RunWhere", "ToolRunSettings", "ToolsSettings"]

RunWhere = Literal["auto", "router", "endpoint"]


class ToolRunSettings(Section):
    """Where hosted tools are run."""

    mcp: RunWhere = "auto"
    """`router`, `endpoint`, or `auto`: by the endpoint where all that serve the model speak
    Responses, else by the router. Servers that are known by their label are the router's.
    """
    web_search: RunWhere = "auto"
    """The same for web search, where `tools.web_search` says which service is asked."""
    file_search: RunWhere = "auto"
    """The same for file search, with `vector_stores`; `auto` also has a request that names one of
    the router's vector stores run by the router.
    """
    code_interpreter: RunWhere = "auto"
    """The same for the code interpreter, where `tools.code_interpreter` says what runs code."""


class ToolsSettings(Section):
    """Hosted tools: what the router runs itself for models whose endpoints do not."""

    run: ToolRunSettings = ToolRunSettings()
    """Where tools are run, by their type."""
    max_turns: Count = 16
    """The most times that a model is asked for one response."""
    max_calls: Count = 64
    """The most calls of tools in one response; `max_tool_calls` of a request may be lower."""
    max_parallel: Count = 8
    """The calls of one response that run at once; more wait."""
    call_timeout: Seconds = 60.0
    """The longest that one call may take, or the listing of a server's tools; the model gets an
    error for a call that takes longer.
    """
    timeout: Seconds = 300.0
    """After this time no more tools are called for a response."""
    mcp: McpSettings = McpSettings()
    web_search: WebSearchSettings | None = None
    """The service that is asked for web searches; without it, only endpoints can search."""
    code_interpreter: CodeInterpreterSettings | None = None
    """Containers that run code; without it, only endpoints can run code."""
