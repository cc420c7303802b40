"""Conversations: what a request may say of one, and the objects that are answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.dialects.parameters import array, missing
from router.dialects.responses.field_types import check_metadata
from router.dialects.responses.input_items import check_items, item_type
from router.errors import InvalidRequest

__all__ = ["conversation_object", "parse_added", "parse_metadata", "parse_new"]

_MAX_ITEMS: Final = 20


def parse_new(body: Mapping[str, Any]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The metadata and the first items of a new conversation; raise InvalidRequest."""
    metadata = body.get("metadata")
    if metadata is not None:
        check_metadata(metadata, "metadata")
    items = body.get("items")
    if items is not None:
        _check_added(items)
    return metadata or {}, items or []


def parse_metadata(body: Mapping[str, Any]) -> dict[str, str]:
    """The metadata that replace a conversation's; raise InvalidRequest."""
    metadata: dict[str, str] | None = body.get("metadata")
    if metadata is None:
        raise missing("metadata")
    check_metadata(metadata, "metadata")
    return metadata


def parse_added(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The items to add to a conversation, at least one; raise InvalidRequest."""
    items: list[dict[str, Any]] | None = body.get("items")
    if items is None:
        raise missing("items")
    _check_added(items)
    if not items:
        raise InvalidRequest(
            "Invalid 'items': empty array. Expected an array with minimum length 1, but got an "
            "empty array instead.",
            code="empty_array",
            param="items",
        )
    return items


def conversation_object(ident: str, created_at: int, metadata: Mapping[str, str]) -> dict[str, Any]:
    """The Conversation object; ``created_at`` is in unix seconds."""
    return {
        "id": ident,
        "object": "conversation",
        "created_at": created_at,
        "metadata": metadata,
    }


def _check_added(items: Any) -> None:
    array(items, "items")
    if len(items) > _MAX_ITEMS:
        raise InvalidRequest(
            f"Invalid 'items': array too long. Expected an array with maximum length "
            f"{_MAX_ITEMS}, but got an array with length {len(items)} instead.",
            code="array_above_max_length",
            param="items",
        )
    check_items(items, "items")
    for i, item in enumerate(items):
        if item_type(item) == "compaction_trigger":
            raise InvalidRequest(
                "Invalid value: 'compaction_trigger' is an order for a request, not an item of a "
                "conversation.",
                code="invalid_value",
                param=f"items[{i}].type",
            )
