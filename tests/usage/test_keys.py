"""Virtual keys in the database: what is kept of them, and what may become of them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from router.errors import Conflict, InvalidRequest, NotFound
from router.settings.accounts import ApiKey, KeySpec
from router.state.database import Database
from router.state.statement import Statement, StatementStep
from router.usage.key_spec import key_from, load_spec, merged, parse_spec, shown_spec, stored_spec
from router.usage.keys import Issued, KeyRow, KeyStore, digest_of, looks_like_ours
from router.usage.keys_json import shown_virtual
from tests.support.state import database, database_url

__all__ = ["database", "database_url"]

EVERYTHING: dict[str, Any] = {
    "models": ["gpt-*", "llama3"],
    "endpoints": ["box*"],
    "expires": "2999-01-31",
    "tags": ["team-a", "prod"],
    "priority": 3,
    "budgets": [{"period": "month", "usd": 50}, {"period": "day", "tokens": 2_000_000}],
    "limits": {"requests_per_minute": 60, "concurrent": 4},
    "model_limits": {"gpt-*": {"tokens_per_minute": 1000}},
}
DUMP = Statement("SELECT * FROM virtual_keys")
BREAK = Statement("UPDATE virtual_keys SET spec = :spec WHERE name = :name")


def secret_of(issued: Issued) -> str:
    return issued.secret.get_secret_value()


@pytest.fixture
def store(database: Database) -> KeyStore:
    return KeyStore(database)


async def test_what_is_kept_is_no_secret(store: KeyStore, database: Database) -> None:
    issued = await store.create("ann", EVERYTHING)
    rotated = await store.rotate("ann", 60)
    for made in (issued, rotated):
        secret = secret_of(made)
        assert looks_like_ours(secret)
        assert len(secret) == len("sk-sy-") + 43
        assert made.key.hint == f"sk-sy-...{secret[-4:]}"
        rows = repr(await database.read(DUMP))
        shown = [rows, repr(made), str(made), repr(made.key), repr(await store.get("ann"))]
        shown.append(repr(shown_virtual(made.key, 0.0)))
        shown.append(repr(await store.find(digest_of(secret))))
        for text in shown:
            assert secret not in text
            assert secret[6:-4] not in text
        assert repr(digest_of(secret)) not in "".join(shown[1:])


async def test_everything_that_a_key_may_do_comes_back(store: KeyStore) -> None:
    made = (await store.create("ann", EVERYTHING)).key
    assert made == await store.get("ann")
    assert made.spec == KeySpec.model_validate(EVERYTHING)
    assert made.revoked_at is made.previous_until is None
    assert abs(made.created_at - time.time()) < 60
    assert made.expires == made.spec.expires.timestamp()  # type: ignore[union-attr]
    plain = (await store.create("bob", {})).key
    assert plain.spec == KeySpec()
    assert plain.expires is None
    assert await store.get("nobody") is None
    for odd in ("", "a\0b", "\ud800", "x" * 10_000):
        assert await store.get(odd) is None


@pytest.mark.parametrize("name", ["", "-a", "ann smith", "a" * 65, "ä", "a\n", "a/b"])
async def test_names_that_cannot_be(store: KeyStore, name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await store.create(name, {})
    assert caught.value.param == "name"


async def test_a_name_is_taken_for_good(store: KeyStore) -> None:
    secret = secret_of(await store.create("ann", {}))
    await store.revoke("ann")
    for name, reserved in (("ann", ()), ("default", ()), ("cfg", ("cfg", "other"))):
        with pytest.raises(Conflict) as caught:
            await store.create(name, {}, reserved=reserved)
        assert (caught.value.code, caught.value.param) == ("name_taken", "name")
        assert secret not in caught.value.message
    assert [key.name for key in await store.page("", 10)] == ["ann"]


async def test_of_many_that_want_a_name_one_gets_it(store: KeyStore) -> None:
    made = await asyncio.gather(
        *(store.create("ann", {"priority": n}) for n in range(1, 9)), return_exceptions=True
    )
    [issued] = [one for one in made if isinstance(one, Issued)]
    assert sum(isinstance(one, Conflict) for one in made) == 7
    row = await store.find(digest_of(secret_of(issued)))
    assert row is not None
    assert await store.get("ann") == issued.key


async def test_what_cannot_be_is_not_stored(store: KeyStore) -> None:
    for field, value in (("priority", 0), ("expires", "2001-01-01")):
        with pytest.raises(InvalidRequest) as caught:
            await store.create("ann", {field: value})
        assert caught.value.param == field
        assert await store.get("ann") is None


async def test_a_change_leaves_the_rest(store: KeyStore) -> None:
    made = await store.create("ann", EVERYTHING)
    changes = {
        "models": None,
        "priority": 5,
        "limits": {"concurrent": None, "tokens_per_minute": 9},
        "model_limits": {"llama3": {"concurrent": 1}, "gpt-*": {"concurrent": 2}},
        "budgets": None,
        "expires": "2998-01-01T12:00+01:00",
    }
    changed = await store.update("ann", changes)
    assert changed == await store.get("ann")
    assert changed.spec is not None
    assert shown_spec(changed.spec) == {
        **EVERYTHING,
        "models": None,
        "endpoints": ("box*",),
        "tools": None,
        "default_model": None,
        "priority": 5,
        "limits": {"requests_per_minute": 60, "tokens_per_minute": 9},
        "model_limits": {
            "gpt-*": {"tokens_per_minute": 1000, "concurrent": 2},
            "llama3": {"concurrent": 1},
        },
        "budgets": [],
        "expires": "2998-01-01T11:00:00+00:00",
    }
    assert changed.expires is not None
    assert changed.changed_at > made.key.changed_at
    cleared = await store.update("ann", {"expires": None, "model_limits": {"gpt-*": None}})
    assert cleared.expires is None
    assert list(cleared.spec.model_limits) == ["llama3"]  # type: ignore[union-attr]
    past = await store.update("ann", {"expires": "2001-01-01"})
    assert past.expires == 978307200.0
    with pytest.raises(InvalidRequest) as caught:
        await store.update("ann", {"name": "bob"})
    assert caught.value.param == "name"
    row = await store.find(digest_of(secret_of(made)))
    assert row is not None
    assert row.name == "ann"


async def test_changes_at_once_are_all_made(store: KeyStore) -> None:
    await store.create("ann", {})
    fields = ("requests_per_minute", "tokens_per_minute", "concurrent")
    await asyncio.gather(
        *(store.update("ann", {"limits": {field: n}}) for n, field in enumerate(fields, 1)),
        *(store.update("ann", {"model_limits": {f"m{n}": {"concurrent": n}}}) for n in (1, 2, 3)),
    )
    key = await store.get("ann")
    assert key is not None
    assert key.spec is not None
    assert key.spec.limits.model_dump() == dict(zip(fields, (1, 2, 3), strict=True))
    assert sorted(key.spec.model_limits) == ["m1", "m2", "m3"]


async def test_rotation(store: KeyStore) -> None:
    first = secret_of(await store.create("ann", {}))
    graceful = await store.rotate("ann", 100)
    assert graceful.key.previous_until is not None
    assert 90 < graceful.key.previous_until - time.time() < 110
    row = await store.find(digest_of(first))
    assert row is not None
    assert row.previous == digest_of(first)
    at_once = await store.rotate("ann", 0)
    assert at_once.key.previous_until is None
    assert await store.find(digest_of(first)) is None
    assert await store.find(digest_of(secret_of(graceful))) is None
    assert await store.find(digest_of(secret_of(at_once))) is not None
    for grace in (-1, float("nan"), float("inf"), 1e9):
        with pytest.raises(InvalidRequest) as caught:
            await store.rotate("ann", grace)
        assert caught.value.param == "grace"


async def test_of_two_that_rotate_at_once_nobody_gets_a_dead_secret(database: Database) -> None:
    both_have_read = asyncio.Barrier(2)

    class Slow(KeyStore):
        async def _usable(self, name: str) -> KeyRow:
            row = await super()._usable(name)
            if row.digest == first:
                async with asyncio.timeout(60):
                    await both_have_read.wait()
            return row

    store = Slow(database)
    first = digest_of(secret_of(await store.create("ann", {})))
    made = await asyncio.gather(*(store.rotate("ann", 0) for _ in "ab"), return_exceptions=True)
    [issued] = [one for one in made if isinstance(one, Issued)]
    assert await store.find(digest_of(secret_of(issued))) is not None
    [refused] = [one for one in made if isinstance(one, Conflict)]
    assert refused.code == "conflict"


async def test_revocation_is_for_good(store: KeyStore) -> None:
    secret = secret_of(await store.create("ann", {}))
    await store.rotate("ann", 100)
    revoked = await store.revoke("ann")
    assert revoked.revoked_at is not None
    assert await store.find(digest_of(secret)) is None
    assert (await store.revoke("ann")).revoked_at == revoked.revoked_at
    for work in (store.rotate("ann", 0), store.update("ann", {"priority": 2})):
        with pytest.raises(Conflict) as caught:
            await work
        assert caught.value.code == "key_revoked"


async def test_keys_that_are_not_there(store: KeyStore) -> None:
    for name in ("nobody", "a\0b"):
        for work in (store.rotate(name, 0), store.update(name, {}), store.revoke(name)):
            with pytest.raises(NotFound):
                await work


async def test_pages(store: KeyStore) -> None:
    names = ["a", "b1", "b2", "c", "d"]
    for name in reversed(names):
        await store.create(name, {})
    found, after = [], ""
    while page := await store.page(after, 2):
        found += [key.name for key in page]
        after = page[-1].name
    assert found == names


async def test_there_are_so_many_at_most(store: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.usage.keys.MOST_KEYS", 2)
    await store.create("a", {})
    await store.create("b", {})
    with pytest.raises(Conflict) as caught:
        await store.create("c", {})
    assert caught.value.code == "too_many_keys"
    await store.revoke("a")
    await store.create("c", {})


async def test_what_another_version_wrote(store: KeyStore, database: Database) -> None:
    await store.create("ann", {})
    for spec in (b'{"tomorrow":1}', b"[]", b"{", b"null", b"\xff"):
        await database.write(StatementStep(BREAK, ({"name": "ann", "spec": spec},)))
        key = await store.get("ann")
        assert key is not None
        assert key.spec is None
        assert shown_virtual(key, 0.0)["state"] == "unreadable"
        with pytest.raises(Conflict):
            await store.update("ann", {"priority": 2})
    await store.rotate("ann", 0)
    assert (await store.revoke("ann")).revoked_at is not None


async def test_whoever_listens_hears_of_changes(store: KeyStore) -> None:
    heard: list[str] = []
    store.changed = heard.append
    await store.create("ann", {})
    await store.update("ann", {"priority": 2})
    await store.rotate("ann", 0)
    await store.revoke("ann")
    assert heard == ["ann"] * 4


def test_a_spec_is_what_a_configured_key_has() -> None:
    configured = set(ApiKey.model_fields) - {"name", "key"}
    assert set(KeySpec.model_fields) == configured
    spec = parse_spec(EVERYTHING)
    assert load_spec(stored_spec(spec), spec.expires.timestamp()) == spec  # type: ignore[union-attr]
    assert stored_spec(KeySpec()) == b"{}"
    assert merged(spec, {}) == spec.model_dump(exclude_defaults=True)
    key = key_from("ann", spec)
    assert (key.virtual, key.priority, key.tags) == (True, 3, ("team-a", "prod"))
    assert [(one.period, one.unit, one.most) for one in key.budgets] == [
        ("month", "usd", 50_000_000_000),
        ("day", "tokens", 2_000_000),
    ]
