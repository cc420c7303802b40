"""Everything of one owner, as JSON Lines.

A conversation is written while it is read: no more than a few objects are in memory at once.
What is stored or deleted meanwhile may be in it or not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from router.dialects.responses.conversations import conversation_object
from router.dialects.responses.prompts import prompt_object
from router.errors import RouterError
from router.settings.schema import StateSettings
from router.state import conversation_sql
from router.state.connect import open_database
from router.state.database import Database
from router.state.items import ENCRYPTED, with_hidden
from router.state.maintenance.access import given_up, is_current
from router.state.responses import ResponseStore, StoredResponse
from router.state.statement import Statement
from router.state.usage import UsageRows

__all__ = ["Exported", "export"]

_PAGE: Final = 100
_BIG_PAGE: Final = 8
"""For rows that may be megabytes."""

_ITEMS: Final = Statement(
    """
    SELECT position, data, hidden FROM conversation_items
    WHERE conversation = :id AND position > :after ORDER BY position LIMIT :limit
    """
)
_PROMPTS: Final = Statement(
    """
    SELECT id, created_at, name, latest FROM prompts
    WHERE owner = :owner AND (created_at, id) > (:created_at, :id)
    ORDER BY created_at, id LIMIT :limit
    """
)
_VERSIONS: Final = Statement(
    """
    SELECT version, created_at, body FROM prompt_versions
    WHERE prompt = :id AND version > :after ORDER BY version LIMIT :limit
    """
)


@dataclass(slots=True)
class Exported:
    """How much it was, and the ids of what is damaged and was left out."""

    responses: int = 0
    conversations: int = 0
    prompts: int = 0
    usage: int = 0
    damaged: list[str] = field(default_factory=list)


async def export(
    settings: StateSettings, owner: str, write: Callable[[bytes], object], *, reasoning: bool
) -> Exported:
    """Hand everything of ``owner`` to ``write``, in pieces of lines.

    ``reasoning``: with the encrypted reasoning that clients did not ask for. Raises StateError,
    and what ``write`` raises.
    """
    exported = Exported()
    if not await is_current(settings):
        return exported
    database = open_database(settings)
    await database.start()
    try:
        exporter = _Exporter(database, owner, write, exported, reasoning)
        await exporter.responses()
        await exporter.conversations()
        await exporter.prompts()
        await exporter.usage()
    except RouterError as exc:
        raise given_up(exc) from None
    finally:
        await database.close()
    return exported


class _Exporter:
    def __init__(
        self,
        database: Database,
        owner: str,
        write: Callable[[bytes], object],
        exported: Exported,
        reasoning: bool,
    ) -> None:
        self._database = database
        self._owner = owner
        self._write = write
        self._exported = exported
        self._reasoning = reasoning

    async def responses(self) -> None:
        async for stored in ResponseStore(self._database).export(self._owner):
            try:
                line = self._response(stored)
            except orjson.JSONDecodeError:
                self._exported.damaged.append(stored.id)
                continue
            self._write(line)
            self._exported.responses += 1

    def _response(self, stored: StoredResponse) -> bytes:
        include = (ENCRYPTED,) if self._reasoning else ()
        items = orjson.dumps(stored.input_items(include))
        body = stored.public(include)
        return b'{"type":"response",' + body[1:-1] + b',"input_items":' + items + b"}\n"

    async def conversations(self) -> None:
        async for ident, created_at, metadata in self._by_age(conversation_sql.LIST_UP):
            try:
                shown = conversation_object(ident, int(created_at), orjson.loads(metadata))
            except orjson.JSONDecodeError:
                self._exported.damaged.append(ident)
                continue
            await self._line("conversation", shown, b"items", self._items(ident))
            self._exported.conversations += 1

    async def prompts(self) -> None:
        async for ident, created_at, name, latest in self._by_age(_PROMPTS):
            shown = {
                "id": ident,
                "name": name,
                "created_at": int(created_at),
                "version": str(latest),
            }
            versions = self._versions(ident, int(created_at))
            await self._line("prompt", shown, b"versions", versions)
            self._exported.prompts += 1

    async def usage(self) -> None:
        async for row in UsageRows(self._database).export(self._owner):
            self._write(orjson.dumps({"type": "usage", **row}) + b"\n")
            self._exported.usage += 1

    async def _by_age(self, statement: Statement) -> AsyncIterator[tuple[Any, ...]]:
        """The owner's rows, of which the first two columns are id and created_at."""
        created_at, ident = 0.0, ""
        while rows := await self._database.read(
            statement, owner=self._owner, created_at=created_at, id=ident, limit=_PAGE
        ):
            for row in rows:
                yield row
            ident, created_at = rows[-1][:2]

    async def _items(self, conversation: str) -> AsyncIterator[Any]:
        async for position, data, encrypted_reasoning in self._in_order(_ITEMS, conversation, -1):
            try:
                yield with_hidden(
                    orjson.loads(data), encrypted_reasoning if self._reasoning else None
                )
            except orjson.JSONDecodeError:
                self._exported.damaged.append(f"{conversation} item {position}")

    async def _versions(self, prompt: str, created_at: int) -> AsyncIterator[Any]:
        async for version, updated_at, body in self._in_order(_VERSIONS, prompt, 0):
            try:
                yield prompt_object(prompt, version, created_at, updated_at, orjson.loads(body))
            except orjson.JSONDecodeError:
                self._exported.damaged.append(f"{prompt} version {version}")

    async def _in_order(
        self, statement: Statement, ident: str, after: int
    ) -> AsyncIterator[tuple[Any, ...]]:
        """The rows of one object, by the number in their first column."""
        while rows := await self._database.read(statement, id=ident, after=after, limit=_BIG_PAGE):
            for row in rows:
                yield row
            after = rows[-1][0]

    async def _line(
        self, kind: str, shown: dict[str, Any], name: bytes, parts: AsyncIterator[Any]
    ) -> None:
        self._write(orjson.dumps({"type": kind, **shown})[:-1] + b',"' + name + b'":[')
        between = b""
        async for part in parts:
            self._write(between + orjson.dumps(part))
            between = b","
        self._write(b"]}\n")
