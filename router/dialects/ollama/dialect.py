"""Ollama's own API, for endpoints."""

from __future__ import annotations

from typing import Final

from router.dialects.dialect import EndpointDialect
from router.dialects.ollama.decode_stream import OllamaDecoder
from router.dialects.ollama.encode_request import encode_for_ollama
from router.dialects.ollama.schema import listed_models

__all__ = ["ENDPOINT"]


ENDPOINT: Final = EndpointDialect(
    encode_for_ollama,
    OllamaDecoder,
    "/api/tags",
    lambda listing: [name for name, _ in listed_models(listing)],
)
