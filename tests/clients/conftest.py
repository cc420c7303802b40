"""A router in front of one simulated backend of each dialect, and the official client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trustme
from openai import AsyncOpenAI

from tests.support.fleet import DIALECTS, MODELS, routed, simulated
from tests.support.state import database_url

__all__ = ["database_url"]

KEY = "sk-test-team-a"
OTHER_KEY = "sk-test-team-b"
PACE = 0.003
"""Seconds between the pieces of a stream, where clients leave in the midst of one."""


@pytest.fixture(autouse=True)
def one_certificate(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, authority: str
) -> None:
    """Every client reads all certificates there are, though no test here connects by TLS: one is
    read in no time. Other programs may need those of the machine.
    """
    if request.node.get_closest_marker("integration") is None:
        monkeypatch.setenv("SSL_CERT_FILE", authority)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with one certificate."""
    path = tmp_path_factory.mktemp("authority") / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    return str(path)


@asynccontextmanager
async def wanting_a_key() -> AsyncIterator[str]:
    """A router's base URL; it wants ``KEY``."""
    keys = {"keys": [{"name": "team-a", "key": KEY}]}
    async with simulated(*DIALECTS) as endpoints, routed(*endpoints, auth=keys) as url:
        yield url


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    """The base URL of a router for all tests of a file, each of which has a loop of its own; it
    wants ``KEY``.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        router = wanting_a_key()
        url = runner.run(router.__aenter__())
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            yield url
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            runner.run(router.__aexit__(None, None, None))


@pytest.fixture
async def client(base_url: str) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client, pointed at the router."""
    async with AsyncOpenAI(base_url=f"{base_url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(params=DIALECTS)
def model(request: pytest.FixtureRequest) -> str:
    """One model of each dialect."""
    return MODELS[request.param]


@pytest.fixture
async def keeping_url(database_url: str) -> AsyncIterator[str]:
    """A router on each kind of database; it knows ``KEY`` and ``OTHER_KEY``."""
    keys = [{"name": "team-a", "key": KEY}, {"name": "team-b", "key": OTHER_KEY}]
    async with (
        simulated(*DIALECTS, pace=PACE) as endpoints,
        routed(*endpoints, auth={"keys": keys}, state={"url": database_url}) as url,
    ):
        yield f"{url}/v1"


@pytest.fixture
async def keeper(keeping_url: str) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client, pointed at a router that keeps what it is given."""
    async with AsyncOpenAI(base_url=keeping_url, api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
async def stranger(keeping_url: str) -> AsyncIterator[AsyncOpenAI]:
    """The same for somebody else."""
    async with AsyncOpenAI(base_url=keeping_url, api_key=OTHER_KEY, max_retries=0) as client:
        yield client
