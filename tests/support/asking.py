"""Bodies of both surfaces, short enough for tables."""

from __future__ import annotations

from functools import partial
from typing import Any

from cache import request
from cache.request import Bypass, CachedAnswer, CacheRequest
from router.dialects.chat.decode_request import decode_chat
from router.dialects.chat.schema import check_chat
from router.dialects.responses.fields import CACHE_RULES
from router.errors import InvalidRequest

JSON = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}}
USER = {"role": "user", "content": "Hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALL_ITEM = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "42"}
RESULT_ITEM = {"type": "function_call_output", "call_id": "call_1", "output": "42"}
CUSTOM_CALL = {"id": "call_2", "type": "custom", "custom": {"name": "g", "input": "x"}}
CUSTOM_ITEM = {"type": "custom_tool_call", "call_id": "call_2", "name": "g", "input": "x"}
LARK = {"syntax": "lark", "definition": "start: /x/"}


from_embeddings = partial(request.from_embeddings, rules=CACHE_RULES)
of_response = partial(CachedAnswer.of_response, rules=CACHE_RULES)


def from_responses(body: JSON) -> CacheRequest | Bypass:
    return request.from_responses(body, CACHE_RULES)


def from_chat(body: JSON) -> CacheRequest | Bypass:
    """The request of a chat, which gets as far as the cache where its messages are objects."""
    try:
        check_chat(body)
    except InvalidRequest:
        return Bypass("unsupported")
    chat = decode_chat(body)
    return request.from_responses(chat.body, CACHE_RULES, chat.kept)


def responses(given: Any = "Hi", **fields: Any) -> JSON:
    return {"model": "m", "input": given, **fields}


def chat(*messages: JSON, **fields: Any) -> JSON:
    return {"model": "m", "messages": list(messages) or [USER], **fields}


def function(**fields: Any) -> JSON:
    return {"type": "function", "function": {"name": "f", **fields}}


def item(role: str, *parts: JSON, **fields: Any) -> JSON:
    return {"type": "message", "role": role, "content": list(parts), **fields}


def said(text: str, kind: str = "input_text", **fields: Any) -> JSON:
    return {"type": kind, "text": text, **fields}


def cached(request: CacheRequest | Bypass) -> CacheRequest:
    assert isinstance(request, CacheRequest)
    return request


def make(body: JSON) -> CacheRequest:
    """The request of a body of either surface."""
    return cached(from_chat(body) if "messages" in body else from_responses(body))
