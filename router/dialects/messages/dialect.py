"""Anthropic's Messages, for clients and for endpoints."""

from __future__ import annotations

from typing import Any, Final

from router.dialects.dialect import ApiRequest, ApiRoute, ClientApi, EndpointDialect
from router.dialects.messages.decode_request import decode_count_request, decode_messages_request
from router.dialects.messages.decode_stream import MessagesDecoder
from router.dialects.messages.encode_request import encode_for_messages
from router.dialects.messages.encode_stream import MessagesEncoder, TokenCountEncoder
from router.dialects.messages.native import outline_body, passed_request_headers
from router.dialects.messages.schema import REQUEST_ID, anthropic_format
from router.dialects.operation import Operation

__all__ = ["API", "ENDPOINT"]

ENDPOINT: Final = EndpointDialect(encode_for_messages, MessagesDecoder, "/models?limit=1000")


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


def _outline(body: dict[str, Any]) -> ApiRequest:
    return ApiRequest(outline_body(body), lambda times: MessagesEncoder("text", times.id))


def _outline_of_count(body: dict[str, Any]) -> ApiRequest:
    return ApiRequest({**outline_body(body), "stream": False}, lambda times: TokenCountEncoder())


API: Final = ClientApi(
    routes=(
        ApiRoute("/messages", Operation.MESSAGES, _message, outline=_outline),
        ApiRoute(
            "/messages/count_tokens",
            Operation.INPUT_TOKENS,
            _token_count,
            outline=_outline_of_count,
        ),
    ),
    form=anthropic_format,
    headers=lambda request_id: {REQUEST_ID: request_id},
    dialect="messages",
    passes=passed_request_headers,
)
