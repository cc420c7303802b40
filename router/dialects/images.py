"""The images of a request that are somewhere else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from router.dialects.parts import Where

__all__ = ["is_remote", "remote_images"]

_LISTS: Final = ("instructions", "input")
_PARTS: Final = ("content", "output")


def is_remote(url: object) -> bool:
    """Whether it is a URL that has to be fetched."""
    return isinstance(url, str) and url[:8].lower().startswith(("http://", "https://"))


def remote_images(body: Mapping[str, Any]) -> dict[str, Where]:
    """The URLs of images in a Responses request, each with the place where it is named first."""
    found: dict[str, Where] = {}
    for field in _LISTS:
        items = body.get(field)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, dict):
                for url, where in _of_item(item):
                    found.setdefault(url, (field, index, *where))
    return found


def _of_item(item: Mapping[str, Any]) -> Iterator[tuple[str, Where]]:
    for name in _PARTS:
        parts = item.get(name)
        for index, part in enumerate(parts if isinstance(parts, list) else ()):
            value = part.get("image_url") if isinstance(part, dict) else None
            if isinstance(value, str) and is_remote(value):
                yield value, (name, index, "image_url")
