"""Conversations and their items, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from router.dialects.paging import Page
from router.errors import InvalidRequest
from router.state import conversations as module
from router.state.conversations import Conversation, ConversationStore
from router.state.database import Database
from router.state.responses import ResponseStore
from router.state.statement import Statement, StatementStep
from tests.support.stored import alive, dead, ids_of, message, reasoning, stored

UP = Page(100, descending=False)
HOSTILE = ["", "\0", "a\0b", "\ud800", "é", "conv_1'--", "x" * 129, "y" * 1_000_000]


@pytest.fixture
def store(database: Database) -> ConversationStore:
    return ConversationStore(database)


async def names(store: ConversationStore, ident: str = "conv_1", page: Page = UP) -> list[str]:
    found = await store.items("ann", ident, page)
    assert found is not None
    return ids_of(found[0])


async def turn(
    database: Database, items: Sequence[dict[str, Any]], **encrypted_reasoning: str
) -> None:
    """A whole turn in conv_1."""
    store = ConversationStore(database)
    await alive(database, "r1")
    number = await store.begin_turn("ann", "conv_1", "r1")
    assert number
    assert await database.write(
        *store.end_turn_steps("conv_1", "r1", number, items, encrypted_reasoning)
    )


async def test_a_conversation_is_made_read_and_changed(store: ConversationStore) -> None:
    items = [message("a"), message("b")]
    made = await store.create("ann", "conv_1", 7.9, {"k": "\0 é"}, items)
    assert made == Conversation("conv_1", 7, {"k": "\0 é"})
    assert await store.get("ann", "conv_1") == made
    assert await names(store) == ["a", "b"]
    changed = Conversation("conv_1", 7, {"other": "1"})
    assert await store.update("ann", "conv_1", {"other": "1"}) == changed
    assert await store.get("ann", "conv_1") == changed


async def test_items_are_kept_in_order(database: Database, store: ConversationStore) -> None:
    await store.create("ann", "conv_1", 1.0, {}, [message("a")])
    assert await store.add_items("ann", "conv_1", [message("c"), message("b")])
    await turn(database, [message("e"), message("d")])
    assert await store.add_items("ann", "conv_1", [])
    assert await store.add_items("ann", "conv_1", [message("f")])
    assert await names(store) == ["a", "c", "b", "e", "d", "f"]


async def test_additions_at_once_are_not_mixed(store: ConversationStore) -> None:
    await store.create("ann", "conv_1", 1.0, {})
    added = [[message(f"{i}_{j}") for j in range(3)] for i in range(12)]
    assert all(await asyncio.gather(*(store.add_items("ann", "conv_1", one) for one in added)))
    found = await names(store)
    assert sorted(found[::3]) == sorted(f"{i}_0" for i in range(12))
    assert [name[:-2] for name in found[1::3]] == [name[:-2] for name in found[::3]]
    assert [name[:-2] for name in found[2::3]] == [name[:-2] for name in found[::3]]


class Twice:
    """A database that runs every job twice, as after a connection that broke in mid-commit.

    ``between`` is somebody else's job, which is run between the two.
    """

    def __init__(self, database: Database, between: Sequence[StatementStep] = ()) -> None:
        self._database = database
        self._between = between

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def write(self, *steps: StatementStep) -> bool:
        """See ``Database.write``."""
        await self._database.write(*steps)
        if self._between:
            await self._database.write(*self._between)
        return await self._database.write(*steps)


class Unwritten(Twice):
    """A database that keeps the steps of its jobs instead of running them."""

    steps: tuple[StatementStep, ...] = ()

    async def write(self, *steps: StatementStep) -> bool:
        """See ``Database.write``."""
        self.steps = steps
        return True


async def test_jobs_that_are_run_twice_work_once(database: Database) -> None:
    await alive(database, "r1", "r2")
    twice: Any = Twice(database)
    store = ConversationStore(twice)
    await store.create("ann", "conv_1", 1.0, {}, [message("a"), message("a")])
    assert await store.add_items("ann", "conv_1", [message("b"), message("b"), message("a")])
    assert await names(store) == ["a", "a", "b", "b", "a"]
    assert await store.update("ann", "conv_1", {"k": "v"}) is not None
    assert await store.delete_item("ann", "conv_1", "a")
    assert await names(store) == ["a", "b", "b", "a"]
    assert await store.begin_turn("ann", "conv_1", "r1") == 1
    assert await twice.write(*store.end_turn_steps("conv_1", "r1", 1, [message("c")]))
    assert await names(store) == ["a", "b", "b", "a", "c"]
    assert await store.delete("ann", "conv_1")


async def test_an_addition_that_is_run_twice_around_another_works_once(
    database: Database,
) -> None:
    store = ConversationStore(database)
    await store.create("ann", "conv_1", 1.0, {})
    unwritten: Any = Unwritten(database)
    assert await ConversationStore(unwritten).add_items("ann", "conv_1", [message("other")])
    twice: Any = Twice(database, unwritten.steps)
    assert await ConversationStore(twice).add_items("ann", "conv_1", [message("a"), message("b")])
    assert await names(store) == ["a", "b", "other"]


async def test_items_are_listed_in_pages(store: ConversationStore) -> None:
    await store.create("ann", "conv_1", 1.0, {}, [message(f"{i}") for i in range(7)])
    assert await store.items("ann", "conv_1", Page(3)) == (
        [message("6"), message("5"), message("4")],
        True,
    )
    assert await names(store, page=Page(4, after="4")) == ["3", "2", "1", "0"]
    for page, more in ((Page(4, after="4"), False), (Page(3, after="4"), True)):
        found = await store.items("ann", "conv_1", page)
        assert found is not None
        assert found[1] is more
    assert await names(store, page=Page(2, descending=False, after="4")) == ["5", "6"]
    assert await names(store, page=Page(2, descending=False, after="6")) == []
    for after in ["nothing", *HOSTILE[1:]]:
        with pytest.raises(InvalidRequest) as caught:
            await store.items("ann", "conv_1", Page(after=after))
        assert caught.value.param == "after"
    assert await store.items("ann", "conv_2", Page(after="4")) is None


@pytest.mark.parametrize("descending", [True, False])
async def test_paging_ends_where_ids_are_repeated(
    store: ConversationStore, descending: bool
) -> None:
    repeated = [message(name) for name in "abababcab"]
    await store.create("ann", "conv_1", 1.0, {}, repeated)
    page, more, rounds = Page(2, descending), True, 0
    while more:
        found = await store.items("ann", "conv_1", page)
        assert found is not None
        items, more = found
        page = Page(2, descending, items[-1]["id"] if items else None)
        rounds += 1
        assert rounds < 10


async def test_single_items_are_read_and_deleted(store: ConversationStore) -> None:
    strange = "a\0 /+=" + "é" * 3000
    items = [message("a", "first"), message(strange), message("a", "second"), message("b")]
    await store.create("ann", "conv_1", 1.0, {}, items)
    await store.create("ann", "conv_2", 2.0, {}, [message("a"), message("c")])
    assert await store.item("ann", "conv_1", "a") == items[0]
    assert await store.item("ann", "conv_1", strange) == items[1]
    for conversation, item in (("conv_1", "c"), ("conv_1", "\ud800"), ("conv_3", "a")):
        assert await store.item("ann", conversation, item) is None
        assert not await store.delete_item("ann", conversation, item)
    assert await store.delete_item("ann", "conv_1", strange)
    assert not await store.delete_item("ann", "conv_1", strange)
    assert await store.delete_item("ann", "conv_1", "a")
    assert await store.item("ann", "conv_1", "a") == items[2]
    assert await names(store) == ["a", "b"]
    assert await names(store, "conv_2") == ["a", "c"]
    assert await store.add_items("ann", "conv_1", [message("z")])
    assert await names(store) == ["a", "b", "z"]


async def test_history_has_the_hidden_reasoning(
    database: Database, store: ConversationStore
) -> None:
    await store.create("ann", "conv_1", 1.0, {})
    assert await store.history("ann", "conv_1") == []
    await turn(database, [message("a"), reasoning("rs_1"), reasoning("rs_2")], rs_1="blob", a="no")
    revealed = {**reasoning("rs_1"), "encrypted_content": "blob"}
    assert await store.history("ann", "conv_1") == [message("a"), revealed, reasoning("rs_2")]
    assert await store.item("ann", "conv_1", "rs_1") == reasoning("rs_1")
    found = await store.items("ann", "conv_1", UP)
    assert found is not None
    assert reasoning("rs_1") in found[0]
    assert await ResponseStore(database).find_items("ann", ["rs_1"]) == {"rs_1": revealed}


async def test_a_long_history_is_refused(
    store: ConversationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create("ann", "conv_1", 1.0, {}, [message("a"), message("b"), message("c")])
    monkeypatch.setattr(module, "MAX_ITEMS", 3)
    assert len(await store.history("ann", "conv_1") or []) == 3
    for bound, value in (("MAX_ITEMS", 2), ("MAX_BYTES", 50)):
        with monkeypatch.context() as patch:
            patch.setattr(module, bound, value)
            with pytest.raises(InvalidRequest) as caught:
                await store.history("ann", "conv_1")
        assert caught.value.code == "context_length_exceeded"
        assert caught.value.param == "conversation"


async def test_references_prefer_responses_and_stay_with_the_owner(
    database: Database, store: ConversationStore
) -> None:
    responses = ResponseStore(database)
    await store.create("bob", "conv_b", 1.0, {}, [message("a", "bob's"), message("c")])
    await store.create("ann", "conv_a", 1.0, {}, [message("a", "hers"), message("b")])
    assert await responses.find_items("ann", ["a", "b", "c"]) == {
        "a": message("a", "hers"),
        "b": message("b"),
    }
    await database.write(*responses.added(stored("resp_1", output=[message("a", "made")])))
    assert (await responses.find_items("ann", ["a"]))["a"] == message("a", "made")


async def test_conversations_are_listed_newest_first(store: ConversationStore) -> None:
    for i in range(5):
        await store.create("ann", f"conv_{i}", 100.0 + i / 10, {})
    await store.create("bob", "conv_b", 100.25, {})

    async def idents(page: Page) -> tuple[list[str], bool]:
        found, more = await store.page("ann", page)
        return [conversation.id for conversation in found], more

    assert await idents(Page(3)) == (["conv_4", "conv_3", "conv_2"], True)
    assert await idents(Page(2, after="conv_2")) == (["conv_1", "conv_0"], False)
    assert await idents(Page(2, descending=False, after="conv_2")) == (["conv_3", "conv_4"], False)
    assert await store.delete("ann", "conv_2")
    assert await idents(Page(9, after="conv_2")) == (["conv_1", "conv_0"], False)
    assert await idents(Page(9)) == (["conv_4", "conv_3", "conv_1", "conv_0"], False)
    for after in ["conv_b", "nothing", *HOSTILE[1:]]:
        with pytest.raises(InvalidRequest):
            await idents(Page(after=after))


async def test_what_is_not_there_is_not_found(store: ConversationStore) -> None:
    await store.create("ann", "conv_1", 1.0, {}, [message("a")])
    missing = [("bob", "conv_1"), ("ann", "conv_2"), *(("ann", ident) for ident in HOSTILE)]
    assert await store.delete("ann", "conv_1")
    for owner, ident in [*missing, ("ann", "conv_1")]:
        assert await store.get(owner, ident) is None
        assert await store.update(owner, ident, {}) is None
        assert not await store.delete(owner, ident)
        assert not await store.add_items(owner, ident, [message("x")])
        assert not await store.add_items(owner, ident, [])
        assert await store.items(owner, ident, Page()) is None
        assert await store.item(owner, ident, "a") is None
        assert not await store.delete_item(owner, ident, "a")
        assert await store.history(owner, ident) is None
        assert await store.begin_turn(owner, ident, "r1") is None


async def test_purge_takes_what_was_deleted_and_nothing_else(
    database: Database, store: ConversationStore
) -> None:
    await alive(database, "r1")
    for i in range(5):
        items = [message(f"{i}_{j}") for j in range(7)]
        await store.create("ann", f"conv_{i}", 1.0, {}, items)
    assert await store.begin_turn("ann", "conv_3", "r1") == 1
    for i in (0, 1, 3):
        assert await store.delete("ann", f"conv_{i}")
    assert await store.purge(10.0, 3) == 0
    assert await store.purge(1e12, 3) == 2
    left = await database.read(Statement("SELECT DISTINCT conversation FROM conversation_items"))
    assert {row[0] for row in left} == {"conv_2", "conv_3", "conv_4"}
    await dead(database, "r1")
    assert await store.purge(1e12, 3) == 1
