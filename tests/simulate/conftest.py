"""Simulated backends on real loopback sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from router.simulate import Dialect, create_backend, listening

Start = Callable[..., Awaitable[str]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a backend of a dialect; its URL without a path."""
    async with AsyncExitStack() as stack:

        async def started(dialect: Dialect, *models: str, pace: float = 0.0, **options: Any) -> str:
            app = create_backend(dialect, models, pace=pace, **options)
            url = await stack.enter_async_context(listening(app))
            return url.removesuffix("/v1")

        yield started


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """A client whose every request has a deadline."""
    timeout = aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield session
