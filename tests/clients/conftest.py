"""A router in front of one simulated backend of each dialect, and the official client."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from openai import AsyncOpenAI

from tests.support.fleet import DIALECTS, MODELS, routed, simulated

KEY = "sk-test-team-a"


@pytest.fixture
async def base_url() -> AsyncIterator[str]:
    """The router's base URL; it wants ``KEY``."""
    keys = {"keys": [{"name": "team-a", "key": KEY}]}
    async with simulated(*DIALECTS) as endpoints, routed(*endpoints, auth=keys) as url:
        yield url


@pytest.fixture
async def client(base_url: str) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client, pointed at the router."""
    async with AsyncOpenAI(base_url=f"{base_url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(params=DIALECTS)
def model(request: pytest.FixtureRequest) -> str:
    """One model of each dialect."""
    return MODELS[request.param]
