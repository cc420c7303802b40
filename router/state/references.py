"""Items by their ids, from wherever this owner has them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from router.errors import InvalidRequest
from router.state.database import Database
from router.state.history import MAX_BYTES
from router.state.items import item_key, items_with, key_of, origin, with_hidden
from router.state.statement import Statement, Value

__all__ = ["MAX_IDS", "find_items"]

MAX_IDS: Final = 1000
_CHUNK: Final = 50

_PLACES: Final = ", ".join(f"(CAST(:k{i} AS TEXT))" for i in range(_CHUNK))
_ORIGINS: Final = _PLACES.replace(":k", ":o")
# An item is taken from the response that made it, before those that it was sent with. Ids that
# were made here tell which response the item came with first.
_RESPONSES_OF: Final = Statement(
    f"""
    WITH wanted (item) AS (VALUES {_PLACES}),
    origin (id) AS (VALUES {_ORIGINS}),
    place (response) AS (
        SELECT DISTINCT (
            SELECT i.response FROM response_items i
            WHERE i.item = wanted.item AND i.owner = :owner
            ORDER BY i.sent, i.response LIMIT 1
        ) FROM wanted
      UNION
        SELECT id FROM origin
    )
    SELECT r.id, CAST(LENGTH(r.input) AS BIGINT) + LENGTH(r.output)
    FROM place JOIN responses r ON r.id = place.response AND r.owner = :owner
    """
)
_RESPONSES: Final = Statement(
    f"""
    WITH wanted (id) AS (VALUES {_PLACES})
    SELECT r.input, r.output, r.hidden
    FROM wanted JOIN responses r ON r.id = wanted.id AND r.owner = :owner
    ORDER BY r.id
    """
)
_FIRST: Final = """(
    SELECT {column} FROM conversation_items i JOIN conversations c ON c.id = i.conversation
    WHERE i.id = wanted.item AND c.owner = :owner
    ORDER BY i.conversation, i.position LIMIT 1
)"""
_SIZES_IN_CONVERSATIONS: Final = Statement(
    f"""
    WITH wanted (item) AS (VALUES {_PLACES})
    SELECT wanted.item, {_FIRST.format(column="LENGTH(i.data)")} FROM wanted
    """
)
_IN_CONVERSATIONS: Final = Statement(
    f"""
    WITH wanted (item) AS (VALUES {_PLACES})
    SELECT {_FIRST.format(column="i.data")}, {_FIRST.format(column="i.hidden")} FROM wanted
    """
)


async def find_items(
    database: Database, owner: str, ids: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Those of this owner's items that have one of these ids, hidden reasoning put back.

    They come from responses, or else from conversations. Ids that nothing has are not in the
    answer. Raises InvalidRequest for more than ``MAX_IDS`` ids, or when what they are in is
    more than ``MAX_BYTES``.
    """
    wanted = {item_key(ident): ident for ident in ids}
    if len(wanted) > MAX_IDS:
        raise InvalidRequest(
            f"Too many references to stored items: more than {MAX_IDS}.",
            code="invalid_value",
            param="input",
        )
    found: dict[str, dict[str, Any]] = {}
    size = 0
    for keys in _chunks(list(wanted)):
        size = await _from_responses(database, owner, keys, size, found)
    for keys in _chunks([key for key in wanted if key not in found]):
        size = await _from_conversations(database, owner, keys, size, found)
    return {ident: found[key] for key, ident in wanted.items() if key in found}


async def _from_responses(
    database: Database, owner: str, keys: Sequence[str], size: int, found: dict[str, Any]
) -> int:
    origins = _padded([one for key in keys if (one := origin(key)) is not None], "o")
    places = await database.read(_RESPONSES_OF, owner=owner, **_padded(keys), **origins)
    size = _checked(size + sum(length for _, length in places))
    rows: list[tuple[Any, ...]] = []
    for idents in _chunks([row[0] for row in places]):
        rows += await database.read(_RESPONSES, owner=owner, **_padded(idents))
    looked_for = frozenset(keys)
    made: dict[str, dict[str, Any]] = {}
    sent: dict[str, dict[str, Any]] = {}
    for given, output, encrypted_reasoning in rows:
        for target, items in ((made, output), (sent, given)):
            for item in items_with(items, encrypted_reasoning):
                if (key := key_of(item)) in looked_for:
                    target.setdefault(key, item)
    found.update({**sent, **made})
    return size


async def _from_conversations(
    database: Database, owner: str, keys: Sequence[str], size: int, found: dict[str, Any]
) -> int:
    lengths = await database.read(_SIZES_IN_CONVERSATIONS, owner=owner, **_padded(keys))
    there = {key: length for key, length in lengths if length is not None}
    size = _checked(size + sum(there.values()))
    if there:
        rows = await database.read(_IN_CONVERSATIONS, owner=owner, **_padded(list(there)))
        for data, encrypted_reasoning in rows:
            if data is not None:
                item = with_hidden(orjson.loads(data), encrypted_reasoning)
                found[key_of(item)] = item
    return size


def _checked(size: int) -> int:
    if size > MAX_BYTES:
        raise InvalidRequest(
            "The items that 'input' refers to are in responses of more than "
            f"{MAX_BYTES // (1024 * 1024)} MiB. Send the items themselves.",
            code="context_length_exceeded",
            param="input",
        )
    return size


def _chunks(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(keys), _CHUNK):
        yield keys[start : start + _CHUNK]


def _padded(keys: Sequence[str], name: str = "k") -> Mapping[str, Value]:
    """The parameters of a statement that takes ``_CHUNK`` keys; nothing has the key ""."""
    return {f"{name}{i}": keys[i] if i < len(keys) else "" for i in range(_CHUNK)}
