"""Storing, finding, deleting and purging responses, on both databases."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from router.errors import InvalidRequest
from router.state import references
from router.state.database import Database
from router.state.items import ENCRYPTED, item_ids
from router.state.responses import ResponseStore, StoredResponse
from router.state.statement import Statement
from tests.support.stored import message, reasoning, stored

HOSTILE = ["", "\0", "a\0b", "\ud800", "é", "resp_1'--", "x" * 129, "y" * 3_000_000, "%", "_ "]


@pytest.fixture
def responses(database: Database) -> ResponseStore:
    return ResponseStore(database)


async def keep(database: Database, *rows: StoredResponse) -> None:
    store = ResponseStore(database)
    for row in rows:
        assert await database.write(*store.added(row))


async def test_a_response_comes_back_as_it_was(
    database: Database, responses: ResponseStore
) -> None:
    output = [message("msg_2", "Hello \0 \U0001f600", "assistant")]
    row = stored("resp_1", given=[message("msg_1")], output=output, account="acc", parent="resp_0")
    await keep(database, row)
    found = await responses.get("ann", "resp_1")
    assert found is not None
    assert orjson.loads(found.public()) == {
        "id": "resp_1",
        "object": "response",
        "created_at": 1000,
        "status": "completed",
        "previous_response_id": "resp_0",
        "output": output,
        "output_text": "Hello \0 \U0001f600",
        "usage": None,
    }
    assert found.input_items() == [message("msg_1")]
    chain = await responses.history("ann", "resp_1")
    assert chain is not None
    assert chain.items == [message("msg_1"), *output]
    assert (found.account, found.parent, found.background, found.resumable) == (
        "acc",
        "resp_0",
        False,
        False,
    )


async def test_hidden_reasoning_is_shown_only_where_it_is_asked_for(
    database: Database, responses: ResponseStore
) -> None:
    odd: list[Any] = [{"type": "reasoning", "id": ["no id"]}, "no item", {"type": "message"}]
    row = stored(
        "resp_1",
        given=[reasoning("rs_0")],
        output=[reasoning("rs_1"), reasoning("rs_2"), message("msg_1", role="assistant"), *odd],
        encrypted_reasoning={"rs_0": "pm1.a.0", "rs_1": "pm1.a.1", "msg_1": "never"},
    )
    await keep(database, row)
    found = await responses.get("ann", "resp_1")
    assert found is not None
    assert orjson.loads(found.public())["output"][0] == reasoning("rs_1")
    assert found.input_items() == [reasoning("rs_0")]
    shown = orjson.loads(found.public({ENCRYPTED}))["output"]
    assert shown[0] == {**reasoning("rs_1"), "encrypted_content": "pm1.a.1"}
    assert shown[1:3] == [reasoning("rs_2"), message("msg_1", role="assistant")]
    chain = await responses.history("ann", "resp_1")
    assert chain is not None
    blobs = [item.get("encrypted_content") for item in chain.items]
    assert blobs[:4] == ["pm1.a.0", "pm1.a.1", None, None]
    assert found.input_items({ENCRYPTED})[0]["encrypted_content"] == "pm1.a.0"


async def test_a_run_is_finished_in_place(database: Database, responses: ResponseStore) -> None:
    given = [message("msg_1")]
    await keep(database, stored("resp_1", given=given, status="queued", background=True))
    end = stored(
        "resp_1",
        given=given,
        output=[reasoning("rs_1")],
        encrypted_reasoning={"rs_1": "blob"},
        account="acc",
        background=True,
    )
    for _ in range(2):
        assert await database.write(*responses.finished(end))
    found = await responses.get("ann", "resp_1")
    assert found is not None
    assert (found.status, found.account, found.background) == ("completed", "acc", True)
    assert await responses.find_items("ann", ["msg_1", "rs_1"]) == {
        "msg_1": given[0],
        "rs_1": {**reasoning("rs_1"), "encrypted_content": "blob"},
    }


async def test_the_status_of_the_row_wins(database: Database, responses: ResponseStore) -> None:
    row = stored("resp_1", status="in_progress")
    row.status = "cancelled"
    await keep(database, row)
    found = await responses.get("ann", "resp_1")
    assert found is not None
    assert orjson.loads(found.public())["status"] == "cancelled"


async def test_another_owners_response_does_not_exist(
    database: Database, responses: ResponseStore
) -> None:
    await keep(database, stored("resp_1", output=[message("msg_1")]))
    assert await responses.get("bob", "resp_1") is None
    assert await responses.history("bob", "resp_1") is None
    assert not await responses.delete("bob", "resp_1")
    assert await responses.find_items("bob", ["msg_1"]) == {}
    assert [row async for row in responses.export("bob")] == []
    assert await responses.get("ann", "resp_1") is not None


async def test_ids_that_cannot_be_are_not_found(
    database: Database, responses: ResponseStore
) -> None:
    await keep(database, stored("resp_1", output=[message("msg_1")]))
    for ident in HOSTILE:
        assert await responses.get("ann", ident) is None
        assert await responses.history("ann", ident) is None
        assert not await responses.delete("ann", ident)
    assert await responses.find_items("ann", HOSTILE) == {}


async def test_items_with_strange_ids_are_found_all_the_same(
    database: Database, responses: ResponseStore
) -> None:
    strange = ["a\0b", "x" * 5000, "with space/+=", "é"]
    await keep(database, stored("resp_1", output=[message(ident) for ident in strange]))
    found = await responses.find_items("ann", strange)
    assert found == {ident: message(ident) for ident in strange}


async def test_an_item_is_taken_from_the_response_that_made_it(
    database: Database, responses: ResponseStore
) -> None:
    again = {**message("msg_1"), "role": "developer"}
    await keep(
        database,
        stored("resp_a", given=[again, reasoning("rs_1")], output=[message("msg_a")]),
        stored(
            "resp_m",
            output=[message("msg_1"), reasoning("rs_1")],
            encrypted_reasoning={"rs_1": "blob"},
        ),
        stored("resp_z", given=[again, reasoning("rs_1")], output=[message("msg_z")]),
    )
    assert await responses.find_items("ann", ["msg_a", "msg_1", "rs_1", "msg_z"]) == {
        "msg_a": message("msg_a"),
        "msg_z": message("msg_z"),
        "msg_1": message("msg_1"),
        "rs_1": {**reasoning("rs_1"), "encrypted_content": "blob"},
    }
    assert await responses.delete("ann", "resp_m")
    assert await responses.find_items("ann", ["msg_1"]) == {"msg_1": again}


async def test_items_are_found_by_ids_that_tell_where_they_are(
    database: Database, responses: ResponseStore
) -> None:
    one, other = f"resp_{'a' * 48}", f"resp_{'b' * 48}"
    new_id = item_ids(one)
    given = [message(new_id("msg_")), reasoning(new_id("rs_")), message("msg_own")]
    ids = [item["id"] for item in given]
    assert ids == [f"msg_{'a' * 48}", f"rs_{'a' * 48}_1", "msg_own"]
    await keep(database, stored(one, given=given, output=[message("msg_made", "x", "assistant")]))
    await keep(database, stored(other, given=[message(ids[0], "sent again")]))
    rows = await database.read(Statement("SELECT item, response FROM response_items"))
    # Only what could not be found otherwise is written down.
    assert sorted(rows) == sorted([("msg_made", one), ("msg_own", one), (ids[0], other)])
    wanted = [*ids, f"msg_{'a' * 48}_7", f"msg_{'c' * 48}"]
    assert await responses.find_items("ann", wanted) == {item["id"]: item for item in given}
    assert await responses.find_items("bob", wanted) == {}
    assert await responses.delete("ann", one)
    assert await responses.find_items("ann", wanted) == {ids[0]: message(ids[0], "sent again")}


async def test_many_items_are_found_at_once(database: Database, responses: ResponseStore) -> None:
    rows = [stored(f"resp_{i}", output=[message(f"msg_{i}")]) for i in range(120)]
    await asyncio.gather(*(keep(database, row) for row in rows))
    wanted = [f"msg_{i}" for i in range(500)]
    assert set(await responses.find_items("ann", wanted)) == {f"msg_{i}" for i in range(120)}
    with pytest.raises(InvalidRequest):
        await responses.find_items("ann", [f"msg_{i}" for i in range(references.MAX_IDS + 1)])


async def test_references_to_too_much_are_refused_unread(
    database: Database, responses: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "MAX_BYTES", 20_000)
    big = [stored(f"resp_{i}", output=[message(f"msg_{i}", "x" * 9000)]) for i in range(3)]
    await keep(database, *big)
    assert len(await responses.find_items("ann", ["msg_0", "msg_1"])) == 2
    with pytest.raises(InvalidRequest) as caught:
        await responses.find_items("ann", ["msg_0", "msg_1", "msg_2"])
    assert caught.value.code == "context_length_exceeded"


async def test_what_is_deleted_is_gone(database: Database, responses: ResponseStore) -> None:
    secret = message("msg_1", "secret")
    row = stored("resp_1", given=[secret], output=[message("msg_2", "secret", "assistant")])
    await keep(database, row, stored("resp_2", output=[message("msg_3")]))
    assert await responses.delete("ann", "resp_1")
    assert not await responses.delete("ann", "resp_1")
    assert await responses.get("ann", "resp_1") is None
    assert await responses.history("ann", "resp_1") is None
    assert set(await responses.find_items("ann", ["msg_1", "msg_2", "msg_3"])) == {"msg_3"}
    assert [row.id async for row in responses.export("ann")] == ["resp_2"]
    left = await database.read(Statement("SELECT body, input, output, hidden FROM responses"))
    assert b"secret" not in b"".join([cell or b"" for row in left for cell in row])


async def test_a_late_write_does_not_bring_a_deleted_response_back(
    database: Database, responses: ResponseStore
) -> None:
    row = stored("resp_1", status="in_progress")
    await keep(database, row)
    assert await responses.delete("ann", "resp_1")
    await keep(database, row)
    await database.write(*responses.finished(stored("resp_1", output=[message("msg_1")])))
    assert await responses.get("ann", "resp_1") is None
    assert await responses.find_items("ann", ["msg_1"]) == {}


async def test_export_yields_everything_of_one_owner(
    database: Database, responses: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.state.responses._EXPORT_WINDOW", 3)
    names = [f"resp_{i:02}" for i in range(10)]
    for i, name in enumerate(names):
        await keep(database, stored(name, owner="bob" if 3 <= i < 7 else "ann"))
    assert [row.id async for row in responses.export("ann")] == names[:3] + names[7:]


async def test_purge_takes_old_chains_and_leaves_what_is_built_on(
    database: Database, responses: ResponseStore
) -> None:
    await keep(
        database,
        stored("resp_a1", created_at=1, output=[message("msg_1")]),
        stored("resp_a2", created_at=2, parent="resp_a1"),
        stored("resp_a3", created_at=3, parent="resp_a2"),
        stored("resp_b1", created_at=4),
        stored("resp_b2", created_at=50, parent="resp_b1"),
        stored("resp_run", created_at=5, status="in_progress"),
        stored("resp_queued", created_at=5, status="queued"),
        stored("resp_edge", created_at=10),
    )
    assert await responses.purge(10, 2) == 3
    left = {row.id async for row in responses.export("ann")}
    assert left == {"resp_b1", "resp_b2", "resp_run", "resp_queued", "resp_edge"}
    assert await responses.find_items("ann", ["msg_1"]) == {}
    assert await database.read(Statement("SELECT 1 FROM response_items")) == []
    assert await responses.purge(10, 2) == 0


async def test_purge_goes_on_past_a_page_of_what_has_to_stay(
    database: Database, responses: ResponseStore
) -> None:
    await keep(database, stored("resp_old", created_at=1))
    for i in range(6):
        await keep(database, stored(f"resp_{i}", created_at=5, status="queued"))
    assert await responses.purge(10, 2) == 1


async def test_purge_takes_the_remains_of_deleted_responses(
    database: Database, responses: ResponseStore
) -> None:
    await keep(database, stored("resp_1", created_at=1))
    await responses.delete("ann", "resp_1")
    assert await responses.purge(10, 100) == 1
    assert await database.read(Statement("SELECT 1 FROM responses")) == []
