"""Images by URL, fetched for endpoints that take them as data only."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Final

from router.core.exchange import Exchange
from router.dialects.images import remote_images
from router.dialects.parts import Where, path_of
from router.errors import InvalidRequest, NoFileDescriptors
from router.fetch.guard import FetchGuard, NotFetched
from router.settings.schema import Settings
from router.telemetry.log import get_logger

__all__ = ["Images"]

_log = get_logger("router.fetch")

_MIB: Final = 1024 * 1024
_MOST: Final = 64
"""Images that are fetched for one request."""

_TYPES: Final = frozenset(
    {"image/gif", "image/jpeg", "image/jpg", "image/png", "image/webp"}
    # How stores of objects call what nobody has told them the type of: the bytes decide.
    | {"", "application/octet-stream", "binary/octet-stream"}
)
_GIF: Final = (b"GIF87a", b"GIF89a")
_JPEG: Final = b"\xff\xd8\xff"
_PNG: Final = b"\x89PNG\r\n\x1a\n"


class Images:
    """Fetches what a request's images are, each once per exchange."""

    def __init__(self, guard: FetchGuard) -> None:
        self._guard = guard
        self._most_bytes = 0

    def configure(self, settings: Settings) -> None:
        """Go on with these settings."""
        self._guard.settings = settings.fetch
        self._most_bytes = int(settings.server.max_body_mb * _MIB)

    def close(self) -> None:
        """Fetch nothing any more."""
        self._guard.close()

    async def fetch(self, exchange: Exchange) -> None:
        """Have the data of all images of the request in ``exchange.images``.

        Raises InvalidRequest that names the first one that cannot be had. Nothing is done where
        images are not fetched by configuration: whoever needs the data says so.
        """
        if not self._guard.settings.images:
            return
        remote = remote_images(exchange.responses_body)
        missing = {url: where for url, where in remote.items() if url not in exchange.images}
        if not missing:
            return
        if len(missing) > _MOST:
            where = list(missing.values())[_MOST]
            why = "No more than 64 images by URL are fetched for one request."
            raise _invalid(exchange, why, where)
        fetched = await self._all(exchange, missing)
        exchange.images = {**exchange.images, **fetched}

    async def _all(self, exchange: Exchange, missing: dict[str, Where]) -> dict[str, str]:
        """All of them at once; the first that fails ends the others."""
        count = _counter(self._most_bytes)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    url: group.create_task(self._one(exchange, url, where, count))
                    for url, where in missing.items()
                }
        except* (InvalidRequest, NoFileDescriptors) as failures:
            raise failures.exceptions[0] from None
        return {url: task.result() for url, task in tasks.items()}

    async def _one(
        self, exchange: Exchange, url: str, where: Where, count: Callable[[int], None]
    ) -> str:
        try:
            file = await self._guard.fetch(url, types=_TYPES, count=count)
            if not _is_image(file.body):
                raise NotFetched(
                    "It is no GIF, JPEG, PNG or WebP image.", "unsupported_image_media_type"
                )
        except NotFetched as error:
            path = exchange.named(path_of(where))
            _log.warning(
                "image not fetched", request_id=exchange.request.id, param=path, error=error.message
            )
            raise _invalid(exchange, error.message, where, error.code) from error
        return base64.b64encode(file.body).decode("ascii")


def _counter(limit: int) -> Callable[[int], None]:
    """Counts the bytes of all images of one request, which together may be as large as a body."""
    total = 0

    def count(size: int) -> None:
        nonlocal total
        total += size
        if total > limit:
            raise NotFetched(
                f"All images of the request together are larger than {limit / _MIB:g} MiB.",
                "image_too_large",
            )

    return count


def _is_image(body: bytes) -> bool:
    is_webp = body[:4] == b"RIFF" and body[8:12] == b"WEBP"
    return body.startswith((*_GIF, _JPEG, _PNG)) or is_webp


def _invalid(
    exchange: Exchange, message: str, where: Where, code: str = "invalid_image_url"
) -> InvalidRequest:
    path = exchange.named(path_of(where))
    return InvalidRequest(f"The image of '{path}' cannot be used. {message}", code=code, param=path)
