"""A Responses request for a telegraph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.dialects.chat.messages import to_messages
from router.dialects.dialect import EncodedRequest
from router.dialects.dropped import dropped_fields
from router.settings.schema import EndpointSettings

__all__ = ["encode_request"]


def encode_request(
    body: Mapping[str, Any],
    *,
    model: str,
    stream: bool,
    usage: bool,
    settings: EndpointSettings,
    images: Mapping[str, str],
) -> EncodedRequest:
    """See ``EncodeRequest``."""
    sent = {
        "station": model,
        "wires": [[message["role"], message["content"]] for message in to_messages(body)],
        "live": stream,
    }
    if body.get("max_output_tokens") is not None:
        sent["words"] = body["max_output_tokens"]
    carried = ("model", "input", "instructions", "max_output_tokens")
    return EncodedRequest("/telegram", sent, tuple(dropped_fields(body, carried)))
