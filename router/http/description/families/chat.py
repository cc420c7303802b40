"""Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from router.dialects.json_schema import (
    ANYTHING,
    Schema,
    any_of,
    array,
    asked,
    boolean,
    integer,
    mapping,
    nullable,
    ref,
    string,
    told,
)
from router.dialects.responses.fields import SCHEMAS
from router.http.description.errors import ASKING
from router.http.description.headers import CACHE_CONTROL, CACHED, SERVED
from router.http.description.parts import (
    JSON,
    SSE,
    DescribedBody,
    Family,
    Op,
    SuccessResponse,
    streamed,
)

__all__ = ["FAMILY"]

_MESSAGE: Final = {"role": "assistant", "content": "Where trains are put together."}
_USAGE: Final = told(
    {"prompt_tokens": integer(0), "total_tokens": integer(0)}, {"completion_tokens": integer(0)}
)

_SCHEMAS: Final[Mapping[str, Schema]] = {
    "CreateChatCompletion": asked(
        {"model": string(minLength=1), "messages": array(mapping(ANYTHING))},
        {"stream": boolean(), "stream_options": mapping(ANYTHING), "cache": SCHEMAS["cache"]},
        description="What any other field means is for the endpoint to judge, unless it speaks "
        "another API: then the fields are checked, and translated.",
    ),
    "ChatUsage": _USAGE,
    "ChatCompletion": told(
        {
            "id": string(),
            "object": string(),
            "created": integer(0),
            "model": string(),
            "choices": array(
                told(
                    {"index": integer(0), "message": told({"role": string()})},
                    {"finish_reason": nullable(string())},
                )
            ),
        },
        {"usage": nullable(ref("ChatUsage"))},
    ),
    "ChatCompletionChunk": any_of(
        told(
            {"id": string(), "choices": array(mapping(ANYTHING))},
            {"object": string(), "usage": nullable(ref("ChatUsage"))},
        ),
        ref("Error"),
        description="At last comes `[DONE]`, or an error.",
    ),
}

FAMILY: Final = Family(
    tag="Chat Completions",
    description="The older of OpenAI's APIs for conversations.",
    prefixes=("/v1", "/api/v1"),
    schemas=_SCHEMAS,
    ops=(
        Op(
            method="POST",
            path="/chat/completions",
            id="createChatCompletion",
            summary="Create a chat completion",
            description="Where the messages do not fit into the model's context, the request is "
            "refused with the code `context_length_exceeded`; with `server.chat_truncation: auto` "
            "the oldest turns are left out instead.",
            parameters=(CACHE_CONTROL,),
            body=DescribedBody(
                ref("CreateChatCompletion"),
                {
                    "model": "my-model",
                    "messages": [{"role": "user", "content": "What is a pointsman?"}],
                },
            ),
            answer=SuccessResponse(
                description="The completion, or its chunks.",
                content={
                    JSON: ref("ChatCompletion"),
                    **streamed(
                        SSE,
                        "ChatCompletionChunk",
                        "With `stream: true`: its chunks.",
                        done="[DONE]",
                    ),
                },
                example={
                    "id": "chatcmpl-0",
                    "object": "chat.completion",
                    "created": 1767225600,
                    "model": "my-model",
                    "choices": [{"index": 0, "message": _MESSAGE, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16},
                },
                headers=(*SERVED, *CACHED, "X-Pointsman-Truncated"),
            ),
            errors=ASKING,
        ),
    ),
)
