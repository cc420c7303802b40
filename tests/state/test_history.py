"""Walking up a chain of responses, on both databases."""

from __future__ import annotations

import pytest

from router.errors import InvalidRequest
from router.state import history
from router.state.database import Database
from router.state.responses import ResponseStore
from tests.support.stored import ids_of, message, reasoning, stored


@pytest.fixture
def responses(database: Database) -> ResponseStore:
    return ResponseStore(database)


async def grow(database: Database, *names: str, parent: str | None = None) -> None:
    """A chain of responses with these names, each with one item in and one out."""
    store = ResponseStore(database)
    for name in names:
        row = stored(
            name,
            given=[message(f"{name}_in")],
            output=[message(f"{name}_out", role="assistant")],
            parent=parent,
        )
        assert await database.write(*store.added(row))
        parent = name


async def history_ids(responses: ResponseStore, ident: str) -> list[str]:
    found = await responses.history("ann", ident)
    assert found is not None
    return ids_of(found.items)


async def test_items_come_oldest_first(database: Database, responses: ResponseStore) -> None:
    await grow(database, "a", "b", "c")
    await grow(database, "d", parent="a")
    assert await history_ids(responses, "c") == ["a_in", "a_out", "b_in", "b_out", "c_in", "c_out"]
    assert await history_ids(responses, "d") == ["a_in", "a_out", "d_in", "d_out"]


async def test_a_long_chain_keeps_its_order(database: Database, responses: ResponseStore) -> None:
    names = [f"resp_{i}" for i in range(200)]
    await grow(database, *names)
    expected = [f"{name}_{side}" for name in names for side in ("in", "out")]
    assert await history_ids(responses, names[-1]) == expected


async def test_status_and_account_are_those_of_the_head(
    database: Database, responses: ResponseStore
) -> None:
    for row in (
        stored("a", account="first"),
        stored("b", parent="a", status="queued", account="second"),
    ):
        await database.write(*responses.added(row))
    found = await responses.history("ann", "b")
    assert found is not None
    assert (found.status, found.account) == ("queued", "second")


async def test_hidden_reasoning_is_put_back(database: Database, responses: ResponseStore) -> None:
    row = stored(
        "a",
        given=[reasoning("rs_0")],
        output=[reasoning("rs_1"), reasoning("rs_2")],
        encrypted_reasoning={"rs_0": "zero", "rs_1": "one"},
    )
    await database.write(*responses.added(row))
    await grow(database, "b", parent="a")
    found = await responses.history("ann", "b")
    assert found is not None
    assert [item.get("encrypted_content") for item in found.items] == [
        "zero",
        "one",
        None,
        None,
        None,
    ]


async def test_deleting_in_the_middle_leaves_the_neighbours(
    database: Database, responses: ResponseStore
) -> None:
    await grow(database, "a", "b", "c", "d")
    await grow(database, "e", parent="b")
    for name in ("b", "c"):
        assert await responses.delete("ann", name)
    assert await history_ids(responses, "d") == ["a_in", "a_out", "d_in", "d_out"]
    assert await history_ids(responses, "e") == ["a_in", "a_out", "e_in", "e_out"]
    assert await responses.delete("ann", "a")
    assert await history_ids(responses, "d") == ["d_in", "d_out"]


async def test_a_response_that_ends_after_its_parent_was_deleted_keeps_what_was_above(
    database: Database, responses: ResponseStore
) -> None:
    await grow(database, "a", "b")
    assert await responses.delete("ann", "b")
    await grow(database, "late", parent="b")
    assert await history_ids(responses, "late") == ["a_in", "a_out", "late_in", "late_out"]


async def test_a_parent_of_another_owner_is_not_followed(
    database: Database, responses: ResponseStore
) -> None:
    theirs = stored("theirs", owner="bob", output=[message("secret")])
    await database.write(*responses.added(theirs))
    await grow(database, "a", parent="theirs")
    assert await history_ids(responses, "a") == ["a_in", "a_out"]


async def test_a_parent_that_is_gone_ends_the_chain(
    database: Database, responses: ResponseStore
) -> None:
    await grow(database, "a", parent="nowhere")
    assert await history_ids(responses, "a") == ["a_in", "a_out"]


async def test_too_many_turns_are_refused(
    database: Database, responses: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_TURNS", 5)
    names = [f"resp_{i}" for i in range(8)]
    await grow(database, *names)
    assert len(await history_ids(responses, names[4])) == 10
    for name in names[5:]:
        with pytest.raises(InvalidRequest) as caught:
            await responses.history("ann", name)
        assert caught.value.code == "context_length_exceeded"
        assert caught.value.param == "previous_response_id"


async def test_too_many_bytes_are_refused_unread(
    database: Database, responses: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await grow(database, "a", "b", "c")
    exactly = 0
    for name in "abc":
        row = await responses.get("ann", name)
        assert row is not None
        exactly += len(row.input) + len(row.output)
    monkeypatch.setattr(history, "MAX_BYTES", exactly)
    assert len(await history_ids(responses, "c")) == 6
    monkeypatch.setattr(history, "MAX_BYTES", exactly - 1)
    with pytest.raises(InvalidRequest):
        await responses.history("ann", "c")
    assert len(await history_ids(responses, "b")) == 4
    monkeypatch.setattr(history, "MAX_BYTES", 10)
    with pytest.raises(InvalidRequest):
        await responses.history("ann", "a")
