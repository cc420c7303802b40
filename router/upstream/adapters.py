"""Picks the adapter for a dialect."""

from __future__ import annotations

from typing import Final

from router.settings.schema import Dialect, EndpointSettings
from router.upstream.chat import ChatAdapter
from router.upstream.contract import Adapter
from router.upstream.ollama import OllamaAdapter
from router.upstream.responses import ResponsesAdapter

__all__ = ["make_adapter"]

_ADAPTERS: Final[
    dict[Dialect, type[ChatAdapter] | type[OllamaAdapter] | type[ResponsesAdapter]]
] = {
    "chat": ChatAdapter,
    "ollama": OllamaAdapter,
    "responses": ResponsesAdapter,
}


def make_adapter(endpoint: EndpointSettings) -> Adapter:
    """The adapter for the endpoint's dialect."""
    return _ADAPTERS[endpoint.dialect](endpoint)
