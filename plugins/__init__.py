"""The bundled plugins, one small file each; they use what anybody's plugins may use.

``BUNDLED`` has them in the order in which they stand where the settings say nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from plugins.access_log import AccessLog
from plugins.api_keys import ApiKeys, KeyScope
from plugins.limits import RequestLimits
from plugins.request_metrics import request_metrics
from plugins.response_cache import ResponseCachePlugin
from router.plugin import (
    Mistake,
    Plugin,
    PluginContext,
    PluginFactory,
    Settings,
    SettingsError,
    install_extra,
)

__all__ = ["BUNDLED", "BundledPlugin"]


@dataclass(frozen=True, slots=True)
class BundledPlugin:
    """A plugin that comes with the router. ``setting`` is what enables it."""

    make: PluginFactory
    setting: str
    enabled: Callable[[Settings], bool]


def _tracing(context: PluginContext) -> Plugin:
    """Raises SettingsError where OpenTelemetry is not installed."""
    try:
        from plugins.tracing import TracingPlugin
    except ModuleNotFoundError as exc:
        if not (exc.name or "").startswith("opentelemetry"):
            raise
        problem = f"needs OpenTelemetry; {install_extra('otel')}"
        raise SettingsError([Mistake("tracing.enabled", None, problem)]) from None
    return TracingPlugin(context.settings.tracing)


def _has_keys(settings: Settings) -> bool:
    return bool(settings.auth.keys)


BUNDLED: Final[dict[str, BundledPlugin]] = {
    "api_keys": BundledPlugin(ApiKeys.from_context, "auth.keys", _has_keys),
    "tracing": BundledPlugin(_tracing, "tracing.enabled", lambda s: s.tracing.enabled),
    "request_metrics": BundledPlugin(request_metrics, "", lambda s: True),
    "access_log": BundledPlugin(AccessLog, "logging.access", lambda s: s.logging.access),
    "key_scope": BundledPlugin(KeyScope.from_context, "auth.keys", _has_keys),
    "limits": BundledPlugin(RequestLimits.from_context, "auth.keys", _has_keys),
    "response_cache": BundledPlugin(
        ResponseCachePlugin.from_context, "cache.mode", lambda s: s.cache.mode != "off"
    ),
}
