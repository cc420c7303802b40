"""Anthropic's Messages API."""

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
    constant,
    enum,
    integer,
    mapping,
    nullable,
    number,
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
    header,
    json_answer,
    streamed,
)

__all__ = ["FAMILY"]

_LEAST_BUDGET: Final = 1024
_TEXT: Final = asked({"type": constant("text"), "text": string()})
_PICTURES: Final = enum("image/jpeg", "image/png", "image/gif", "image/webp")
_PDF: Final = constant("application/pdf")


def _encoded(media_type: Schema) -> Schema:
    return asked({"type": constant("base64"), "media_type": media_type, "data": string()})


_URL: Final = asked({"type": constant("url"), "url": string()})
_IMAGE: Final = asked({"type": constant("image"), "source": any_of(_encoded(_PICTURES), _URL)})
_DOCUMENT: Final = asked(
    {
        "type": constant("document"),
        "source": any_of(
            _encoded(_PDF),
            _URL,
            asked(
                {"type": constant("text"), "media_type": constant("text/plain"), "data": string()}
            ),
            asked(
                {
                    "type": constant("content"),
                    "content": any_of(string(), array(any_of(_TEXT, _IMAGE))),
                }
            ),
        ),
    },
    {"title": string(), "context": string()},
)
_FOUND: Final = asked(
    {
        "type": constant("search_result"),
        "title": string(),
        "source": string(),
        "content": any_of(
            string(minLength=1),
            array(
                asked({"type": constant("text"), "text": string(minLength=1)}), minItems=1
            ),
        ),
    }
)  # fmt: skip
_REFERENCE: Final = asked({"type": constant("tool_reference"), "tool_name": string()})
_CONTENT: Final = any_of(string(), array(any_of(ref("AnthropicContent"), _REFERENCE)))
_RESULT: Final = asked(
    {"type": constant("tool_result"), "tool_use_id": string()},
    {"content": _CONTENT, "is_error": boolean()},
)
_OF_MODELS: Final = any_of(
    _TEXT,
    asked(
        {
            "type": constant("tool_use"),
            "id": string(),
            "name": string(),
            "input": mapping(ANYTHING),
        }
    ),
    asked({"type": constant("thinking"), "thinking": string()}, {"signature": string()}),
    asked({"type": constant("redacted_thinking"), "data": string()}),
    asked(
        {
            "type": constant("server_tool_use"),
            "id": string(),
            "name": enum("web_search", "tool_search_tool_regex", "tool_search_tool_bm25"),
            "input": mapping(ANYTHING),
        }
    ),
    asked(
        {
            "type": constant("web_search_tool_result"),
            "tool_use_id": string(),
            "content": any_of(
                array(
                    asked(
                        {"type": constant("web_search_result"), "url": string()},
                        {"title": string(), "encrypted_content": string()},
                    )
                ),
                asked({"type": constant("web_search_tool_result_error"), "error_code": string()}),
            ),
        }
    ),
    asked(
        {
            "type": constant("tool_search_tool_result"),
            "tool_use_id": string(),
            "content": any_of(
                asked(
                    {
                        "type": constant("tool_search_tool_search_result"),
                        "tool_references": array(_REFERENCE),
                    }
                ),
                asked(
                    {"type": constant("tool_search_tool_result_error"), "error_code": string()},
                    {"error_message": string()},
                ),
            ),
        }
    ),
    asked({"type": constant("compaction")}, {"content": string()}),
)
_THINKING: Final = any_of(
    asked({"type": enum("adaptive", "between_tools")}, {"display": enum("summarized", "omitted")}),
    asked({"type": constant("disabled")}),
    asked(
        {"type": constant("enabled"), "budget_tokens": integer(_LEAST_BUDGET)},
        {"display": enum("summarized", "omitted")},
    ),
)
_FORMAT: Final = asked({"type": constant("json_schema"), "schema": mapping(ANYTHING)})

_LEAST_TURNS: Final = 1
_EDITS: Final = array(
    any_of(
        asked(
            {"type": constant("clear_thinking_20251015")},
            {
                "keep": any_of(
                    constant("all"),
                    asked({"type": constant("all")}),
                    asked({"type": constant("thinking_turns"), "value": integer(_LEAST_TURNS)}),
                )
            },
        ),
        asked(
            {"type": constant("clear_tool_uses_20250919")},
            {
                "trigger": asked({"type": enum("input_tokens", "tool_uses"), "value": integer(1)}),
                "keep": asked({"type": constant("tool_uses"), "value": integer(0)}),
                "clear_at_least": asked({"type": constant("input_tokens"), "value": integer(0)}),
                "exclude_tools": array(string()),
                "clear_tool_inputs": any_of(boolean(), array(string())),
            },
        ),
        asked({"type": constant("compact_20260112")}),
    )
)

_COUNTED: Final[Mapping[str, Schema]] = {
    "model": string(minLength=1),
    "messages": array(ref("AnthropicMessage"), minItems=1),
}
_OPTIONS: Final[Mapping[str, Schema]] = {
    "system": any_of(string(), array(_TEXT)),
    "tools": array(ref("AnthropicTool")),
    "tool_choice": any_of(
        asked({"type": enum("auto", "any", "none")}, {"disable_parallel_tool_use": boolean()}),
        asked(
            {"type": constant("tool"), "name": string()},
            {"disable_parallel_tool_use": boolean()},
        ),
    ),
    "thinking": _THINKING,
    "context_management": asked({}, {"edits": _EDITS}),
    "output_config": asked(
        {}, {"effort": enum("low", "medium", "high", "xhigh", "max"), "format": _FORMAT}
    ),
    "output_format": _FORMAT,
    "temperature": number(0, 1),
    "top_p": number(0, 1),
    "top_k": integer(1),
    "stop_sequences": array(string(minLength=1)),
    "stream": boolean(),
    "service_tier": enum("auto", "standard_only"),
    "metadata": asked({}, {"user_id": string()}),
    "cache": SCHEMAS["cache"],
}

_SCHEMAS: Final[Mapping[str, Schema]] = {
    "AnthropicContent": any_of(_TEXT, _IMAGE, _DOCUMENT, _FOUND),
    "AnthropicMessage": any_of(
        asked(
            {
                "role": constant("user"),
                "content": any_of(string(), array(any_of(ref("AnthropicContent"), _RESULT))),
            }
        ),
        asked({"role": constant("assistant"), "content": any_of(string(), array(_OF_MODELS))}),
        asked({"role": constant("system"), "content": any_of(string(), array(_TEXT))}),
    ),
    "AnthropicTool": any_of(
        asked(
            {"name": string(minLength=1), "input_schema": mapping(ANYTHING)},
            {
                "type": constant("custom"),
                "description": string(),
                "strict": boolean(),
                "defer_loading": boolean(),
            },
        ),
        asked(
            {
                "name": string(minLength=1),
                "type": string(
                    pattern="^(web_search|code_execution)_20[0-9]{6}$"
                    "|^tool_search_tool_(regex|bm25)(_20[0-9]{6})?$"
                ),
            }
        ),
    ),
    "CreateMessage": asked(
        {**_COUNTED, "max_tokens": integer(1)},
        _OPTIONS,
        description="What cannot be passed on is named in `X-Pointsman-Dropped-Parameters`.",
    ),
    "CountTokens": asked(_COUNTED, _OPTIONS),
    "AnthropicAnswer": told(
        {
            "id": string(),
            "type": constant("message"),
            "role": constant("assistant"),
            "model": string(),
            "content": array(told({"type": string()})),
            "stop_reason": nullable(string()),
            "stop_sequence": nullable(string()),
            "usage": told({"input_tokens": integer(0), "output_tokens": integer(0)}),
        }
    ),
    "AnthropicEvent": told(
        {"type": string("`message_start`, `content_block_delta` …, at last `message_stop`, or "
                        "`error`.")}
    ),
}  # fmt: skip

_SAID: Final = [{"role": "user", "content": "What is a pointsman?"}]
_BETA: Final = (
    header("anthropic-version", string(), "Not needed, and without effect here."),
    header("anthropic-beta", string(), "Without effect."),
)
_HEADERS: Final = ("request-id", *SERVED, "X-Pointsman-Reasoning-Dropped")

FAMILY: Final = Family(
    tag="Messages",
    description="Anthropic's API.",
    prefixes=("/v1", "/api/v1"),
    error="AnthropicError",
    schemas=_SCHEMAS,
    ops=(
        Op(
            method="POST",
            path="/messages",
            id="createMessage",
            summary="Create a message",
            parameters=(*_BETA, CACHE_CONTROL),
            body=DescribedBody(
                ref("CreateMessage"), {"model": "my-model", "max_tokens": 256, "messages": _SAID}
            ),
            answer=SuccessResponse(
                description="The message, or its events.",
                content={
                    JSON: ref("AnthropicAnswer"),
                    **streamed(SSE, "AnthropicEvent", "With `stream: true`: its events."),
                },
                example={
                    "id": "msg_0",
                    "type": "message",
                    "role": "assistant",
                    "model": "my-model",
                    "content": [{"type": "text", "text": "Where trains are put together."}],
                    "stop_reason": "end_turn",
                    "stop_sequence": None,
                    "usage": {"input_tokens": 9, "output_tokens": 7},
                },
                headers=(*_HEADERS, *CACHED),
            ),
            errors=ASKING,
        ),
        Op(
            method="POST",
            path="/messages/count_tokens",
            id="countTokens",
            summary="Count the tokens of a prompt",
            parameters=_BETA,
            body=DescribedBody(ref("CountTokens"), {"model": "my-model", "messages": _SAID}),
            answer=json_answer(
                "How many tokens the prompt has.",
                told({"input_tokens": integer(0)}),
                {"input_tokens": 9},
                (*_HEADERS, "X-Pointsman-Estimated"),
            ),
            errors=ASKING,
        ),
    ),
)
