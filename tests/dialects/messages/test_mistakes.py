"""What is wrong with a request of the Messages API; whatever is not, is valid everywhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.messages.decode_request import DecodedMessagesRequest, decode_messages_request
from router.dialects.messages.thinking import sign
from router.dialects.ollama.encode_request import encode_ollama_request
from router.dialects.responses.encode_request import encode_responses_request
from router.dialects.responses.schema import validate_create
from router.errors import InvalidRequest
from tests.support.anthropic import PDF, PNG, SAID, TOOL, asked
from tests.support.chat import encoded
from tests.support.reading import FUZZ

SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def in_user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def in_assistant(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "content": list(blocks)}]}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"model": ...}, "model"),
        ({"model": 3}, "model"),
        ({"model": ""}, "model"),
        ({"max_tokens": ...}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"messages": ...}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages"),
        ({"messages": [3]}, "messages.0"),
        ({"messages": [{"content": "a"}]}, "messages.0.role"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages.0.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages.0.content"),
        (in_user("a"), "messages.0.content.0"),
        (in_user({"text": "a"}), "messages.0.content.0.type"),
        (in_user({"type": "tool_use"}), "messages.0.content.0.type"),
        (in_user({"type": "text", "text": "a"}, {"type": "audio"}), "messages.0.content.1.type"),
        (in_user({"type": "container_upload"}), "messages.0.content.0.type"),
        (in_user({"type": "text", "text": 3}), "messages.0.content.0.text"),
        (in_user({"type": "image"}), "messages.0.content.0.source"),
        (in_user({"type": "image", "source": {"type": "file", "file_id": "f"}}),
         "messages.0.content.0.source.type"),
        (in_user({"type": "image", "source": {**PNG, "media_type": "image/tiff"}}),
         "messages.0.content.0.source.media_type"),
        (in_user({"type": "image", "source": {**PNG, "data": None}}),
         "messages.0.content.0.source.data"),
        (in_user({"type": "document", "source": {**PDF, "media_type": "text/csv"}}),
         "messages.0.content.0.source.media_type"),
        (in_user({"type": "document", "source": {"type": "content", "content": [PDF]}}),
         "messages.0.content.0.source.content.0.type"),
        (in_user({"type": "tool_result"}), "messages.0.content.0.tool_use_id"),
        (in_user({"type": "tool_result", "tool_use_id": "a", "content": 3}),
         "messages.0.content.0.content"),
        (in_user({"type": "tool_result", "tool_use_id": "a", "content": [{"type": "x"}]}),
         "messages.0.content.0.content.0.type"),
        (in_user({"type": "tool_result", "tool_use_id": "a", "is_error": "no"}),
         "messages.0.content.0.is_error"),
        (in_assistant({"type": "image", "source": PNG}), "messages.0.content.0.type"),
        (in_assistant({"type": "server_tool_use"}), "messages.0.content.0.name"),
        (in_assistant({"type": "web_search_tool_result"}), "messages.0.content.0.tool_use_id"),
        (in_assistant({"type": "web_fetch_tool_result"}), "messages.0.content.0.type"),
        (in_assistant({"type": "tool_use", "id": "a", "name": "n", "input": "{}"}),
         "messages.0.content.0.input"),
        (in_assistant({"type": "thinking"}), "messages.0.content.0.thinking"),
        (in_assistant({"type": "redacted_thinking"}), "messages.0.content.0.data"),
        ({"system": 3}, "system"),
        ({"system": [{"type": "image"}]}, "system.0.type"),
        ({"temperature": 1.1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"top_p": -1}, "top_p"),
        ({"top_k": 0}, "top_k"),
        ({"stream": "yes"}, "stream"),
        ({"stop_sequences": "a"}, "stop_sequences"),
        ({"stop_sequences": ["a", 1]}, "stop_sequences.1"),
        ({"stop_sequences": [""]}, "stop_sequences.0"),
        ({"metadata": {"user_id": 1}}, "metadata.user_id"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"thinking": {}}, "thinking.type"),
        ({"thinking": {"type": "on"}}, "thinking.type"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 10}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "max_tokens"),
        ({"thinking": {"type": "adaptive", "display": "all"}}, "thinking.display"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "json"}}}, "output_config.format.type"),
        ({"output_format": {"type": "json_schema"}}, "output_format.schema"),
        ({"tools": {}}, "tools"),
        ({"tools": [{}]}, "tools.0.name"),
        ({"tools": [{"name": ""}]}, "tools.0.name"),
        ({"tools": [{"name": "a"}]}, "tools.0.input_schema"),
        ({"tools": [TOOL, TOOL]}, "tools.1.name"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools.0.type"),
        ({"tools": [{"type": "web_search_latest", "name": "a"}]}, "tools.0.type"),
        ({"tools": [{**SEARCH, "max_uses": 0}]}, "tools.0.max_uses"),
        ({"tools": [{**SEARCH, "max_uses": "3"}]}, "tools.0.max_uses"),
        ({"tools": [{**SEARCH, "blocked_domains": "b.org"}]}, "tools.0.blocked_domains"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": {"type": "required"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "b"}}, "tool_choice.name"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_messages_request(asked(**fields))
    assert caught.value.param == path
    assert caught.value.message.startswith(f"{path}: ")
    assert len(caught.value.message) < 400


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5000) | st.text(max_size=3)
    | st.sampled_from(["text", "tool_use", "thinking", "image", "enabled", "user", "assistant"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["type", "text", "role", "content", "id", "name", "input", "source", "thinking",
             "signature", "data", "media_type", "input_schema", "tool_use_id", "effort",
             "format", "schema", "display", "budget_tokens", "user_id"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip
FIELDS = st.sampled_from(
    ["messages", "system", "tools", "tool_choice", "thinking", "output_config", "output_format",
     "metadata", "stop_sequences", "temperature", "top_k", "stream", "service_tier", "model"]
)  # fmt: skip


@FUZZ
@given(st.dictionaries(FIELDS, JSON, max_size=4))
def test_whatever_is_sent_is_refused_or_makes_a_valid_request(fields: dict[str, Any]) -> None:
    body = {**asked(), **fields}
    found = accepted(body)
    if found is None:
        with pytest.raises(InvalidRequest) as caught:
            decode_messages_request(body)
        assert caught.value.param
    else:
        check_everywhere(found)


def accepted(body: dict[str, Any]) -> DecodedMessagesRequest | None:
    try:
        return decode_messages_request(body)
    except InvalidRequest:
        return None


def check_everywhere(found: DecodedMessagesRequest) -> None:
    """It can be sent to an endpoint of each dialect."""
    validate_create(found.body)
    encode_responses_request(found.body, model="m", stream=False, account="a")
    assert encoded(found.body, model="m", stream=False)[0]["messages"]
    assert encode_ollama_request(found.body, model="m", stream=False, num_ctx=None)[0]["messages"]


BLOCKS = st.sampled_from(
    [
        {"type": "text", "text": "a"},
        {"type": "text", "text": ""},
        {"type": "thinking", "thinking": "t", "signature": sign("pm1.a.b")},
        {"type": "redacted_thinking", "data": sign("pm1.a.b")},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": [1]}},
        {"type": "tool_use", "id": "c2", "name": "look", "input": {}},
    ]
)
ANSWERS = st.sampled_from(
    [
        {"type": "text", "text": "a"},
        {"type": "image", "source": PNG},
        {"type": "tool_result", "tool_use_id": "c1", "content": "r"},
        {"type": "tool_result", "tool_use_id": "c2", "content": [], "is_error": True},
    ]
)


@FUZZ
@given(
    st.lists(
        st.one_of(
            st.builds(lambda c: {"role": "assistant", "content": c}, st.lists(BLOCKS, max_size=4)),
            st.builds(lambda c: {"role": "user", "content": c}, st.lists(ANSWERS, max_size=4)),
        ),
        max_size=5,
    )
)
def test_any_history_is_valid_everywhere(messages: list[Any]) -> None:
    found = decode_messages_request(asked(messages=[*messages, {"role": "user", "content": "Hi"}]))
    assert found.body["input"][-1:] == SAID
    check_everywhere(found)
