"""Every fault is tried on every dialect; a client leaves on both event loops."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Mapping

import pytest
import uvloop

from tests.support.dialects import dialect, speech

__all__ = ["dialect", "speech"]

_ON_BOTH = {"test_client_leaves.py"}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """See pytest-asyncio."""
    if item.path.name in _ON_BOTH:
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Whether the client asks for a stream."""
    value: bool = request.param
    return value


@pytest.fixture(scope="session", autouse=True)
def _quick_collection() -> Iterator[None]:
    """Each test collects garbage, to find what was destroyed unfinished: spare it the modules."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
