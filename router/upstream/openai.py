"""What endpoints in OpenAI's style have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from router.core.exchange import Exchange
from router.core.upstream import Listed, LoadRequest, UpstreamCall, UpstreamRequest, leaves_memory
from router.dialects.chat.passthrough import ChatPassthrough
from router.dialects.responses.encode_request import encode_native_chat_request
from router.dialects.system_messages import SystemMessages
from router.errors import UpstreamFailure
from router.settings.values import KeepAlive
from router.upstream.translated import within_context

__all__ = ["OpenAIModels", "chat_passthrough", "is_openai"]

_OPENAI: Final = re.compile(
    r"^https?://(?:[\w-]+\.)*(?:openai\.com|chatgpt\.com|openai\.azure\.com|cognitiveservices\.azure"
    r"\.com|services\.ai\.azure\.com)(?:[:/]|$)",
    re.IGNORECASE,
)
"""Where OpenAI's own API is served."""

_LLAMACPP: Final = frozenset(
    {"loaded", "loading", "unloaded", "sleeping", "downloading", "downloaded"}
)
_LM_STUDIO: Final[Mapping[str, str]] = {
    "loaded": "loaded",
    "loading": "loading",
    "not-loaded": "unloaded",
}
_CONTEXT: Final = (
    "max_model_len",
    "loaded_context_length",
    "context_length",
    "context_window",
    "max_input_tokens",
)
"""Where servers tell the context of a model as they run it: vLLM and SGLang; LM Studio; OpenRouter;
Groq; Anthropic. What a model was trained with, or could have, is something else. llama.cpp tells it
in the model's ``meta`` as ``n_ctx``: the context of a slot, which is what a request gets."""


def is_openai(url: str) -> bool:
    """Whether OpenAI's own API is served there."""
    return _OPENAI.search(url) is not None


def chat_passthrough(
    exchange: Exchange,
    model: str,
    path: str,
    context: int | None,
    *,
    usage: bool = True,
    later_system: SystemMessages | None = None,
    assembles: bool = False,
) -> UpstreamCall:
    """Pass a Chat Completions request on to ``path``, cut to ``context`` where it is to be
    (see ``within_context``); ``usage`` is whether the model has token counts for a stream,
    ``later_system`` as for ``encode_native_chat_request``, ``assembles`` as in ``UpstreamCall``.
    """
    given, response_headers = within_context(exchange, exchange.body, context)
    body = encode_native_chat_request(
        given, model=model, stream=exchange.stream or assembles, later_system=later_system
    )
    options = exchange.body.get("stream_options") or {}
    wants_usage = bool(options.get("include_usage"))
    dropped: tuple[str, ...] = ()
    if exchange.stream and not usage:
        del body["stream_options"]
        if wants_usage:
            dropped = ("stream_options",)
    decoder = ChatPassthrough(
        model=exchange.shown_model, wants_usage=wants_usage, assembles=assembles
    )
    request = UpstreamRequest(path, orjson.dumps(body), exchange.stream)
    return UpstreamCall(request, decoder, response_headers, dropped=dropped, assembles=assembles)


class OpenAIModels:
    """The models of an endpoint in OpenAI's style: that part of ``Adapter``.

    Some servers tell more than OpenAI does: llama.cpp's router mode (``status``) and LM Studio's
    own API (``state``) what is in memory, vLLM and SGLang (``max_model_len``) and llama.cpp
    (``meta.n_ctx``) the context of the models they run with. llama.cpp can be told to load a model,
    and answers before it has.
    """

    def __init__(self) -> None:
        self._is_llamacpp = False
        self._untold = False  # llama.cpp with one model, whose context is not in its list

    def models_path(self) -> str:
        """See ``Adapter.models_path``."""
        return "/models"

    def models(self, listing: Any) -> list[Listed]:
        """See ``Adapter.models``."""
        data = listing.get("data") if isinstance(listing, dict) else None
        if not isinstance(data, list):
            raise UpstreamFailure("The list of models has no 'data'.")
        entries = [m for m in data if isinstance(m, dict) and isinstance(m.get("id"), str)]
        self._is_llamacpp = any(_of_llamacpp(entry) and _status(entry) for entry in entries)
        listed = [_listed(entry) for entry in entries]
        self._untold = (
            len(listed) == 1
            and _of_llamacpp(entries[0])
            and not self._is_llamacpp
            and listed[0].context_length is None
        )
        return listed

    def context_path(self) -> str | None:
        """See ``Adapter.context_path``: llama.cpp before ``meta.n_ctx`` had it in ``/props``."""
        return "/props" if self._untold else None

    def context(self, properties: Any) -> int | None:
        """See ``Adapter.context``."""
        defaults = (
            properties.get("default_generation_settings") if isinstance(properties, dict) else None
        )
        return _count(defaults.get("n_ctx")) if isinstance(defaults, dict) else None

    def loaded_path(self) -> str | None:
        """See ``Adapter.loaded_path``: whoever tells does so in the list of models."""
        return None

    def loaded(self, listing: Any) -> list[str]:
        """See ``Adapter.loaded``."""
        raise UpstreamFailure("This kind of endpoint has no list of what is in memory.")

    def load(self, model: str, keep_alive: KeepAlive | None = None) -> LoadRequest | None:
        """See ``Adapter.load``."""
        if not self._is_llamacpp:
            return None
        unloads = leaves_memory(keep_alive)
        return LoadRequest(
            "/models/unload" if unloads else "/models/load",
            orjson.dumps({"model": model}),
            unloads=unloads,
            unversioned=True,
            at_once=True,
        )

    def load_seconds(self, body: bytes) -> float | None:
        """See ``Adapter.load_seconds``: it is never told."""
        return None


def _listed(entry: dict[str, Any]) -> Listed:
    meta = entry.get("meta")
    stated = [entry.get(key) for key in _CONTEXT]
    stated.append(meta.get("n_ctx") if isinstance(meta, dict) else None)
    context = next((n for value in stated if (n := _count(value))), None)
    state = _status(entry) or _LM_STUDIO.get(_text(entry.get("state")))
    outlives = _of_llamacpp(entry)
    if state is not None:
        return Listed(entry["id"], state == "loaded", context, state == "loading", outlives)
    runs = _count(entry.get("max_model_len")) is not None
    return Listed(entry["id"], True if runs else None, context, outlives_clients=outlives)


def _of_llamacpp(entry: dict[str, Any]) -> bool:
    """Whether llama.cpp's server runs it, which looks for its client only while it streams."""
    return entry.get("owned_by") == "llamacpp"


def _status(entry: dict[str, Any]) -> str | None:
    status = entry.get("status")
    value = _text(status.get("value")) if isinstance(status, dict) else ""
    return value if value in _LLAMACPP else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
