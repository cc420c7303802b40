"""Turns in conversations: one at a time, in order, and never lost, on both databases."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from router.dialects.paging import Page
from router.errors import Conflict, StateUnavailable
from router.state.conversations import BUSY, ConversationStore
from router.state.database import Database
from router.state.statement import Statement, StatementStep
from router.state.turn_lock import Turn, TurnLock
from tests.support.stored import alive, dead, ids_of, message

TIMEOUT = 20.0
ALL = Page(100, descending=False)


@pytest.fixture
async def conversations(database: Database) -> ConversationStore:
    await alive(database, "r1", "r2")
    store = ConversationStore(database)
    await store.create("ann", "conv_1", 1.0, {})
    return store


async def taken(lock: TurnLock, timeout: float = TIMEOUT) -> Turn:
    turn = await lock.acquire("ann", "conv_1", timeout)
    assert turn is not None
    return turn


async def holder(database: Database) -> str | None:
    rows = await database.read(Statement("SELECT turn_holder FROM conversations ORDER BY id"))
    found: str | None = rows[0][0]
    return found


async def names(conversations: ConversationStore) -> list[str]:
    found = await conversations.items("ann", "conv_1", ALL)
    assert found is not None
    return ids_of(found[0])


async def test_a_turn_appends_and_is_over(
    database: Database, conversations: ConversationStore
) -> None:
    lock = TurnLock(conversations, "r1")
    turn = await taken(lock)
    assert await holder(database) == "r1"
    assert await database.write(*turn.steps([message("a"), message("b")]))
    assert await holder(database) is None
    turn.release()
    turn.release()
    assert await names(conversations) == ["a", "b"]
    (await taken(lock)).release()


async def test_a_job_that_is_run_twice_appends_once(
    database: Database, conversations: ConversationStore
) -> None:
    turn = await taken(TurnLock(conversations, "r1"))
    steps = turn.steps([message("a")])
    assert await database.write(*steps)
    assert await database.write(*steps)
    assert await conversations.begin_turn("ann", "conv_1", "r2") == turn.number + 1
    assert await database.write(*steps)
    assert await names(conversations) == ["a"]
    assert await holder(database) == "r2"


async def test_a_turn_without_items_ends(
    database: Database, conversations: ConversationStore
) -> None:
    turn = await taken(TurnLock(conversations, "r1"))
    assert await database.write(*turn.steps([]))
    assert await holder(database) is None


async def test_a_turn_that_was_taken_over_is_refused(
    database: Database, conversations: ConversationStore
) -> None:
    stalled = await taken(TurnLock(conversations, "r1"))
    await dead(database, "r1")
    other = await taken(TurnLock(conversations, "r2"))
    await alive(database, "r1")
    assert not await database.write(*stalled.steps([message("late")]))
    stalled.release()
    assert await holder(database) == "r2"
    assert await database.write(*other.steps([message("a")]))
    assert not await database.write(*stalled.steps([message("late")]))
    assert await names(conversations) == ["a"]


async def test_a_late_turn_is_refused_although_nobody_took_over_in_its_name(
    database: Database, conversations: ConversationStore
) -> None:
    first = await taken(TurnLock(conversations, "r1"))
    first.release()
    second = await taken(TurnLock(conversations, "r2"))
    second.release()
    assert await database.write(*(await taken(TurnLock(conversations, "r1"))).steps([message("a")]))
    for late in (first, second):
        assert not await database.write(*late.steps([message("late")]))
    assert await names(conversations) == ["a"]


async def test_another_routers_turn_is_waited_for(
    database: Database, conversations: ConversationStore
) -> None:
    turn = await taken(TurnLock(conversations, "r1"))
    waiting = asyncio.ensure_future(taken(TurnLock(conversations, "r2")))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    assert await database.write(*turn.steps([message("a")]))
    assert (await waiting).number == turn.number + 1


@pytest.mark.parametrize("other", ["r1", "r2"])
async def test_whoever_waits_too_long_is_refused(
    database: Database, conversations: ConversationStore, other: str
) -> None:
    mine = TurnLock(conversations, "r1")
    turn = await taken(mine)
    theirs = mine if other == "r1" else TurnLock(conversations, "r2")
    for timeout in (0.0, 0.05):
        with pytest.raises(Conflict) as caught:
            await taken(theirs, timeout)
        assert caught.value.code == "conversation_locked"
    turn.release()
    (await taken(theirs)).release()


async def test_turns_are_given_in_the_order_of_asking(
    database: Database, conversations: ConversationStore
) -> None:
    lock = TurnLock(conversations, "r1")
    order: list[int] = []

    async def answer(number: int) -> None:
        turn = await taken(lock)
        try:
            order.append(number)
            assert await database.write(*turn.steps([message(f"{number}")]))
        finally:
            turn.release()

    await asyncio.gather(*(answer(number) for number in range(20)))
    assert order == list(range(20))
    assert await names(conversations) == [f"{number}" for number in range(20)]


async def test_two_routers_never_mix_their_turns(
    database: Database, conversations: ConversationStore
) -> None:
    locks = [TurnLock(conversations, "r1"), TurnLock(conversations, "r2")]
    inside = 0

    async def answer(number: int) -> None:
        nonlocal inside
        turn = await taken(locks[number % 2])
        try:
            assert inside == 0
            inside += 1
            await asyncio.sleep(0.001)
            inside -= 1
            items = [message(f"{number}_in"), message(f"{number}_out")]
            assert await database.write(*turn.steps(items))
        finally:
            turn.release()

    await asyncio.gather(*(answer(number) for number in range(12)))
    found = await names(conversations)
    assert len(found) == 24
    assert all(
        first.removesuffix("_in") == second.removesuffix("_out")
        for first, second in zip(found[::2], found[1::2], strict=True)
    )


async def test_whoever_is_cancelled_leaves_nobody_waiting(
    database: Database, conversations: ConversationStore
) -> None:
    lock = TurnLock(conversations, "r1")
    turn = await taken(lock)
    waiting = [asyncio.ensure_future(taken(lock)) for _ in range(5)]
    await asyncio.sleep(0)
    for task in (waiting[0], waiting[2], waiting[4]):
        task.cancel()
    await asyncio.sleep(0)
    turn.release()
    for task in (waiting[1], waiting[3]):
        (await task).release()
    assert [task.cancelled() for task in waiting] == [True, False, True, False, True]
    (await taken(TurnLock(conversations, "r2"))).release()


async def test_a_turn_is_not_kept_by_whoever_was_cancelled_on_the_way_to_it(
    database: Database, conversations: ConversationStore
) -> None:
    lock = TurnLock(conversations, "r1")
    for pauses in range(12):
        task = asyncio.ensure_future(taken(lock))
        for _ in range(pauses):
            await asyncio.sleep(0.0003)
        if not task.cancel():
            task.result().release()
        with suppress(asyncio.CancelledError):
            (await task).release()
        (await taken(TurnLock(conversations, "r2"), 5.0)).release()


async def test_what_a_router_left_behind_in_its_own_name_is_free_to_it(
    database: Database, conversations: ConversationStore
) -> None:
    await taken(TurnLock(conversations, "r1"))
    (await taken(TurnLock(conversations, "r1"), 0.0)).release()


async def test_there_is_no_turn_in_what_is_not_there(
    database: Database, conversations: ConversationStore
) -> None:
    lock = TurnLock(conversations, "r1")
    assert await lock.acquire("bob", "conv_1", TIMEOUT) is None
    assert await lock.acquire("ann", "conv_2", TIMEOUT) is None
    assert await lock.acquire("ann", "\0", TIMEOUT) is None
    turn = await taken(lock)
    assert await conversations.delete("ann", "conv_1")
    assert await database.write(*turn.steps([message("a")]))
    turn.release()
    assert await lock.acquire("ann", "conv_1", TIMEOUT) is None


async def test_one_conversation_does_not_wait_for_another(
    database: Database, conversations: ConversationStore
) -> None:
    await conversations.create("ann", "conv_2", 2.0, {})
    lock = TurnLock(conversations, "r1")
    first = await taken(lock)
    second = await lock.acquire("ann", "conv_2", 0.0)
    assert second is not None
    second.release()
    first.release()


async def test_begin_turn_says_busy(database: Database, conversations: ConversationStore) -> None:
    assert await conversations.begin_turn("ann", "conv_1", "r1") == 1
    assert await conversations.begin_turn("ann", "conv_1", "r2") == BUSY
    await conversations.release_turn("conv_1", "r1", 1)
    assert await conversations.begin_turn("ann", "conv_1", "r2") == 2
    await conversations.release_turn("conv_1", "r1", 1)
    assert await holder(database) == "r2"


class Interrupted:
    """A database that can be down for ``submit``, and keep what it says to ``write`` for itself."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.down = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def write(self, *steps: StatementStep) -> bool:
        """See ``Database.write``."""
        written = await self._database.write(*steps)
        if self.down:
            raise StateUnavailable("down")
        return written

    def submit(self, *steps: StatementStep, heard: bool = True) -> asyncio.Future[bool]:
        """See ``Database.submit``."""
        if not self.down:
            return self._database.submit(*steps, heard=heard)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        answer.set_exception(StateUnavailable("down"))
        return answer


async def test_a_turn_that_could_not_be_given_back_is_given_back_later(
    database: Database, conversations: ConversationStore
) -> None:
    interrupted: Any = Interrupted(database)
    store = ConversationStore(interrupted)
    await store.create("ann", "conv_2", 2.0, {})
    lock = TurnLock(store, "r1")
    turn = await taken(lock)
    interrupted.down = True
    turn.release()
    await asyncio.sleep(0)
    interrupted.down = False
    other = await lock.acquire("ann", "conv_2", TIMEOUT)
    assert other is not None
    other.release()
    (await taken(TurnLock(conversations, "r2"), 5.0)).release()


async def test_a_turn_that_was_begun_unheard_is_given_back_later(
    database: Database, conversations: ConversationStore
) -> None:
    interrupted: Any = Interrupted(database)
    store = ConversationStore(interrupted)
    await store.create("ann", "conv_2", 2.0, {})
    lock = TurnLock(store, "r1")
    interrupted.down = True
    with pytest.raises(StateUnavailable):
        await taken(lock)
    assert await holder(database) == "r1"
    interrupted.down = False
    other = await lock.acquire("ann", "conv_2", TIMEOUT)
    assert other is not None
    other.release()
    (await taken(TurnLock(conversations, "r2"), 5.0)).release()
