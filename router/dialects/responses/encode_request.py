"""Responses requests for endpoints that speak the Responses API themselves.

The request goes up as it came, unknown fields included; of one that was made of another API's, only
the fields that Responses have (see ``known_fields``). Nothing is stored there: ``store`` is
false, what refers to stored state is removed, and items lose their ids, which an endpoint that
stores nothing would look up in vain. A message without a type gets one: OpenAI takes both, engines
that took over its API often do not.
"""

from __future__ import annotations

from typing import Any, Final

from router.dialects.dropped import dropped_fields
from router.dialects.responses.fields import PRIVATE_FIELDS, RESPONSES_FIELDS
from router.dialects.responses.input_items import item_type
from router.dialects.responses.sealing import blob_of, unseal
from router.dialects.system_messages import SystemMessages, rearranged
from router.errors import InvalidRequest

__all__ = [
    "ENCRYPTED_REASONING",
    "asks_for_encrypted",
    "encode_compact_request",
    "encode_native_chat_request",
    "encode_responses_request",
    "encode_token_count_request",
    "known_fields",
]

ENCRYPTED_REASONING: Final = "reasoning.encrypted_content"
"""What ``include`` names to get reasoning in a form that can be sent back."""

_STATE: Final = frozenset({"background", "conversation", "previous_response_id", "prompt"})
_KEPT_HERE: Final = _STATE | PRIVATE_FIELDS
_NOT_COUNTED: Final = frozenset({"store", "stream", "stream_options", "metadata"})
_NOT_COMPACTED: Final = frozenset({"store", "stream", "stream_options"})
# The id of an approval request is not a place in a store: the approval's answer names it. Nor is
# the one of a local shell's output, where it is what names the call.
_KEEP_ID: Final = frozenset({"local_shell_call_output", "mcp_approval_request"})


def encode_responses_request(
    body: dict[str, Any], *, model: str, stream: bool, account: str, encrypted: bool = False
) -> tuple[dict[str, Any], int]:
    """The body for ``/responses`` and how many items lost their encrypted content.

    ``account`` is the endpoint's mark (see ``sealing.seal``): what another
    account encrypted cannot be read by this one. ``encrypted`` asks for encrypted reasoning in
    addition to what the client asks for. Raises InvalidRequest for references to stored items.
    """
    sent = _without(_KEPT_HERE, body)
    sent["model"] = model
    sent["store"] = False
    sent["stream"] = stream
    if not stream:
        sent.pop("stream_options", None)
    if encrypted and not asks_for_encrypted(body):
        sent["include"] = [*(body.get("include") or ()), ENCRYPTED_REASONING]
    dropped_reasoning = 0
    if type(sent.get("input")) is list:
        items, dropped_reasoning = _items(sent["input"], account)
        sent["input"] = items
    return sent, dropped_reasoning


def known_fields(body: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What of a body made of another API's request Responses have, and the names of the rest.

    Sent all the same, they would have OpenAI refuse the request.
    """
    known = {name: value for name, value in body.items() if name in RESPONSES_FIELDS}
    dropped = list(dropped_fields(body, RESPONSES_FIELDS))
    if known.get("tools"):
        known["tools"], of_tools = _known_tools(known["tools"])
        dropped += of_tools
    return known, tuple(dropped)


def _known_tools(tools: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The tools without what only the router's own web search has: see ``messages.tools``."""
    kept, dropped = [], []
    for index, tool in enumerate(tools):
        if tool.get("type") == "web_search":
            filters = dict(tool.get("filters") or {})
            if filters.pop("blocked_domains", None) is not None:
                dropped.append(f"tools[{index}].filters.blocked_domains")
            if "max_uses" in tool:
                dropped.append(f"tools[{index}].max_uses")
            tool = {n: v for n, v in tool.items() if n not in ("filters", "max_uses")}
            tool |= {"filters": filters} if filters else {}
        kept.append(tool)
    return kept, dropped


def asks_for_encrypted(body: dict[str, Any]) -> bool:
    """Whether the client itself wants encrypted reasoning."""
    return ENCRYPTED_REASONING in (body.get("include") or ())


def encode_compact_request(
    body: dict[str, Any], *, model: str, account: str
) -> tuple[dict[str, Any], int]:
    """The body for ``/responses/compact``; the rest is as for ``encode_responses_request``."""
    sent, dropped_reasoning = encode_responses_request(
        body, model=model, stream=False, account=account
    )
    return {k: v for k, v in sent.items() if k not in _NOT_COMPACTED}, dropped_reasoning


def encode_token_count_request(body: dict[str, Any], *, model: str, account: str) -> dict[str, Any]:
    """The body for ``/responses/input_tokens``."""
    sent, _ = encode_responses_request(body, model=model, stream=False, account=account)
    return {k: v for k, v in sent.items() if k not in _NOT_COUNTED}


def encode_native_chat_request(
    body: dict[str, Any], *, model: str, stream: bool, later_system: SystemMessages | None = None
) -> dict[str, Any]:
    """The body of a Chat Completions request that is passed on. A stream is asked for its usage.

    The messages pass as they come unless ``later_system`` says what becomes of system messages.
    """
    sent = _without(PRIVATE_FIELDS, body)
    sent["model"] = model
    if later_system is not None and isinstance(sent.get("messages"), list):
        sent["messages"] = rearranged(sent["messages"], later_system)
    if stream:
        sent["stream"] = True  # which need not be the client's wish
        sent["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
    return sent


def _without(names: frozenset[str], body: dict[str, Any]) -> dict[str, Any]:
    if names.isdisjoint(body):
        return body.copy()
    return {name: value for name, value in body.items() if name not in names}


def _items(items: list[dict[str, Any]], account: str) -> tuple[list[dict[str, Any]], int]:
    kept = []
    dropped_reasoning = 0
    for index, item in enumerate(items):
        kind = item_type(item)
        if kind == "item_reference":
            raise InvalidRequest(
                f"Item with id '{item['id']}' not found.",
                code="invalid_value",
                param=f"input[{index}]",
            )
        if kind == "reasoning" or (kind == "compaction" and blob_of(item)):
            usable, foreign = _unsealed(item, account)
            if foreign and kind == "compaction":
                raise _unreadable(index)
            dropped_reasoning += foreign
            if usable is not None:
                kept.append(usable)
        elif "id" in item and (kind not in _KEEP_ID or "call_id" in item):
            kept.append({k: v for k, v in item.items() if k != "id"} | {"type": kind})
        elif item.get("type") is None:
            kept.append({**item, "type": kind})
        else:
            kept.append(item)
    return kept, dropped_reasoning


def _unreadable(index: int) -> InvalidRequest:
    """Reasoning may be left out of a history; a compaction is the history."""
    return InvalidRequest(
        "The 'compaction' item was issued by another endpoint, and no other can read it.",
        code="unsupported_value",
        param=f"input[{index}]",
    )


def _unsealed(item: dict[str, Any], account: str) -> tuple[dict[str, Any] | None, bool]:
    """The item as this account can read it, and whether another account's content was lost."""
    blob = blob_of(item)
    item = {k: v for k, v in item.items() if k not in ("id", "encrypted_content", "status")}
    if item["type"] == "reasoning":
        item["summary"] = item.get("summary") or []
    if blob is not None:
        issuer, plain = unseal(blob)
        if issuer is None or issuer == account:
            return {**item, "encrypted_content": plain}, False
    # Without an id to look up, a summary alone is nothing that a model can go on from.
    return (item if item.get("content") else None), blob is not None
