"""The bundled plugins, one small file each; they use the contract that third parties use."""

from __future__ import annotations

from cache.core import ResponseCache
from plugins.access_log import AccessLog
from plugins.api_keys import ApiKeys
from plugins.request_metrics import KnownModel, RequestMetrics
from plugins.response_cache import ResponseCachePlugin
from router.plugin import Plugin
from router.settings.schema import Settings
from router.telemetry.metrics import Metrics

__all__ = ["default_plugins"]


def default_plugins(
    settings: Settings, metrics: Metrics, known_model: KnownModel, cache: ResponseCache
) -> list[Plugin]:
    """The bundled plugins of this configuration, in order."""
    plugins: list[Plugin] = []
    if settings.auth.keys:
        plugins.append(ApiKeys(settings.auth.keys))
    plugins.append(RequestMetrics(metrics, known_model))
    if settings.logging.access:
        plugins.append(AccessLog())
    if settings.cache.mode != "off":
        keepalive = settings.server.keepalive_interval
        plugins.append(ResponseCachePlugin(cache, settings.cache, metrics.cache, keepalive))
    return plugins
