"""Anthropic's Messages, for clients."""

from __future__ import annotations

from typing import Any, Final

from router.dialects.dialect import ApiRequest, ApiRoute, ClientApi
from router.dialects.messages.decode_request import decode_count_request, decode_messages_request
from router.dialects.messages.encode_stream import MessagesEncoder, TokenCountEncoder
from router.dialects.messages.schema import REQUEST_ID, anthropic_format
from router.dialects.operation import Operation

__all__ = ["API"]


def _message(body: dict[str, Any]) -> ApiRequest:
    decoded = decode_messages_request(body)
    return ApiRequest(
        decoded.body,
        lambda times: MessagesEncoder(decoded.show, times.id, decoded.edits),
        decoded.dropped,
        decoded.dropped_thinking,
    )


def _token_count(body: dict[str, Any]) -> ApiRequest:
    decoded = decode_count_request(body)
    return ApiRequest(
        decoded.body,
        lambda times: TokenCountEncoder(decoded.edits),
        decoded.dropped,
        decoded.dropped_thinking,
    )


API: Final = ClientApi(
    routes=(
        ApiRoute("/messages", Operation.MESSAGES, _message),
        ApiRoute("/messages/count_tokens", Operation.INPUT_TOKENS, _token_count),
    ),
    form=anthropic_format,
    headers=lambda request_id: {REQUEST_ID: request_id},
)
