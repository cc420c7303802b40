"""What the description says of a request's body is what the router's own validation says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from router.dialects.chat.schema import check_chat
from router.dialects.embeddings.schema import check_completions, check_embeddings, check_rerank
from router.dialects.messages.decode_request import decode_messages_request
from router.dialects.ollama.decode_request import decode_chat_request, decode_generate_request
from router.dialects.ollama.embeddings import embed_request
from router.dialects.responses.conversations import parse_added, parse_new
from router.dialects.responses.prompts import parse_changes, parse_prompt
from router.dialects.responses.schema import validate_create
from router.errors import InvalidRequest
from tests.description.test_document import DOCUMENT, faults

Check = Callable[[dict[str, Any]], object]

USER: Final = {"role": "user", "content": "hi"}
FUNCTION: Final = {"type": "function", "name": "f"}


def schema(method: str, path: str) -> dict[str, Any]:
    operation = DOCUMENT["paths"][path][method]
    found: dict[str, Any] = operation["requestBody"]["content"]["application/json"]["schema"]
    return found


def agrees(described: dict[str, Any], check: Check, body: dict[str, Any]) -> bool:
    """Whether both say the same; what that is."""
    refusal = None
    try:
        check(body)
    except InvalidRequest as error:
        refusal = error.message
    found = faults(described, body)
    assert bool(found) == (refusal is not None), (found, refusal)
    return refusal is None


CREATE: Final[list[tuple[dict[str, Any], bool]]] = [
    ({"model": "m", "input": "hi"}, True),
    ({"model": "m", "input": ""}, True),
    ({"model": "m", "input": "hi", "temperature": None, "extra": {"a": 1}}, True),
    ({"model": "m"}, False),
    ({"model": "m", "input": []}, False),
    ({"model": "", "input": "hi"}, False),
    ({"model": None, "input": "hi"}, False),
    ({"input": "hi"}, False),
    ({"prompt": {"id": "p"}}, True),
    ({"prompt": {"name": "p", "version": 3, "variables": {"a": "b", "c": None}}}, True),
    ({"prompt": {"id": ""}}, False),
    ({"prompt": {"id": "p", "version": "0"}}, False),
    ({"prompt": {"id": "p", "variables": {"a": {"type": "input_text"}}}}, False),
    ({"model": "m", "previous_response_id": "resp_1"}, True),
    ({"model": "m", "previous_response_id": ""}, False),
    ({"model": "m", "previous_input_messages": [USER]}, True),
    ({"model": "m", "previous_input_messages": []}, False),
    ({"model": "m", "previous_input_messages": "hi"}, False),
    ({"model": "m", "input": "hi", "previous_input_messages": [{"role": "user"}]}, False),
    ({"model": "m", "input": "hi", "previous_input_messages": [{"content": "hi"}]}, False),
    (
        {
            "model": "m",
            "previous_input_messages": [
                {"author": {"role": "assistant"}, "recipient": "f", "content": "{}"},
                {"role": "tool", "name": "f", "content": [{"type": "text", "text": "1"}]},
            ],
        },
        True,
    ),
    ({"model": "m", "input": "hi", "enable_response_messages": True}, True),
    ({"model": "m", "input": "hi", "enable_response_messages": 1}, False),
    ({"model": "m", "conversation": {"id": "conv_1"}}, True),
    ({"model": "m", "conversation": {}}, False),
    ({"model": "m", "conversation": "c", "previous_response_id": "r"}, False),
    ({"model": "m", "input": [USER]}, True),
    ({"model": "m", "input": [{"role": "nobody", "content": "hi"}]}, False),
    ({"model": "m", "input": [{"role": "user"}]}, False),
    ({"model": "m", "input": [{"role": "user", "content": [{"type": "input_text"}]}]}, False),
    ({"model": "m", "input": [{"role": "user", "content": [{"type": "input_image"}]}]}, False),
    (
        {
            "model": "m",
            "input": [
                {"role": "user", "content": [{"type": "input_image", "image_url": "https://a"}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "1"},
                {"type": "item_reference", "id": "msg_1"},
                {"type": "reasoning", "summary": []},
                {"type": "web_search_call", "id": "ws_1"},
            ],
        },
        True,
    ),
    ({"model": "m", "input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, False),
    ({"model": "m", "input": [{"type": "function_call_output", "call_id": "c"}]}, False),
    ({"model": "m", "input": [{"type": "something"}]}, False),
    ({"model": "m", "input": "hi", "instructions": 1}, False),
    ({"model": "m", "input": "hi", "stream": "yes"}, False),
    ({"model": "m", "input": "hi", "temperature": 2.1}, False),
    ({"model": "m", "input": "hi", "temperature": True}, False),
    ({"model": "m", "input": "hi", "top_p": -0.1}, False),
    ({"model": "m", "input": "hi", "max_output_tokens": 0}, False),
    ({"model": "m", "input": "hi", "top_logprobs": 21}, False),
    ({"model": "m", "input": "hi", "truncation": "some"}, False),
    ({"model": "m", "input": "hi", "include": ["a", 1]}, False),
    ({"model": "m", "input": "hi", "safety_identifier": "x" * 65}, False),
    ({"model": "m", "input": "hi", "metadata": {str(n): "" for n in range(17)}}, False),
    ({"model": "m", "input": "hi", "metadata": {"k" * 65: ""}}, False),
    ({"model": "m", "input": "hi", "metadata": {"k": "v" * 513}}, False),
    ({"model": "m", "input": "hi", "metadata": {"k": None}}, False),
    ({"model": "m", "input": "hi", "reasoning": {"effort": "much"}}, False),
    ({"model": "m", "input": "hi", "reasoning": {"effort": "low", "summary": None}}, True),
    ({"model": "m", "input": "hi", "text": {"format": {"type": "json_schema"}}}, False),
    ({"model": "m", "input": "hi", "text": {"format": {"type": "xml"}}}, False),
    ({"model": "m", "input": "hi", "tools": [FUNCTION, {"type": "web_search_2025_08_26"}]}, True),
    ({"model": "m", "input": "hi", "tools": [{"type": "function"}]}, False),
    ({"model": "m", "input": "hi", "tools": [{"type": "function", "name": ""}]}, False),
    ({"model": "m", "input": "hi", "tools": [{**FUNCTION, "parameters": []}]}, False),
    ({"model": "m", "input": "hi", "tools": [{"type": "hammer"}]}, False),
    ({"model": "m", "input": "hi", "tool_choice": "required"}, True),
    ({"model": "m", "input": "hi", "tool_choice": FUNCTION}, True),
    ({"model": "m", "input": "hi", "tool_choice": "perhaps"}, False),
    ({"model": "m", "input": "hi", "tool_choice": {"type": "allowed_tools"}}, False),
]


@pytest.mark.parametrize(("body", "well"), CREATE)
def test_a_response(body: dict[str, Any], well: bool) -> None:
    assert agrees(schema("post", "/v1/responses"), validate_create, body) is well


OTHERS: Final[list[tuple[str, str, Check, dict[str, Any], bool]]] = [
    ("post", "/v1/conversations", parse_new, {}, True),
    ("post", "/v1/conversations", parse_new, {"items": [USER] * 20}, True),
    ("post", "/v1/conversations", parse_new, {"items": [USER] * 21}, False),
    ("post", "/v1/conversations", parse_new, {"items": [{"type": "compaction_trigger"}]}, False),
    ("post", "/v1/conversations", parse_new, {"metadata": {"a": 1}}, False),
    ("post", "/v1/conversations/{id}/items", parse_added, {"items": []}, False),
    ("post", "/v1/conversations/{id}/items", parse_added, {"items": [USER]}, True),
    ("post", "/v1/prompts", parse_prompt, {"name": "p", "instructions": "x", "odd": 1}, True),
    ("post", "/v1/prompts", parse_prompt, {"name": "-p"}, False),
    ("post", "/v1/prompts", parse_prompt, {"instructions": "x"}, False),
    ("post", "/v1/prompts", parse_prompt, {"name": "p", "stream": True}, False),
    ("post", "/v1/prompts", parse_prompt, {"name": "p", "temperature": 3}, False),
    ("put", "/v1/prompts/{id}", parse_changes, {"description": None}, True),
    ("put", "/v1/prompts/{id}", parse_changes, {"name": None}, False),
    ("put", "/v1/prompts/{id}", parse_changes, {"description": "x" * 4097}, False),
    ("post", "/v1/chat/completions", check_chat, {"model": "m", "messages": [USER]}, True),
    ("post", "/v1/chat/completions", check_chat, {"model": "m"}, False),
    ("post", "/v1/chat/completions", check_chat, {"model": "m", "messages": ["hi"]}, False),
    ("post", "/v1/embeddings", check_embeddings, {"model": "m", "input": ["a", "b"]}, True),
    ("post", "/v1/embeddings", check_embeddings, {"model": "m", "input": [[1, 2], [3]]}, True),
    ("post", "/v1/embeddings", check_embeddings, {"model": "m", "input": ""}, False),
    ("post", "/v1/embeddings", check_embeddings, {"model": "m", "input": ["a", 1]}, False),
    ("post", "/v1/embeddings", check_embeddings, {"model": "m", "input": [-1]}, False),
    ("post", "/v1/embeddings", check_embeddings, {"model": "m", "input": ["a"] * 2049}, False),
    ("post", "/v1/completions", check_completions, {"model": "m", "prompt": ""}, True),
    ("post", "/v1/completions", check_completions, {"model": "m", "prompt": []}, False),
    ("post", "/v1/completions", check_completions, {"model": "m", "prompt": "a", "n": 0}, False),
    ("post", "/v1/rerank", check_rerank, {"model": "m", "query": "q", "documents": ["a"]}, True),
    ("post", "/v1/rerank", check_rerank, {"model": "m", "query": "q", "documents": [{}]}, False),
    ("post", "/v1/rerank", check_rerank, {"model": "m", "query": "", "documents": ["a"]}, False),
]


@pytest.mark.parametrize(("method", "path", "check", "body", "well"), OTHERS)
def test_another_of_openais(
    method: str, path: str, check: Check, body: dict[str, Any], well: bool
) -> None:
    assert agrees(schema(method, path), check, body) is well


MESSAGE: Final = {"model": "m", "max_tokens": 9, "messages": [USER]}
FOREIGN: Final[list[tuple[str, Check, dict[str, Any], bool]]] = [
    ("/v1/messages", decode_messages_request, MESSAGE, True),
    ("/v1/messages", decode_messages_request, {**MESSAGE, "max_tokens": 0}, False),
    ("/v1/messages", decode_messages_request, {"model": "m", "messages": [USER]}, False),
    ("/v1/messages", decode_messages_request, {**MESSAGE, "messages": []}, False),
    ("/v1/messages", decode_messages_request, {**MESSAGE, "temperature": 1.5}, False),
    ("/v1/messages", decode_messages_request, {**MESSAGE, "thinking": {"type": "enabled"}}, False),
    ("/v1/messages", decode_messages_request, {**MESSAGE, "tools": [{"name": "f"}]}, False),
    (
        "/v1/messages",
        decode_messages_request,
        {**MESSAGE, "tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "any"}},
        True,
    ),
    ("/v1/messages", decode_messages_request, {**MESSAGE, "stop_sequences": [""]}, False),
    ("/v1/messages", decode_messages_request, {**MESSAGE, "service_tier": "flex"}, False),
    ("/api/chat", decode_chat_request, {"model": "m", "messages": [USER]}, True),
    ("/api/chat", decode_chat_request, {"name": "m", "messages": [USER], "think": "low"}, True),
    ("/api/chat", decode_chat_request, {"messages": [USER]}, False),
    ("/api/chat", decode_chat_request, {"model": "m", "messages": [{"role": "cat"}]}, False),
    ("/api/chat", decode_chat_request, {"model": "m", "messages": [USER], "format": "xml"}, False),
    (
        "/api/chat",
        decode_chat_request,
        {"model": "m", "messages": [USER], "options": {"temperature": 3}},
        False,
    ),
    ("/api/chat", decode_chat_request, {"model": "m", "messages": [USER], "tools": [{}]}, False),
    ("/api/generate", decode_generate_request, {"model": "m", "prompt": "hi", "options": {}}, True),
    ("/api/generate", decode_generate_request, {"model": "m", "prompt": 1}, False),
    ("/api/generate", decode_generate_request, {"model": "m", "prompt": "hi", "stream": 1}, False),
    ("/api/embed", embed_request, {"model": "m", "input": ["a"]}, True),
    ("/api/embed", embed_request, {"model": "m", "input": [1]}, False),
    ("/api/embed", embed_request, {"model": "m", "input": "a", "dimensions": 0}, False),
]


@pytest.mark.parametrize(("path", "check", "body", "well"), FOREIGN)
def test_one_of_others(path: str, check: Check, body: dict[str, Any], well: bool) -> None:
    assert agrees(schema("post", path), check, body) is well
