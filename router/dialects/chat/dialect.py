"""Chat Completions, for endpoints. Clients' own pass as they are wherever they can."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.dialects.chat.decode_stream import ChatDecoder
from router.dialects.chat.encode_request import encode_chat_request
from router.dialects.dialect import EncodedRequest, EndpointDialect
from router.settings.schema import EndpointSettings

__all__ = ["ENDPOINT"]


def _encode(
    body: Mapping[str, Any],
    *,
    model: str,
    stream: bool,
    usage: bool,
    settings: EndpointSettings,
    images: Mapping[str, str],
) -> EncodedRequest:
    sent, dropped = encode_chat_request(
        body, model=model, stream=stream, later_system=settings.system_messages or "merge"
    )
    if not usage:
        sent.pop("stream_options", None)
    return EncodedRequest("/chat/completions", sent, dropped)


ENDPOINT: Final = EndpointDialect(_encode, ChatDecoder)
