"""What goes over the wire is what it was."""

from __future__ import annotations

import sys

import pytest

from tests.golden.scenes import PAIRS
from tests.golden.steps import STEPS
from tests.golden.surface import SURFACES
from tests.golden.trace import file_of, followed, frozen, traced
from tests.support.fleet import DIALECTS


@pytest.mark.parametrize(("api", "column"), PAIRS)
async def test_every_api_at_every_endpoint(api: str, column: str) -> None:
    assert (await traced(api, column)).splitlines() == frozen(file_of(api, column)).splitlines()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", STEPS)
async def test_what_is_stored_and_what_is_refused(name: str, dialect: str) -> None:
    found = await followed(name, dialect)
    assert found.splitlines() == frozen(file_of(name, dialect)).splitlines()


@pytest.mark.parametrize("name", SURFACES)
async def test_what_users_hold_on_to(name: str) -> None:
    if name == "commands" and sys.version_info[:2] != (3, 11):
        pytest.skip("does not apply: the help is laid out in another way by this Python")
    assert (await SURFACES[name]()).splitlines() == frozen(file_of(name)).splitlines()
