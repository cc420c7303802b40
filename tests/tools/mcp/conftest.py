"""No test of MCP leaves anything behind: no task, no descriptor."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from tests.support.waiting import until


@pytest.fixture(autouse=True)
async def _nothing_left() -> AsyncIterator[None]:
    tasks, files = asyncio.all_tasks(), _descriptors()
    yield

    def left() -> set[str]:
        mine = {asyncio.current_task()}
        names = {repr(task) for task in asyncio.all_tasks() - tasks - mine}
        return names | (_descriptors() - files)

    try:
        await until(lambda: not left(), timeout=5)
    except TimeoutError:
        pytest.fail(f"left behind: {left()}")


def _descriptors() -> set[str]:
    """What is open, by number and kind."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:
            continue  # that of this listing
    return found
