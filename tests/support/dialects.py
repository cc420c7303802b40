"""Tests once for each dialect: the fixtures of it."""

from __future__ import annotations

import pytest

from router.settings.schema import Dialect
from tests.support.speech import DIALECTS, SPEECH, Speech

__all__ = ["dialect", "speech"]


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """What the endpoint speaks."""
    value: Dialect = request.param
    return value


@pytest.fixture
def speech(dialect: Dialect) -> Speech:
    """A well-formed answer of the endpoint's."""
    return SPEECH[dialect]
