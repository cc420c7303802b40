"""What is told of the tools that the router runs itself."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry

from router.telemetry.meters import CountMeter, SpreadMeter
from router.telemetry.series import Cap, Series

__all__ = ["ToolMetrics"]

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class ToolMetrics:
    """The metrics of tool calls. ``server`` is the label of a configured MCP server, the name of
    the search provider, ``client`` for servers that clients name, or ``router``.
    """

    def __init__(self, registry: CollectorRegistry, cap: Cap) -> None:
        self._calls = Series(
            CountMeter(
                "pointsman_tool_calls",
                "Calls of tools that the router ran itself, by tool (mcp, web_search, "
                "tool_search), server and how they ended (ok, or the code of an error).",
                ("tool", "server", "outcome"),
                registry,
            ),
            cap,
            fold=("server",),
        )
        self._seconds = Series(
            SpreadMeter(
                "pointsman_tool_seconds",
                "How long calls of tools took that the router ran itself.",
                ("tool", "server"),
                registry,
                bounds=_SECONDS,
            ),
            cap,
            fold=("server",),
        )

    def called(self, tool: str, server: str, error: str | None, seconds: float) -> None:
        """A call is over."""
        self._calls[tool, server, error or "ok"].inc()
        self._seconds[tool, server].observe(seconds)
