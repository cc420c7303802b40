"""Stored prompts and their versions, counted from 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from router.dialects.paging import Page, unknown_after
from router.errors import Conflict, InvalidRequest
from router.state.database import Database
from router.state.items import is_id
from router.state.statement import Statement, StatementStep, Value

__all__ = ["MAX_NAME", "Prompt", "PromptStore"]

MAX_NAME: Final = 256
"""Characters of a prompt's name."""

_ATTEMPTS: Final = 20
_LAST_VERSION: Final = 2**31
_DIGITS: Final = 20
_AFTER_ALL: Final = 1e15
"""A time later than any, in seconds since 1970."""

_COLUMNS: Final = "p.id, p.name, p.created_at, p.latest, v.version, v.created_at, v.body"
_CREATE: Final = Statement(
    """
    INSERT INTO prompts (id, owner, name, created_at, latest)
    VALUES (:id, :owner, :name, :created_at, 1)
    ON CONFLICT DO NOTHING
    """
)
# Refuses the job when the name was taken; holds when the job is run again.
_CREATED: Final = Statement("UPDATE prompts SET latest = latest WHERE id = :id")
_ADD_VERSION: Final = Statement(
    """
    INSERT INTO prompt_versions (prompt, version, created_at, body)
    VALUES (:id, :version, :version_at, :body)
    ON CONFLICT (prompt, version) DO NOTHING
    """
)
_GET: Final = Statement(
    f"""
    SELECT {_COLUMNS}
    FROM prompts p
    JOIN prompt_versions v
        ON v.prompt = p.id AND v.version = COALESCE(CAST(:version AS BIGINT), p.latest)
    WHERE p.owner = :owner AND (p.id = :key OR p.name = :key)
    ORDER BY CASE WHEN p.id = :key THEN 0 ELSE 1 END LIMIT 1
    """
)
_ADVANCE: Final = Statement(
    """
    UPDATE prompts SET latest = :version, name = :name
    WHERE id = :id AND owner = :owner
      AND (latest = :latest OR latest = :version AND EXISTS (
          SELECT 1 FROM prompt_versions v
          WHERE v.prompt = :id AND v.version = :version AND v.body = :body
      ))
      AND NOT EXISTS (
          SELECT 1 FROM prompts o WHERE o.owner = :owner AND o.name = :name AND o.id <> :id
      )
    """
)
_NAMED: Final = Statement("SELECT id FROM prompts WHERE owner = :owner AND name = :name")
_AGE: Final = Statement("SELECT created_at FROM prompts WHERE id = :id AND owner = :owner")
_PAGE: Final = f"""
    SELECT {_COLUMNS}
    FROM prompts p JOIN prompt_versions v ON v.prompt = p.id AND v.version = p.latest
    WHERE p.owner = :owner AND (p.created_at, p.id) {{than}} (:created_at, :id)
    ORDER BY p.created_at {{way}}, p.id {{way}} LIMIT :limit
"""
_PAGE_UP: Final = Statement(_PAGE.format(than=">", way="ASC"))
_PAGE_DOWN: Final = Statement(_PAGE.format(than="<", way="DESC"))
_VERSIONS: Final = f"""
    SELECT {_COLUMNS}
    FROM prompts p JOIN prompt_versions v ON v.prompt = p.id
    WHERE p.id = :id AND p.owner = :owner AND v.version {{than}} :version
    ORDER BY v.version {{way}} LIMIT :limit
"""
_VERSIONS_UP: Final = Statement(_VERSIONS.format(than=">", way="ASC"))
_VERSIONS_DOWN: Final = Statement(_VERSIONS.format(than="<", way="DESC"))
_DELETE: Final = Statement("DELETE FROM prompts WHERE id = :id AND owner = :owner")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One version of a prompt. Times are in unix seconds, ``body`` is JSON."""

    id: str
    name: str
    created_at: int
    latest: int
    version: int
    version_created_at: int
    body: bytes


class PromptStore:
    """The tables of prompts and their versions; everything is looked up by owner."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self, owner: str, ident: str, name: str, created_at: float, body: bytes
    ) -> Prompt:
        """A new prompt under a fresh id, in its first version.

        ``created_at`` is in unix seconds with fractions, since lists go by it. Raises Conflict
        when this owner has another of that name, InvalidRequest for a name that cannot be stored.
        """
        _raise_unless_name(name)
        row: dict[str, Value] = {
            "id": ident,
            "owner": owner,
            "name": name,
            "created_at": created_at,
            "version": 1,
            "version_at": int(created_at),
            "body": body,
        }
        if not await self._database.write(
            StatementStep(_CREATE, (row,)),
            StatementStep(_CREATED, (row,), guard=True),
            StatementStep(_ADD_VERSION, (row,)),
        ):
            raise _taken(name)
        return Prompt(ident, name, int(created_at), 1, 1, int(created_at), body)

    async def get(self, owner: str, key: str, version: int | None = None) -> Prompt | None:
        """The prompt with this id, or else this name, in this version or its latest.

        None where there is no such prompt, or not that version of it.
        """
        if not _is_name(key) or (version is not None and not 0 < version < _LAST_VERSION):
            return None
        rows = await self._database.read(_GET, owner=owner, key=key, version=version)
        return _prompt(rows[0]) if rows else None

    async def update(
        self,
        owner: str,
        key: str,
        created_at: float,
        change: Callable[[bytes], tuple[str, bytes]],
    ) -> Prompt | None:
        """Add the version whose name and body ``change`` makes of the latest body.

        None where there is no such prompt. ``change`` is called again when somebody else was
        faster. Raises Conflict when that goes on, and for a name that another prompt of this
        owner has; InvalidRequest like ``create``; and whatever ``change`` raises.
        """
        for _ in range(_ATTEMPTS):
            prompt = await self.get(owner, key)
            if prompt is None:
                return None
            name, body = change(prompt.body)
            await self._check_name(owner, prompt, name)
            row: dict[str, Value] = {
                "id": prompt.id,
                "owner": owner,
                "name": name,
                "latest": prompt.latest,
                "version": prompt.latest + 1,
                "version_at": int(created_at),
                "body": body,
            }
            if await self._database.write(
                StatementStep(_ADVANCE, (row,), guard=True), StatementStep(_ADD_VERSION, (row,))
            ):
                latest = prompt.latest + 1
                return Prompt(
                    prompt.id, name, prompt.created_at, latest, latest, int(created_at), body
                )
        raise Conflict("The prompt is being updated by others.", code="conflict")

    async def _check_name(self, owner: str, prompt: Prompt, name: str) -> None:
        _raise_unless_name(name)
        if name != prompt.name:
            other = await self._database.read(_NAMED, owner=owner, name=name)
            if other and other[0][0] != prompt.id:
                raise _taken(name)

    async def page(self, owner: str, page: Page) -> tuple[list[Prompt], bool]:
        """A page of this owner's prompts in their latest versions, by age; and if there is more.

        Raises InvalidRequest for an ``after`` that is not in the list.
        """
        created_at, ident = (_AFTER_ALL if page.descending else 0.0), ""
        if page.after is not None:
            rows = is_id(page.after) and await self._database.read(_AGE, id=page.after, owner=owner)
            if not rows:
                raise unknown_after(page.after)
            created_at, ident = rows[0][0], page.after
        rows = await self._database.read(
            _PAGE_DOWN if page.descending else _PAGE_UP,
            owner=owner,
            created_at=created_at,
            id=ident,
            limit=page.limit + 1,
        )
        return _cut(rows, page)

    async def versions(self, owner: str, key: str, page: Page) -> tuple[list[Prompt], bool] | None:
        """A page of a prompt's versions, and if there is more; ``after`` is a version's number.

        None where there is no such prompt. Raises InvalidRequest for an ``after`` that is none.
        """
        prompt = await self.get(owner, key)
        if prompt is None:
            return None
        version = _LAST_VERSION if page.descending else 0
        if page.after is not None:
            version = _number(page.after)
        rows = await self._database.read(
            _VERSIONS_DOWN if page.descending else _VERSIONS_UP,
            owner=owner,
            id=prompt.id,
            version=version,
            limit=page.limit + 1,
        )
        return _cut(rows, page)

    async def delete(self, owner: str, key: str) -> bool:
        """Delete a prompt with all its versions; False where there is none."""
        prompt = await self.get(owner, key)
        if prompt is None:
            return False
        await self._database.write(StatementStep(_DELETE, ({"id": prompt.id, "owner": owner},)))
        return True


def _is_name(name: str) -> bool:
    """Whether this can be a name: a text that every database can hold."""
    return 0 < len(name) <= MAX_NAME and name.isprintable()


def _raise_unless_name(name: str) -> None:
    if not _is_name(name):
        raise InvalidRequest(
            f"Invalid 'name': expected 1 to {MAX_NAME} characters without control characters.",
            code="invalid_value",
            param="name",
        )


def _taken(name: str) -> Conflict:
    return Conflict(f"There is a prompt named '{name}'.", code="name_taken", param="name")


def _prompt(row: tuple[Any, ...]) -> Prompt:
    ident, name, created_at, latest, version, version_created_at, body = row
    return Prompt(ident, name, int(created_at), latest, version, version_created_at, body)


def _cut(rows: list[tuple[Any, ...]], page: Page) -> tuple[list[Prompt], bool]:
    return [_prompt(row) for row in rows[: page.limit]], len(rows) > page.limit


def _number(after: str) -> int:
    if not after.isascii() or not after.isdecimal() or int(after[:_DIGITS]) >= _LAST_VERSION:
        raise unknown_after(after)
    return int(after[:_DIGITS])
