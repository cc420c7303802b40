"""The response cache's plugin; start reading at ``plugin.py``."""

from __future__ import annotations

from plugins.response_cache.plugin import ResponseCachePlugin, Saved

__all__ = ["ResponseCachePlugin", "Saved"]
