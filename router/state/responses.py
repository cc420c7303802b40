"""Stored responses: written in one step of the request, read by their owner only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from router.dialects.responses.response_messages import (
    INPUT_MESSAGES,
    OUTPUT_MESSAGES,
    output_messages,
)
from router.response.builder import output_text
from router.state.database import Database
from router.state.history import ResponseHistory, read_history
from router.state.items import ENCRYPTED, PLAIN_ID, is_id, item_key, items_with, origin
from router.state.references import find_items
from router.state.statement import Row, Statement, StatementStep

__all__ = ["ResponseStore", "StoredResponse"]

_EXPORT_WINDOW: Final = 1000

_COLUMNS: Final = (
    "id, owner, status, created_at, background, resumable, parent, conversation, account, "
    "body, input, output, hidden"
)
_ADD: Final = Statement(
    f"""
    INSERT INTO responses ({_COLUMNS})
    VALUES (:id, :owner, :status, :created_at, :background, :resumable, :parent, :conversation,
            :account, :body, :input, :output, :hidden)
    ON CONFLICT (id) DO NOTHING
    """
)
_ADD_ITEMS: Final = Statement(
    """
    INSERT INTO response_items (item, owner, sent, response)
    VALUES (:item, :owner, :sent, :response)
    ON CONFLICT (item, owner, sent, response) DO NOTHING
    """
)
_FINISH: Final = Statement(
    """
    UPDATE responses
    SET status = :status, body = :body, output = :output, hidden = :hidden, account = :account
    WHERE id = :id AND status <> 'deleted'
    """
)
_GET: Final = Statement(
    f"SELECT {_COLUMNS} FROM responses WHERE id = :id AND owner = :owner AND status <> 'deleted'"
)
_LAST_IN: Final = Statement(
    f"""
    SELECT {_COLUMNS} FROM responses
    WHERE conversation = :conversation AND owner = :owner AND status <> 'deleted'
    ORDER BY created_at DESC, id DESC LIMIT 1
    """
)
_EXISTS: Final = Statement(
    "SELECT 1 FROM responses WHERE id = :id AND owner = :owner AND status <> 'deleted'"
)
_ADOPT_CHILDREN: Final = Statement(
    """
    UPDATE responses
    SET parent = (SELECT gone.parent FROM responses gone WHERE gone.id = :id)
    WHERE parent = :id
    """
)
_EMPTY: Final = Statement(
    """
    UPDATE responses
    SET status = 'deleted', conversation = NULL, account = NULL,
        body = :nothing, input = :nothing, output = :nothing, hidden = NULL
    WHERE id = :id
    """
)
_DROP_ITEMS: Final = Statement("DELETE FROM response_items WHERE response = :id")
_DROP_EVENTS: Final = Statement("DELETE FROM events WHERE response = :id")
_DROP_RUN: Final = Statement("DELETE FROM runs WHERE id = :id")
_OLDER: Final = Statement(
    """
    SELECT created_at, id FROM responses WHERE (created_at, id) < (:created_at, :id)
    ORDER BY created_at DESC, id DESC LIMIT :limit
    """
)
_REMOVE_UNUSED: Final = Statement(
    """
    DELETE FROM responses
    WHERE id = :id AND status NOT IN ('queued', 'in_progress')
      AND NOT EXISTS (SELECT 1 FROM responses child WHERE child.parent = :id)
    """
)
_WINDOW: Final = Statement(
    "SELECT id, owner FROM responses WHERE id > :after ORDER BY id LIMIT :limit"
)


@dataclass(slots=True)
class StoredResponse:
    """A row of ``responses``, made by ``of``.

    ``body`` is the Response object as JSON without ``output`` and what is made of it: its text, and
    its messages where the client wanted them. What the model was given stays in it, as messages:
    of a history that is deleted or goes on they could not be made again. ``input`` and
    ``output`` are JSON arrays of items, ``input`` of this request's own with their ids.
    ``encrypted_reasoning`` is a JSON object: sealed encrypted reasoning, which the client did not
    ask for, by item id. ``resumable`` says that its stream can be replayed, ``account`` which
    endpoint account answered. ``created_at`` is in unix seconds. ``made`` and ``sent`` are the
    items in ``output`` and ``input``; None where they are not at hand.
    """

    id: str
    owner: str
    status: str
    created_at: int
    background: bool
    resumable: bool
    parent: str | None
    conversation: str | None
    account: str | None
    body: bytes
    input: bytes
    output: bytes
    encrypted_reasoning: bytes | None
    made: Sequence[Any] | None = None
    sent: Sequence[Any] | None = None

    @classmethod
    def of(
        cls,
        response: dict[str, Any],
        *,
        owner: str,
        request_items: Sequence[dict[str, Any]],
        encrypted_reasoning: Mapping[str, str],
        parent: str | None,
        conversation: str | None,
        account: str | None,
        background: bool,
        resumable: bool,
    ) -> StoredResponse:
        """The row for this Response object; ``request_items`` are the request's, with their ids."""
        body = dict(response)
        output = body.pop("output", [])
        body.pop("output_text", None)
        if body.get(INPUT_MESSAGES) is not None:
            body.pop(OUTPUT_MESSAGES, None)
        return cls(
            id=body["id"],
            owner=owner,
            status=body["status"],
            created_at=int(body["created_at"]),
            background=background,
            resumable=resumable,
            parent=parent,
            conversation=conversation,
            account=account,
            body=orjson.dumps(body),
            input=orjson.dumps(request_items),
            output=orjson.dumps(output),
            encrypted_reasoning=orjson.dumps(encrypted_reasoning) if encrypted_reasoning else None,
            made=output,
            sent=request_items,
        )

    def public(self, include: Container[str] = ()) -> bytes:
        """The Response object as JSON; hidden reasoning is in it where ``include`` asks for it."""
        output = items_with(self.output, self.encrypted_reasoning if ENCRYPTED in include else None)
        response = {
            **orjson.loads(self.body),
            "status": self.status,
            "output": output,
            "output_text": output_text(output),
        }
        if response.get(INPUT_MESSAGES) is not None:
            response[OUTPUT_MESSAGES] = output_messages(output)
        return orjson.dumps(response)

    def input_items(self, include: Container[str] = ()) -> list[dict[str, Any]]:
        """The items that came with the request, in order; ``include`` as in ``public``."""
        return items_with(self.input, self.encrypted_reasoning if ENCRYPTED in include else None)


class ResponseStore:
    """The table of responses and the index of their items.

    ``added`` and ``finished`` are steps for a job of the caller's, so that what belongs together
    is committed together. Everything that is read is looked up by owner.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def added(self, stored: StoredResponse) -> tuple[StatementStep, ...]:
        """Steps that insert it, for a whole response or one that only begins."""
        row: Row = {
            "id": stored.id,
            "owner": stored.owner,
            "status": stored.status,
            "created_at": stored.created_at,
            "background": int(stored.background),
            "resumable": int(stored.resumable),
            "parent": stored.parent,
            "conversation": stored.conversation,
            "account": stored.account,
            "body": stored.body,
            "input": stored.input,
            "output": stored.output,
            "hidden": stored.encrypted_reasoning,
        }
        return StatementStep(_ADD, (row,)), *_index(stored, sent=True)

    def finished(self, stored: StoredResponse) -> tuple[StatementStep, ...]:
        """Steps that bring an existing row to its end: status, body, output, account."""
        row: Row = {
            "id": stored.id,
            "status": stored.status,
            "account": stored.account,
            "body": stored.body,
            "output": stored.output,
            "hidden": stored.encrypted_reasoning,
        }
        return StatementStep(_FINISH, (row,)), *_index(stored, sent=False)

    async def get(self, owner: str, ident: str) -> StoredResponse | None:
        """This owner's response; None where there is none."""
        if not is_id(ident):
            return None
        rows = await self._database.read(_GET, id=ident, owner=owner)
        return _stored(rows[0]) if rows else None

    async def last_in(self, owner: str, conversation: str) -> StoredResponse | None:
        """The last response of this owner's conversation; None where there is none."""
        if not is_id(conversation):
            return None
        rows = await self._database.read(_LAST_IN, conversation=conversation, owner=owner)
        return _stored(rows[0]) if rows else None

    async def delete(self, owner: str, ident: str) -> bool:
        """Delete it, with its run and events; False where there is none.

        What continued it continues its parent from then on.
        """
        if not is_id(ident) or not await self._database.read(_EXISTS, id=ident, owner=owner):
            return False
        row: Row = {"id": ident, "nothing": b"[]"}
        await self._database.write(
            *[
                StatementStep(statement, (row,))
                for statement in (_ADOPT_CHILDREN, _EMPTY, _DROP_ITEMS, _DROP_EVENTS, _DROP_RUN)
            ]
        )
        return True

    async def history(self, owner: str, ident: str) -> ResponseHistory | None:
        """See ``router.state.history.read_history``."""
        return await read_history(self._database, owner, ident)

    async def find_items(self, owner: str, ids: Collection[str]) -> dict[str, dict[str, Any]]:
        """See ``router.state.references.find_items``."""
        return await find_items(self._database, owner, ids)

    async def purge(self, before: int, limit: int) -> int:
        """Remove what was created before ``before`` (unix seconds); returns how many rows.

        Unfinished responses stay, and those that another one continues. Goes from the newest to
        the oldest, so that a chain is taken up from its end, ``limit`` rows to a transaction.
        """
        removed = 0
        place: Row = {"created_at": before, "id": "", "limit": limit}
        while page := await self._database.read(_OLDER, **place):
            await self._database.write(
                StatementStep(_REMOVE_UNUSED, [{"id": row[1]} for row in page])
            )
            left = await self._database.read(_OLDER, **place)
            removed += len(set(page).difference(left))
            created_at, ident = page[-1]
            place = {"created_at": created_at, "id": ident, "limit": limit}
        return removed

    async def export(self, owner: str) -> AsyncIterator[StoredResponse]:
        """Every response of this owner, in the order of ids, one at a time in memory."""
        after = ""
        while window := await self._database.read(_WINDOW, after=after, limit=_EXPORT_WINDOW):
            after = window[-1][0]
            for ident in [ident for ident, whose in window if whose == owner]:
                stored = await self.get(owner, ident)
                if stored is not None:
                    yield stored


def _stored(row: tuple[Any, ...]) -> StoredResponse:
    ident, owner, status, created_at, background, resumable, *rest = row
    return StoredResponse(
        ident, owner, status, created_at, bool(background), bool(resumable), *rest
    )


def _index(stored: StoredResponse, *, sent: bool) -> tuple[StatementStep, ...]:
    """The step that lets its items be found, if there are any that have an id which does not tell
    where they are.
    """
    made, given = stored.made, stored.sent if sent else ()
    if made is None:
        made = orjson.loads(stored.output)
    if given is None:
        given = orjson.loads(stored.input)
    rows: list[Row] = []
    for items, came in ((made, 0), (given, 1)):
        for item in items:
            ident = item.get("id") if isinstance(item, dict) else None
            if isinstance(ident, str) and not (came and origin(ident) == stored.id):
                key = ident if PLAIN_ID.fullmatch(ident) else item_key(ident)
                rows.append(
                    {"item": key, "owner": stored.owner, "sent": came, "response": stored.id}
                )
    return (StatementStep(_ADD_ITEMS, rows),) if rows else ()
