"""Serves the description: ``/openapi.json``, and ``/docs`` to read."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from functools import cached_property
from importlib import resources
from typing import Any, Final

import orjson
from aiohttp import ETag, hdrs, web

__all__ = ["DescriptionApi"]

_PAGE: Final = "page.html"
_INLINE: Final = re.compile(rb"<(script|style)>(.*?)</\1>", re.DOTALL)
_KEPT: Final = "no-cache"
"""May be kept, and has to be asked for again: then the answer is most often a 304."""


class _StaticDocument:
    """Something that is always the same."""

    def __init__(self, body: bytes, content_type: str, headers: dict[str, str]) -> None:
        self._body = body
        self._tag = hashlib.blake2b(body, digest_size=16).hexdigest()
        self._headers = {
            "Cache-Control": _KEPT,
            "ETag": f'"{self._tag}"',
            "X-Content-Type-Options": "nosniff",
            **headers,
        }
        self._content_type = content_type

    def answer(self, request: web.Request) -> web.Response:
        if _names(request, self._tag):
            return web.Response(status=304, headers=self._headers)
        headers = {hdrs.CONTENT_TYPE: self._content_type, **self._headers}
        return web.Response(body=self._body, headers=headers)


class DescriptionApi:
    """Handlers for both; whoever may connect may read them.

    ``describe`` is called once, for the first who asks: that takes some milliseconds, a good part
    of what it takes to make an application, and most applications are never asked.
    """

    def __init__(self, describe: Callable[[], dict[str, Any]]) -> None:
        self._describe = describe
        page = resources.files(__package__).joinpath(_PAGE).read_bytes()
        policy = {"Content-Security-Policy": _policy(page), "Referrer-Policy": "no-referrer"}
        self._page = _StaticDocument(page, "text/html; charset=utf-8", policy)

    @cached_property
    def _json(self) -> _StaticDocument:
        headers = {"Access-Control-Allow-Origin": "*"}
        return _StaticDocument(orjson.dumps(self._describe()), "application/json", headers)

    async def openapi(self, request: web.Request) -> web.StreamResponse:
        """GET /openapi.json."""
        return self._json.answer(request)

    async def docs(self, request: web.Request) -> web.StreamResponse:
        """GET /docs."""
        return self._page.answer(request)


def _names(request: web.Request, tag: str) -> bool:
    """Whether the client has this version. An If-None-Match that cannot be read has none."""
    tags: tuple[ETag, ...] = request.if_none_match or ()
    return any(each.value in (tag, "*") for each in tags)


def _policy(page: bytes) -> str:
    """Nothing but what is in the page runs in it, and it asks nobody but this router."""
    allowed: dict[str, list[str]] = {"script": [], "style": []}
    for found in _INLINE.finditer(page):
        digest = base64.b64encode(hashlib.sha256(found[2]).digest()).decode()
        allowed[found[1].decode()].append(f"'sha256-{digest}'")
    inline = "; ".join(f"{kind}-src {' '.join(hashes)}" for kind, hashes in allowed.items())
    return (
        f"default-src 'none'; {inline}; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
