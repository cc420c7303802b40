"""Responses requests for endpoints that speak the Responses API themselves.

The request goes up as it came, unknown fields included. Nothing is stored there: ``store`` is
false, what refers to stored state is removed, and items lose their ids, which an endpoint that
stores nothing would look up in vain.
"""

from __future__ import annotations

from typing import Any, Final

from router.errors import InvalidRequest
from router.translate.native import unseal

__all__ = ["native_body", "native_chat_body", "token_count_body"]

_STATE: Final = frozenset({"background", "conversation", "previous_response_id", "prompt"})
_PRIVATE: Final = frozenset({"cache", "nomyo"})
_NOT_COUNTED: Final = frozenset({"store", "stream", "stream_options", "metadata"})
# The id of an approval request is not a place in a store: the approval's answer names it.
_KEEP_ID: Final = frozenset({"mcp_approval_request"})


def native_body(
    body: dict[str, Any], *, model: str, stream: bool, account: str
) -> tuple[dict[str, Any], int]:
    """The body for ``/responses`` and how many reasoning items had to be dropped.

    ``account`` is the endpoint's mark (see ``router.translate.native.seal``): encrypted reasoning
    that another account issued cannot be read by this one. Raises InvalidRequest for references
    to stored items.
    """
    sent = {k: v for k, v in body.items() if k not in _STATE and k not in _PRIVATE}
    sent["model"] = model
    sent["store"] = False
    sent["stream"] = stream
    if not stream:
        sent.pop("stream_options", None)
    dropped = 0
    if isinstance(sent.get("input"), list):
        items, dropped = _items(sent["input"], account)
        sent["input"] = items
    return sent, dropped


def token_count_body(body: dict[str, Any], *, model: str, account: str) -> dict[str, Any]:
    """The body for ``/responses/input_tokens``."""
    sent, _ = native_body(body, model=model, stream=False, account=account)
    return {k: v for k, v in sent.items() if k not in _NOT_COUNTED}


def native_chat_body(body: dict[str, Any], *, model: str, stream: bool) -> dict[str, Any]:
    """The body of a Chat Completions request that is passed on. A stream is asked for its usage."""
    sent = {k: v for k, v in body.items() if k not in _PRIVATE}
    sent["model"] = model
    if stream:
        sent["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
    return sent


def _items(items: list[dict[str, Any]], account: str) -> tuple[list[dict[str, Any]], int]:
    kept = []
    dropped = 0
    for index, item in enumerate(items):
        kind = item.get("type")
        if kind == "item_reference":
            raise InvalidRequest(
                f"Item with id '{item.get('id')}' not found: this router keeps no items. "
                "Send the item itself.",
                code="invalid_value",
                param=f"input[{index}]",
            )
        if kind == "reasoning":
            usable, foreign = _reasoning(item, account)
            dropped += foreign
            if usable is not None:
                kept.append(usable)
        elif "id" in item and kind not in _KEEP_ID:
            kept.append({k: v for k, v in item.items() if k != "id"})
        else:
            kept.append(item)
    return kept, dropped


def _reasoning(item: dict[str, Any], account: str) -> tuple[dict[str, Any] | None, bool]:
    """The reasoning item as this account can read it, and whether another account's was lost."""
    blob = item.get("encrypted_content")
    item = {k: v for k, v in item.items() if k not in ("id", "encrypted_content", "status")}
    item["summary"] = item.get("summary") or []
    if isinstance(blob, str) and blob:
        issuer, plain = unseal(blob)
        if issuer is None or issuer == account:
            return {**item, "encrypted_content": plain}, False
        return (item, True) if item.get("content") else (None, True)
    # Without an id to look up, a summary alone is nothing that a model can go on from.
    return (item if item.get("content") else None), False
