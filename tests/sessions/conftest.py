"""A router over each kind of database, in front of an endpoint of each dialect."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from router.settings.schema import Dialect
from tests.support.calling import answering
from tests.support.router import Router, endpoint, routing
from tests.support.speech import DIALECTS
from tests.support.state import database_url
from tests.support.upstream import Upstream

__all__ = ["database_url"]


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """What the endpoint speaks."""
    dialect: Dialect = request.param
    return dialect


@pytest.fixture
async def upstream(dialect: Dialect) -> AsyncIterator[Upstream]:
    """An endpoint that answers as it is asked to, whole or as a stream."""
    async with answering(dialect) as server:
        yield server


@pytest.fixture
async def router(upstream: Upstream, dialect: Dialect, database_url: str) -> AsyncIterator[Router]:
    """A router without keys in front of it."""
    state = {"url": database_url, "lease": 2.0}
    async with routing(endpoint(upstream, dialect), state=state) as router:
        yield router
