"""Picks what an endpoint is spoken to with."""

from __future__ import annotations

from typing import Final

from router.core.upstream import Adapter, Transport
from router.dialects.dialect import endpoint_dialects
from router.settings.schema import Dialect, EndpointSettings
from router.upstream.chat import ChatAdapter
from router.upstream.http1 import HttpTransport
from router.upstream.messages import MessagesAdapter
from router.upstream.ollama import OllamaAdapter
from router.upstream.responses import ResponsesAdapter
from router.upstream.translated import TranslatingAdapter

__all__ = ["connect", "make_adapter"]

_ADAPTERS: Final[
    dict[
        Dialect,
        type[ChatAdapter] | type[MessagesAdapter] | type[OllamaAdapter] | type[ResponsesAdapter],
    ]
] = {
    "chat": ChatAdapter,
    "messages": MessagesAdapter,
    "ollama": OllamaAdapter,
    "responses": ResponsesAdapter,
}


def make_adapter(endpoint: EndpointSettings) -> Adapter:
    """The adapter for the endpoint's dialect."""
    make = _ADAPTERS.get(endpoint.dialect)
    if make is not None:
        return make(endpoint)
    return TranslatingAdapter(endpoint, endpoint_dialects()[endpoint.dialect])


def connect(endpoint: EndpointSettings) -> tuple[Adapter, Transport]:
    """The adapter for the endpoint's dialect, and a transport to its URL, which connects when it
    is first used. Raises SettingsError where the transport cannot be made.
    """
    return make_adapter(endpoint), HttpTransport(endpoint)
