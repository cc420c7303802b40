"""Every dashboard, in the order in which they are listed."""

from __future__ import annotations

from grafana.boards import cache, endpoints, fleet, health, latency, spend
from grafana.panels import Board

__all__ = ["BOARDS"]

BOARDS: tuple[Board, ...] = (
    fleet.BOARD,
    endpoints.BOARD,
    latency.BOARD,
    cache.BOARD,
    spend.BOARD,
    health.BOARD,
)
