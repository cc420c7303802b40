"""The response cache's plugin; start reading at ``plugin.py``."""

from __future__ import annotations

from plugins.response_cache.plugin import ResponseCachePlugin

__all__ = ["ResponseCachePlugin"]
