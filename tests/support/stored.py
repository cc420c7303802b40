"""Stored responses and items for tests of the state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from router.response.builder import output_text
from router.state.database import Database
from router.state.responses import StoredResponse
from router.state.statement import Statement, StatementStep

__all__ = ["alive", "dead", "ids_of", "message", "reasoning", "stored"]

_ALIVE = Statement(
    """
    INSERT INTO routers (id, until) VALUES (:id, {now} + 3600.0)
    ON CONFLICT (id) DO UPDATE SET until = excluded.until
    """
)
_DEAD = Statement("UPDATE routers SET until = {now} - 1.0 WHERE id = :id")


def message(ident: str, text: str | None = None, role: str = "user") -> dict[str, Any]:
    """A message; its text is its id unless given."""
    kind = "output_text" if role == "assistant" else "input_text"
    more: dict[str, Any] = {"annotations": [], "logprobs": []} if role == "assistant" else {}
    part = {"type": kind, "text": ident if text is None else text, **more}
    return {
        "id": ident,
        "type": "message",
        "status": "completed",
        "role": role,
        "content": [part],
    }


def reasoning(ident: str) -> dict[str, Any]:
    """A reasoning item without its encrypted content."""
    return {"id": ident, "type": "reasoning", "summary": []}


def stored(
    ident: str,
    *,
    owner: str = "ann",
    given: Sequence[dict[str, Any]] = (),
    output: Sequence[Any] = (),
    parent: str | None = None,
    status: str = "completed",
    created_at: int = 1000,
    encrypted_reasoning: Mapping[str, str] | None = None,
    **more: Any,
) -> StoredResponse:
    """A response as the request path would store it."""
    response = {
        "id": ident,
        "object": "response",
        "created_at": created_at,
        "status": status,
        "previous_response_id": parent,
        "output": list(output),
        "output_text": output_text(list(output)),
        "usage": None,
    }
    fields = {
        "conversation": None,
        "account": None,
        "background": False,
        "resumable": False,
        **more,
    }
    return StoredResponse.of(
        response,
        owner=owner,
        request_items=given,
        encrypted_reasoning=encrypted_reasoning or {},
        parent=parent,
        **fields,
    )


def ids_of(items: Sequence[dict[str, Any]]) -> list[str]:
    """The ids of items, in order."""
    return [item["id"] for item in items]


async def alive(database: Database, *routers: str) -> None:
    """These routers count as alive for an hour."""
    await database.write(StatementStep(_ALIVE, [{"id": router} for router in routers]))


async def dead(database: Database, *routers: str) -> None:
    """These routers' leases have run out."""
    await database.write(StatementStep(_DEAD, [{"id": router} for router in routers]))
