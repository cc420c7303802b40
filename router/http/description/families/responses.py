"""The Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from router.dialects.json_schema import (
    ANYTHING,
    Schema,
    array,
    asked,
    boolean,
    constant,
    enum,
    integer,
    mapping,
    nullable,
    number,
    page_of,
    ref,
    string,
    told,
)
from router.dialects.responses.fields import SCHEMAS
from router.http.description.errors import ASKING, KEYED
from router.http.description.families.items import SCHEMAS as ITEMS
from router.http.description.headers import CACHE_CONTROL, CACHED, SERVED
from router.http.description.parts import (
    INCLUDE,
    JSON,
    PAGE,
    SSE,
    DescribedBody,
    Family,
    Op,
    SuccessResponse,
    json_answer,
    path,
    query,
    streamed,
)

__all__ = ["FAMILY"]


def _given(*names: str) -> Schema:
    """One of these fields is there, and neither null nor empty."""
    empty: Schema = {"enum": [None, "", []]}
    return {"anyOf": [{"required": [n], "properties": {n: {"not": empty}}} for n in names]}


def _with_input(*others: str) -> Schema:
    text: Schema = {"required": ["input"], "properties": {"input": {"not": {"enum": [None, []]}}}}
    return {"anyOf": [text, *_given(*others)["anyOf"]]}


_BOTH: Final[Schema] = {
    "required": ["conversation", "previous_response_id"],
    "properties": {
        name: {"not": {"type": "null"}} for name in ("conversation", "previous_response_id")
    },
}
_MESSAGES: Final = "Where the request has `enable_response_messages`."
_TOKENS: Final = told({"input_tokens": integer(0), "output_tokens": integer(0)})

_SCHEMAS: Final[Mapping[str, Schema]] = {
    **ITEMS,
    "CreateResponse": asked(
        {},
        SCHEMAS,
        allOf=[
            _given("model", "prompt"),
            _with_input(
                "previous_response_id", "conversation", "prompt", "previous_input_messages"
            ),
            {"not": _BOTH},
        ],
        description="Unknown fields are passed on.",
    ),
    "CompactResponse": asked(
        {"model": string(minLength=1)},
        {name: schema for name, schema in SCHEMAS.items() if name != "model"},
        allOf=[_with_input("previous_response_id", "previous_input_messages")],
    ),
    "Response": told(
        {
            "id": string(),
            "object": constant("response"),
            "created_at": number(0),
            "status": enum(
                "completed", "incomplete", "in_progress", "queued", "failed", "cancelled"
            ),
            "model": string(),
            "output": array(ref("Item")),
        },
        {
            "error": nullable(told({"code": string(), "message": string()})),
            "incomplete_details": nullable(mapping(ANYTHING)),
            "usage": nullable(_TOKENS),
            "store": boolean(),
            "background": nullable(boolean()),
            "previous_response_id": nullable(string()),
            "conversation": nullable(told({"id": string()})),
            "metadata": nullable(mapping(ANYTHING)),
            "tools": array(mapping(ANYTHING)),
            "temperature": nullable(number()),
            "top_p": nullable(number()),
            "input_messages": array(ref("ResponseMessage"), _MESSAGES),
            "output_messages": array(ref("ResponseMessage"), _MESSAGES),
        },
    ),
    "ResponseEvent": told(
        {"type": string("`response.created`, `response.output_text.delta` …, and at last one of "
                        "`response.completed`, `.incomplete`, `.failed`, or `error`.")},
        {"sequence_number": integer(0), "response": ref("Response")},
    ),
    "Compacted": told(
        {
            "id": string(),
            "object": constant("response.compaction"),
            "created_at": number(0),
            "output": array(ref("Item")),
        },
        {"usage": nullable(_TOKENS)},
    ),
    "Items": page_of(ref("Item")),
}  # fmt: skip

_ID: Final = path("id", "The id of a response.", "resp_0")
_HEADERS: Final = (
    *SERVED, *CACHED, "X-Pointsman-Truncated", "X-Pointsman-Reasoning-Dropped",
    "X-Pointsman-Compaction", "X-Pointsman-Store",
)  # fmt: skip
_EXAMPLE: Final = {"model": "my-model", "input": "What is a pointsman?"}
_MESSAGE: Final = {
    "id": "msg_0",
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Where trains are put together."}],
}
_RESPONSE: Final = {
    "id": "resp_0",
    "object": "response",
    "created_at": 1767225600,
    "status": "completed",
    "model": "my-model",
    "output": [_MESSAGE],
    "usage": {"input_tokens": 9, "output_tokens": 7, "total_tokens": 16},
}
_STREAM: Final = streamed(SSE, "ResponseEvent", "With `stream: true`: the events of a response.")
_DELETED: Final = told(
    {"id": string(), "object": constant("response"), "deleted": boolean()}
)  # fmt: skip

FAMILY: Final = Family(
    tag="Responses",
    description="Make responses, and fetch those that are stored.",
    prefixes=("/v1", "/api/v1"),
    schemas=_SCHEMAS,
    ops=(
        Op(
            method="POST",
            path="/responses",
            id="createResponse",
            summary="Create a response",
            description="Also over a WebSocket: a GET of this path with an upgrade opens one, on "
            "which each message `response.create` is a request.",
            parameters=(
                query("stream", boolean(), "The same as `stream: true` in the body."),
                CACHE_CONTROL,
            ),
            body=DescribedBody(ref("CreateResponse"), _EXAMPLE),
            answer=SuccessResponse(
                description="The response, or the events of one.",
                content={JSON: ref("Response"), **_STREAM},
                example=_RESPONSE,
                headers=_HEADERS,
            ),
            errors=(*ASKING, 409),
        ),
        Op(
            method="POST",
            path="/responses/input_tokens",
            id="countInputTokens",
            summary="Count the tokens of an input",
            description="Where no endpoint counts them they are estimated.",
            body=DescribedBody(ref("CreateResponse"), _EXAMPLE),
            answer=json_answer(
                "How many tokens the input has.",
                told({"object": constant("response.input_tokens"), "input_tokens": integer(0)}),
                {"object": "response.input_tokens", "input_tokens": 9},
                (*SERVED, "X-Pointsman-Estimated"),
            ),
            errors=(*ASKING, 409),
        ),
        Op(
            method="POST",
            path="/responses/compact",
            id="compactResponse",
            summary="Compact a conversation",
            description="Passed on to an endpoint that can; else the router has a model write a "
            "summary, which only a router can read.",
            body=DescribedBody(ref("CompactResponse"), _EXAMPLE),
            answer=json_answer(
                "Fewer items that stand for the input.",
                ref("Compacted"),
                {
                    "id": "resp_0",
                    "object": "response.compaction",
                    "created_at": 1767225600,
                    "output": [_MESSAGE],
                },
                _HEADERS,
            ),
            errors=(*ASKING, 409),
        ),
        Op(
            method="GET",
            path="/responses/{id}",
            id="getResponse",
            summary="Get a stored response",
            parameters=(
                _ID,
                query("stream", boolean(), "Its events, where it is a background run's."),
                query(
                    "starting_after",
                    integer(-1, 2**53),
                    "With `stream`: only events after this sequence number.",
                ),
                INCLUDE,
            ),
            answer=SuccessResponse(
                description="The response, or its events.",
                content={JSON: ref("Response"), **_STREAM},
                example=_RESPONSE,
            ),
            errors=(*KEYED, 400, 404),
        ),
        Op(
            method="DELETE",
            path="/responses/{id}",
            id="deleteResponse",
            summary="Delete a stored response",
            parameters=(_ID,),
            answer=json_answer(
                "It is gone.", _DELETED, {"id": "resp_0", "object": "response", "deleted": True}
            ),
            errors=(*KEYED, 404, 409),
        ),
        Op(
            method="POST",
            path="/responses/{id}/cancel",
            id="cancelResponse",
            summary="Cancel a background run",
            parameters=(_ID,),
            answer=json_answer("The response as it is then.", ref("Response"), _RESPONSE),
            errors=(*KEYED, 400, 404, 409),
        ),
        Op(
            method="GET",
            path="/responses/{id}/input_items",
            id="listInputItems",
            summary="List the input items of a response",
            parameters=(_ID, *PAGE, INCLUDE),
            answer=json_answer(
                "A page of items.",
                ref("Items"),
                {
                    "object": "list",
                    "data": [_MESSAGE],
                    "first_id": "msg_0",
                    "last_id": "msg_0",
                    "has_more": False,
                },
            ),
            errors=(*KEYED, 400, 404),
        ),
    ),
)
