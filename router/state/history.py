"""The history that a response continues: one walk up its parents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from router.errors import InvalidRequest
from router.state.database import Database
from router.state.items import is_id, items_with
from router.state.statement import Statement

__all__ = ["MAX_BYTES", "MAX_TURNS", "ResponseHistory", "read_history", "too_long"]

MAX_TURNS: Final = 10_000
MAX_BYTES: Final = 64 * 1024 * 1024
"""The most of its stored history that one request carries, as JSON."""

_SIZE: Final = (
    "CAST(LENGTH({r}.input) AS BIGINT) + LENGTH({r}.output) + COALESCE(LENGTH({r}.hidden), 0)"
)
# A chain past a bound is walked just over it, and nothing of its items is loaded.
_CHAIN: Final = Statement(
    f"""
    WITH RECURSIVE chain (id, parent, turn, size) AS (
        SELECT head.id, head.parent, 1, {_SIZE.format(r="head")}
        FROM responses head
        WHERE head.id = :id AND head.owner = :owner AND head.status <> 'deleted'
      UNION ALL
        SELECT r.id, r.parent, chain.turn + 1, chain.size + {_SIZE.format(r="r")}
        FROM chain JOIN responses r ON r.id = chain.parent AND r.owner = :owner
        WHERE chain.turn <= :turns AND chain.size <= :bytes
    ),
    reach (turns, size) AS (SELECT MAX(turn), MAX(size) FROM chain)
    SELECT reach.turns, reach.size, r.status, r.account, r.input, r.output, r.hidden
    FROM reach
    JOIN chain ON reach.turns <= :turns AND reach.size <= :bytes OR chain.turn = 1
    JOIN responses r ON r.id = chain.id
    ORDER BY chain.turn DESC
    """
)


@dataclass(frozen=True, slots=True)
class ResponseHistory:
    """A response with everything before it.

    ``status`` and ``account`` are the response's own; ``items`` come oldest first, hidden
    reasoning put back as ``encrypted_content``.
    """

    status: str
    account: str | None
    items: list[dict[str, Any]]


async def read_history(database: Database, owner: str, ident: str) -> ResponseHistory | None:
    """The chain that ends with this owner's response; None where there is no such response.

    Whether it may be continued is up to its ``status``. Raises InvalidRequest for a chain of more
    than ``MAX_TURNS`` responses or ``MAX_BYTES``.
    """
    if not is_id(ident):
        return None
    rows = await database.read(_CHAIN, id=ident, owner=owner, turns=MAX_TURNS, bytes=MAX_BYTES)
    if not rows:
        return None
    turns, size, status, account, *_ = rows[-1]
    if turns > MAX_TURNS or size > MAX_BYTES:
        raise too_long("previous_response_id", f"{MAX_TURNS} responses")
    items = [
        item
        for *_, given, output, encrypted_reasoning in rows
        for request_items in (given, output)
        for item in items_with(request_items, encrypted_reasoning)
    ]
    return ResponseHistory(status, account, items)


def too_long(param: str, bound: str) -> InvalidRequest:
    """The error for stored history past ``bound``, a number of things, or past ``MAX_BYTES``."""
    return InvalidRequest(
        f"What '{param}' refers to is too long: more than {bound}, or more than "
        f"{MAX_BYTES // (1024 * 1024)} MiB of items. Begin a new conversation.",
        code="context_length_exceeded",
        param=param,
    )
