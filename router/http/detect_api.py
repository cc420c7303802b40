"""What a request that somebody only asks about would be: which API its body is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from router.core.exchange import Operation
from router.dialects.chat.schema import check_chat
from router.dialects.embeddings.schema import check_completions, check_embeddings, check_rerank
from router.dialects.responses.schema import validate_create

__all__ = ["check_body", "operation_of"]

_CHECKS: Final[Mapping[Operation, Callable[[dict[str, Any]], None]]] = {
    Operation.CHAT: check_chat,
    Operation.COMPLETIONS: check_completions,
    Operation.EMBEDDINGS: check_embeddings,
    Operation.RERANK: check_rerank,
    Operation.RESPONSES: validate_create,
}


def check_body(operation: Operation, body: dict[str, Any]) -> None:
    """Check a body for what ``operation_of`` says; raises InvalidRequest as that API does."""
    _CHECKS[operation](body)


def operation_of(body: Mapping[str, Any]) -> Operation:
    """What a body is for, by the fields that only one API has. A single text may be for embeddings
    as well as for a response: it is taken to be for the latter.
    """
    if "messages" in body:
        return Operation.CHAT
    if "documents" in body:
        return Operation.RERANK
    if isinstance(body.get("prompt"), str | list):
        return Operation.COMPLETIONS
    given = body.get("input")
    several = isinstance(given, list) and given and not isinstance(given[0], dict)
    if several or "encoding_format" in body or "dimensions" in body:
        return Operation.EMBEDDINGS
    return Operation.RESPONSES
