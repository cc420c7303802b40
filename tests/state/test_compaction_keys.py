"""What summaries are encrypted with: by whom they can be read, and by whom not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import StateUnavailable
from router.settings.compaction import CompactionSettings
from router.state.compaction_keys import CompactionKeys, UnreadableCompaction
from router.state.database import Database
from tests.support.state import opened

DAY = 86_400.0
FIRST, SECOND = "a-first-secret-key", "a-second-secret-key"


@dataclass
class Calendar:
    """A clock that is set."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class Nowhere:
    """A database that is down."""

    up = False


def settings(**fields: Any) -> CompactionSettings:
    return CompactionSettings.model_validate(fields)


def configured(*keys: str) -> CompactionKeys:
    nowhere: Any = Nowhere()
    return CompactionKeys(nowhere, settings(keys=keys))


async def test_what_is_sealed_is_read_by_its_owner_only() -> None:
    keys = configured(FIRST)
    sealed = await keys.seal(b"secret", "ann")
    assert sealed.startswith("pmc1.")
    assert sealed != await keys.seal(b"secret", "ann")
    assert await keys.unseal(sealed, "ann") == b"secret"
    assert await configured(FIRST).unseal(sealed, "ann") == b"secret"
    with pytest.raises(UnreadableCompaction, match="verified"):
        await keys.unseal(sealed, "bob")


async def test_former_keys_decrypt_and_the_first_encrypts() -> None:
    old = await configured(FIRST).seal(b"old", "ann")
    both = configured(SECOND, FIRST)
    assert await both.unseal(old, "ann") == b"old"
    new = await both.seal(b"new", "ann")
    assert await configured(SECOND).unseal(new, "ann") == b"new"
    nowhere: Any = Nowhere()
    changed = CompactionKeys(nowhere, settings(keys=[FIRST]))
    changed.configure(settings(keys=[SECOND, FIRST]))
    assert await changed.unseal(new, "ann") == b"new"


@given(st.data())
async def test_whatever_is_altered_is_noticed(data: st.DataObject) -> None:
    keys = configured(FIRST)
    sealed = await keys.seal(b"secret", "ann")
    place = data.draw(st.integers(len("pmc1."), len(sealed) - 1))
    other = data.draw(st.characters().filter(lambda one: one != sealed[place]))
    cut = data.draw(st.booleans())
    altered = sealed[:place] if cut else sealed[:place] + other + sealed[place + 1 :]
    with pytest.raises((UnreadableCompaction, StateUnavailable)):
        await keys.unseal(altered, "ann")


@pytest.mark.parametrize(
    "text", ["pmc1.", "pmc1..", "pmc1.x.y", "pmc1.\0.\0", "pmc1.\ud800.\ud800"]
)
async def test_what_nobody_sealed(database: Database, text: str) -> None:
    keys = CompactionKeys(database, settings())
    with pytest.raises(UnreadableCompaction):
        await keys.unseal(text, "ann")
    ident = (await keys.seal(b"secret", "ann")).split(".")[1]
    for data in ("", "A", "AAAA", "é", "A" * 40, "\ud800"):
        with pytest.raises(UnreadableCompaction, match="verified"):
            await keys.unseal(f"pmc1.{ident}.{data}", "ann")
    with pytest.raises(UnreadableCompaction, match="no longer there"):
        await keys.unseal("pmc1.0123456789abcdef.AAAA", "ann")


async def test_a_key_of_the_database_is_everybodys_and_survives(database_url: str) -> None:
    async with opened(database_url) as one, opened(database_url) as two:
        sealed = await CompactionKeys(one, settings()).seal(b"secret", "ann")
        other = CompactionKeys(two, settings())
        assert await other.unseal(sealed, "ann") == b"secret"
        assert (await other.seal(b"more", "ann")).split(".")[1] == sealed.split(".")[1]
    async with opened(database_url) as three:
        assert await CompactionKeys(three, settings()).unseal(sealed, "ann") == b"secret"


async def test_keys_of_the_database_are_changed_by_themselves(database: Database) -> None:
    clock = Calendar(1e9)
    keys = CompactionKeys(database, settings(rotate_days=2), clock=clock)
    first = await keys.seal(b"first", "ann")
    clock.now += 1.9 * DAY
    assert (await keys.seal(b"x", "ann")).split(".")[1] == first.split(".")[1]
    clock.now += 0.2 * DAY
    second = await keys.seal(b"second", "ann")
    assert second.split(".")[1] != first.split(".")[1]
    later = CompactionKeys(database, settings(rotate_days=2), clock=clock)
    assert await later.unseal(first, "ann") == b"first"
    assert (await later.seal(b"third", "ann")).split(".")[1] == second.split(".")[1]
    moved = CompactionKeys(database, settings(keys=[FIRST]), clock=clock)
    assert await moved.unseal(first, "ann") == b"first"
    assert await configured(FIRST).unseal(await moved.seal(b"fourth", "ann"), "ann") == b"fourth"


async def test_without_the_database_known_keys_go_on() -> None:
    nowhere: Any = Nowhere()
    keys = CompactionKeys(nowhere, settings())
    with pytest.raises(StateUnavailable):
        await keys.seal(b"secret", "ann")
    with pytest.raises(StateUnavailable):
        await keys.unseal("pmc1.0123456789abcdef.AAAA", "ann")
