"""What endpoints in OpenAI's style have in common."""

from __future__ import annotations

from typing import Any

import orjson

from router.errors import UpstreamFailure
from router.exchange import Exchange
from router.translate.chat_passthrough import ChatPassthrough
from router.translate.native_request import native_chat_body
from router.upstream.contract import Call, UpstreamRequest

__all__ = ["chat_passthrough", "model_names"]


def chat_passthrough(exchange: Exchange, model: str, path: str) -> Call:
    """Pass a Chat Completions request on to ``path``."""
    body = native_chat_body(exchange.body, model=model, stream=exchange.stream)
    options = exchange.body.get("stream_options") or {}
    reader = ChatPassthrough(wants_usage=bool(options.get("include_usage")))
    return Call(UpstreamRequest(path, orjson.dumps(body), exchange.stream), reader)


def model_names(listing: Any) -> list[str]:
    """The ids in OpenAI's list of models; raises UpstreamFailure when it is not one."""
    data = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(data, list):
        raise UpstreamFailure("The list of models has no 'data'.")
    return [m["id"] for m in data if isinstance(m, dict) and isinstance(m.get("id"), str)]
