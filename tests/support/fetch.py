"""Any request to a router, and what came back."""

from __future__ import annotations

from typing import Any

import aiohttp
from multidict import CIMultiDict

from tests.support.router import Reply

__all__ = ["fetch"]


async def fetch(http: aiohttp.ClientSession, method: str, url: str, **options: Any) -> Reply:
    """Send a request and read the whole answer; ``options`` are those of aiohttp's client."""
    async with http.request(method, url, **options) as response:
        return Reply(response.status, CIMultiDict(response.headers), await response.read())
