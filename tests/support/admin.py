"""Talking to a router's admin routes."""

from __future__ import annotations

from typing import Any

from tests.support.fetch import fetch
from tests.support.router import Reply, Router

__all__ = ["ADMIN", "ADMIN_KEY", "call_admin", "explained", "reported"]

ADMIN_KEY = "sk-admin-secret"
ADMIN = {"key": ADMIN_KEY}
"""The section of the settings."""


async def call_admin(
    router: Router,
    method: str,
    path: str,
    body: Any = None,
    *,
    key: str = ADMIN_KEY,
    **options: Any,
) -> Reply:
    """A request below ``/admin`` with this key; ``options`` are those of aiohttp's client."""
    if body is not None:
        options["json"] = body
    headers = {"Authorization": f"Bearer {key}", **options.pop("headers", {})}
    return await fetch(router.http, method, f"{router.url}/admin{path}", headers=headers, **options)


async def reported(router: Router, name: str = "one") -> dict[str, Any]:
    """How an endpoint is, as ``GET /admin/endpoints`` has it."""
    reply = await call_admin(router, "GET", "/endpoints")
    assert reply.status == 200, reply.body
    [report] = [one for one in reply.json["endpoints"] if one["name"] == name]
    found: dict[str, Any] = report
    return found


async def explained(router: Router, body: Any = None, **fields: Any) -> dict[str, Any]:
    """What would become of a request for the model ``m``."""
    request = {"model": "m", "input": "hi", **fields} if body is None else body
    reply = await call_admin(router, "POST", "/explain", request)
    assert reply.status == 200, reply.body
    assert reply.headers["Cache-Control"] == "no-store"
    return reply.json
