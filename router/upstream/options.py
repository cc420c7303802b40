"""What of a Responses request a translated answer has to know, and what its client is told.

``ModelSet`` keeps what an adapter has learned of an endpoint's models.
"""

from __future__ import annotations

from typing import Any, Final

from router.core.exchange import Exchange
from router.core.upstream import REASONING_DROPPED
from router.dialects.chat.encode_request import wants_logprobs
from router.dialects.function_tools import custom_tool_names
from router.dialects.history import match, match_messages
from router.dialects.truncation import fit
from router.response.machine import MachineOptions
from router.response.tokens import answers, estimate_tokens, prompt_chars
from router.settings.schema import EndpointSettings

__all__ = ["ModelSet", "assembles", "dropped_note", "machine_options", "within_context"]

_FRAME_TOKENS: Final = 4
"""What an item costs beside its text: its role and its ends."""

_LIMITS: Final = ("max_output_tokens", "max_completion_tokens", "max_tokens")

_RESERVED_PART: Final = 4
"""One part in so many is kept free for an answer of unknown length."""


def assembles(exchange: Exchange, endpoint: EndpointSettings) -> bool:
    """Whether the endpoint is asked for a stream of an answer that is wanted in one piece.

    Not of several answers at once, whose streams servers cut in ways of their own (llama.cpp has
    events of ``null`` between them), and not of speech, which is encoded otherwise in streams.
    """
    if exchange.stream or not endpoint.stream_whole_answers:
        return False
    body = exchange.body
    return answers(body) == 1 and "audio" not in (body.get("modalities") or ())


def machine_options(body: dict[str, Any], *, forced_call: bool = False) -> MachineOptions:
    """The options for reading the answer to this request."""
    return MachineOptions(
        custom_tools=custom_tool_names(body),
        forced_call=forced_call,
        logprobs=wants_logprobs(body),
        request=body,
    )


def dropped_note(body: dict[str, Any]) -> dict[str, str]:
    """The header that says how much encrypted reasoning a translated endpoint was not sent: only
    the account that issued it can read it.
    """
    items = body.get("input")
    if isinstance(items, list) and (lost := sum(_is_encrypted(item) for item in items)):
        return {REASONING_DROPPED: str(lost)}
    return {}


def within_context(
    exchange: Exchange, body: dict[str, Any], context: int | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The body, of a response or of a chat, as it fits into a context of so many tokens, where it
    is to be cut (``Exchange.truncates``) and the context is known; and the header that says how
    many items or messages were dropped.
    """
    if context is None or not exchange.truncates:
        return body, {}
    field = "messages" if "messages" in body else "input"
    items = body.get(field)
    if not isinstance(items, list):
        return body, {}
    fixed = {name: body.get(name) for name in ("instructions", "tools")}
    budget = context - _reserve(body, context) - _tokens(fixed)
    kept, dropped = fit(
        items,
        budget_tokens=budget,
        count=lambda item: _FRAME_TOKENS + _tokens({field: [item]}),
        calls=(match_messages if field == "messages" else match)(items).calls,
    )
    if not dropped:
        return body, {}
    return {**body, field: kept}, {"X-Pointsman-Truncated": str(dropped)}


def _reserve(body: dict[str, Any], context: int) -> int:
    """The tokens kept free for the answer. A limit that is no limit says nothing of its length."""
    limits = (body.get(name) for name in _LIMITS)
    limit = next((most for most in limits if type(most) is int and most > 0), context)
    return limit if limit < context else context // _RESERVED_PART


def _tokens(fields: dict[str, Any]) -> int:
    return estimate_tokens(prompt_chars(fields))


def _is_encrypted(item: dict[str, Any]) -> bool:
    return item.get("type") == "reasoning" and bool(item.get("encrypted_content"))


_MAX_MODELS: Final = 1024


class ModelSet:
    """The models of which something was learned; past a bound the oldest is forgotten."""

    def __init__(self) -> None:
        self._models: dict[str, None] = {}

    def __contains__(self, model: str) -> bool:
        return model in self._models

    def discard(self, model: str) -> None:
        """It was not so."""
        self._models.pop(model, None)

    def add(self, model: str) -> None:
        """It was learned of this model."""
        self._models[model] = None
        if len(self._models) > _MAX_MODELS:
            del self._models[next(iter(self._models))]
