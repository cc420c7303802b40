"""Conversations: their items in order, and whose turn it is to add to them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from router.dialects.paging import Page, unknown_after
from router.state import conversation_sql as sql
from router.state.database import Database
from router.state.history import MAX_BYTES, too_long
from router.state.items import is_id, item_key, key_of, with_hidden
from router.state.statement import Row, StatementStep, Value

__all__ = ["BUSY", "MAX_ITEMS", "Conversation", "ConversationStore"]

MAX_ITEMS: Final = 100_000
"""The most items of one conversation that a request carries."""

BUSY: Final = 0
"""Instead of a turn's number: it is another router's turn."""

_NONE: Final[Mapping[str, str]] = {}
_MAX_POSITION: Final = 2**62
_AFTER_ALL: Final = 1e15
"""A time later than any, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation without its items; ``created_at`` is in unix seconds."""

    id: str
    created_at: int
    metadata: dict[str, str]


class ConversationStore:
    """The tables of conversations and their items.

    Everything is looked up by owner; a deleted conversation is not there. ``encrypted_reasoning``
    is sealed encrypted reasoning by item id, which only ``history`` and ``find_items`` put back.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self,
        owner: str,
        ident: str,
        created_at: float,
        metadata: Mapping[str, str],
        items: Sequence[dict[str, Any]] = (),
        encrypted_reasoning: Mapping[str, str] = _NONE,
    ) -> Conversation:
        """A new one under a fresh id; ``created_at`` has fractions, since lists go by it."""
        row: dict[str, Value] = {
            "id": ident,
            "owner": owner,
            "created_at": created_at,
            "metadata": orjson.dumps(metadata),
            "count": len(items),
        }
        first: list[Row] = [
            {**item, "position": i}
            for i, item in enumerate(_rows(ident, items, encrypted_reasoning))
        ]
        steps = [StatementStep(sql.CREATE, (row,))]
        if first:
            steps.append(StatementStep(sql.FIRST_ITEMS, first))
        await self._database.write(*steps)
        return Conversation(ident, int(created_at), dict(metadata))

    async def get(self, owner: str, ident: str) -> Conversation | None:
        """This owner's conversation; None where there is none."""
        if not is_id(ident):
            return None
        rows = await self._database.read(sql.GET, id=ident, owner=owner)
        return _conversation(rows[0]) if rows else None

    async def update(
        self, owner: str, ident: str, metadata: Mapping[str, str]
    ) -> Conversation | None:
        """Replace its metadata; None where there is none."""
        row: Row = {"id": ident, "owner": owner, "metadata": orjson.dumps(metadata)}
        if not is_id(ident) or not await self._database.write(
            StatementStep(sql.UPDATE, (row,), guard=True)
        ):
            return None
        return await self.get(owner, ident)

    async def delete(self, owner: str, ident: str) -> bool:
        """Delete it; its items stay until ``purge``. False where there is none."""
        if await self.get(owner, ident) is None:
            return False
        await self._database.write(StatementStep(sql.DELETE, ({"id": ident},)))
        return True

    async def page(self, owner: str, page: Page) -> tuple[list[Conversation], bool]:
        """A page of this owner's, by age, and whether there is more after it.

        Raises InvalidRequest for an ``after`` that never was in the list.
        """
        created_at, ident = (_AFTER_ALL if page.descending else 0.0), ""
        if page.after is not None:
            created_at, ident = await self._age(owner, page.after), page.after
        rows = await self._database.read(
            sql.LIST_DOWN if page.descending else sql.LIST_UP,
            owner=owner,
            created_at=created_at,
            id=ident,
            limit=page.limit + 1,
        )
        return [_conversation(row) for row in rows[: page.limit]], len(rows) > page.limit

    async def add_items(
        self,
        owner: str,
        ident: str,
        items: Sequence[dict[str, Any]],
        encrypted_reasoning: Mapping[str, str] = _NONE,
    ) -> bool:
        """Append these, in this order; False where there is no such conversation."""
        if not is_id(ident):
            return False
        if not items:
            return await self.get(owner, ident) is not None
        job = os.urandom(12).hex()
        rows = [
            {**row, "number": number, "count": len(items), "job": f"{job}.{number}"}
            for number, row in enumerate(_rows(ident, items, encrypted_reasoning))
        ]
        room = {**rows[0], "owner": owner}
        return await self._database.write(
            StatementStep(sql.MAKE_ROOM, (room,), guard=True), StatementStep(sql.ADD_ITEMS, rows)
        )

    async def items(
        self, owner: str, ident: str, page: Page
    ) -> tuple[list[dict[str, Any]], bool] | None:
        """A page of its items, and whether there is more after it; None where there is none.

        Raises InvalidRequest for an ``after`` that is not in it.
        """
        if not is_id(ident):
            return None
        after = "" if page.after is None else item_key(page.after)
        place = await self._database.read(sql.PLACE, id=ident, owner=owner, item=after)
        if not place:
            return None
        first, last = place[0]
        if page.after is None:
            first, last = _MAX_POSITION, -1
        elif first is None:
            raise unknown_after(page.after)
        # Where an id occurs twice the page begins after the farther one, so that paging ends.
        rows = await self._database.read(
            sql.ITEMS_DOWN if page.descending else sql.ITEMS_UP,
            id=ident,
            position=first if page.descending else last,
            limit=page.limit + 1,
        )
        return [orjson.loads(row[0]) for row in rows[: page.limit]], len(rows) > page.limit

    async def item(self, owner: str, ident: str, item: str) -> dict[str, Any] | None:
        """One item; None where there is no such item or conversation."""
        row = await self._item(owner, ident, item)
        return None if row is None else orjson.loads(row[1])

    async def delete_item(self, owner: str, ident: str, item: str) -> bool:
        """Take one item out; False where there is no such item or conversation."""
        row = await self._item(owner, ident, item)
        if row is None:
            return False
        await self._database.write(
            StatementStep(
                sql.DELETE_ITEM, ({"id": ident, "position": row[0], "item": item_key(item)},)
            )
        )
        return True

    async def history(self, owner: str, ident: str) -> list[dict[str, Any]] | None:
        """All its items, hidden reasoning put back; None where there is none.

        Raises InvalidRequest for more than ``MAX_ITEMS`` items or ``MAX_BYTES``.
        """
        if not is_id(ident):
            return None
        rows = await self._database.read(
            sql.HISTORY, id=ident, owner=owner, items=MAX_ITEMS, bytes=MAX_BYTES
        )
        if not rows:
            return None
        count, size, *_ = rows[0]
        if count > MAX_ITEMS or size > MAX_BYTES:
            raise too_long("conversation", f"{MAX_ITEMS} items")
        return [with_hidden(orjson.loads(row[2]), row[3]) for row in rows if count]

    async def begin_turn(
        self,
        owner: str,
        ident: str,
        router: str,
        give_back: Callable[[str, int], object] | None = None,
    ) -> int | None:
        """Take the turn for this router: its number, or ``BUSY``; None where there is none.

        A turn that this same router holds is no obstacle: within a process ``TurnLock`` keeps
        turns apart. ``give_back(ident, number)`` is called for a turn that may have been taken,
        when the caller is cancelled or never hears of it.
        """
        if not is_id(ident):
            return None
        rows = await self._database.read(sql.TURN, id=ident, owner=owner, router=router)
        if not rows:
            return None
        turn, free = rows[0]
        if not free:
            return BUSY
        row = {"id": ident, "router": router, "turn": turn, "next": turn + 1}
        try:
            taken = await self._database.write(StatementStep(sql.BEGIN_TURN, (row,), guard=True))
        except BaseException:
            if give_back is not None:
                give_back(ident, turn + 1)
            raise
        return turn + 1 if taken else BUSY

    def end_turn_steps(
        self,
        ident: str,
        router: str,
        turn: int,
        items: Sequence[dict[str, Any]],
        encrypted_reasoning: Mapping[str, str] = _NONE,
    ) -> tuple[StatementStep, ...]:
        """Steps that append the turn's items and give it back; refused once it was taken over.

        A conversation that was deleted in the meantime is no obstacle.
        """
        row: dict[str, Value] = {
            "id": ident,
            "router": router,
            "turn": turn,
            "count": len(items),
        }
        rows = [
            {**item, "number": number, "turn": turn}
            for number, item in enumerate(_rows(ident, items, encrypted_reasoning))
        ]
        return (
            StatementStep(sql.HOLDS_TURN, (row,), guard=True),
            *([StatementStep(sql.TURN_ITEMS, rows)] if rows else []),
            StatementStep(sql.END_TURN, (row,)),
        )

    def release_turn(self, ident: str, router: str, turn: int) -> asyncio.Future[bool]:
        """Give the turn back without appending, if it is still this one; see ``submit``."""
        row: Row = {"id": ident, "router": router, "turn": turn}
        return self._database.submit(StatementStep(sql.RELEASE_TURN, (row,)))

    async def purge(self, before: float, limit: int) -> int:
        """Remove what was deleted before ``before`` (unix seconds); returns how many.

        Goes ``limit`` conversations at a time, and ``limit`` items to a transaction.
        """
        removed = 0
        while rows := await self._database.read(sql.EXPIRED, before=before, limit=limit):
            for ident, positions in rows:
                for start in range(0, positions, limit):
                    row: Row = {"id": ident, "start": start, "stop": start + limit}
                    await self._database.write(StatementStep(sql.DROP_ITEMS, (row,)))
                await self._database.write(StatementStep(sql.DROP, ({"id": ident},)))
            removed += len(rows)
        return removed

    async def _age(self, owner: str, ident: str) -> float:
        rows = is_id(ident) and await self._database.read(sql.AGE, id=ident, owner=owner)
        if not rows:
            raise unknown_after(ident)
        age: float = rows[0][0]
        return age

    async def _item(self, owner: str, ident: str, item: str) -> tuple[int, bytes] | None:
        if not is_id(ident):
            return None
        rows = await self._database.read(sql.ITEM, id=ident, owner=owner, item=item_key(item))
        return (rows[0][0], rows[0][1]) if rows else None


def _conversation(row: tuple[Any, ...]) -> Conversation:
    ident, created_at, metadata = row
    return Conversation(ident, int(created_at), orjson.loads(metadata))


def _rows(
    ident: str, items: Sequence[dict[str, Any]], encrypted_reasoning: Mapping[str, str]
) -> list[dict[str, Value]]:
    return [
        {
            "id": ident,
            "item": key_of(item),
            "data": orjson.dumps(item),
            "hidden": encrypted_reasoning.get(str(item.get("id"))),
        }
        for item in items
    ]
