"""Ollama's own API, for endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.dialects.dialect import EncodedRequest, EndpointDialect
from router.dialects.ollama.decode_stream import OllamaDecoder
from router.dialects.ollama.encode_request import encode_ollama_request
from router.dialects.ollama.schema import listed_models
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
    sent, mode = encode_ollama_request(
        body,
        model=model,
        stream=stream,
        num_ctx=settings.num_ctx,
        later_system=settings.system_messages or "merge",
        images=images,
    )
    if settings.keep_alive is not None:
        sent["keep_alive"] = settings.keep_alive
    return EncodedRequest("/api/chat", sent, mode.dropped, mode.forced)


ENDPOINT: Final = EndpointDialect(
    _encode,
    OllamaDecoder,
    "/api/tags",
    lambda listing: [name for name, _ in listed_models(listing)],
)
