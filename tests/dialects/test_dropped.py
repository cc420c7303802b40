"""What of a request each dialect is not sent: nothing that was asked for goes unsaid."""

from __future__ import annotations

from typing import Any

import pytest

from router.dialects.dropped import is_default
from router.dialects.ollama.encode_request import encode_ollama_request
from router.dialects.responses.encode_request import encode_responses_request, known_fields
from router.dialects.responses.fields import RESPONSES_FIELDS, ROUTERS
from router.dialects.responses.schema import validate_create
from tests.support.chat import encoded

FUNCTION = {"type": "function", "name": "f"}

FIELDS: dict[str, tuple[Any, str, str]] = {
    # field: (a value that asks for something, what becomes of it for chat, and for Ollama)
    "background": (True, "router", "router"),
    "client_metadata": ({"thread": "t"}, "router", "router"),
    "context_management": ([{"type": "compaction"}], "dropped", "dropped"),
    "conversation": ("conv_1", "router", "router"),
    "include": (["message.output_text.logprobs"], "sent", "sent"),
    "input": ("hi", "sent", "sent"),
    "instructions": ("Be brief.", "sent", "sent"),
    "max_output_tokens": (16, "sent", "sent"),
    "max_tool_calls": (3, "router", "router"),
    "metadata": ({"a": "b"}, "router", "router"),
    "model": ("m", "sent", "sent"),
    "moderation": ({"model": "x"}, "dropped", "dropped"),
    "parallel_tool_calls": (False, "sent", "dropped"),
    "previous_response_id": ("resp_1", "router", "router"),
    "prompt": ({"id": "pmpt_1"}, "router", "router"),
    "prompt_cache_key": ("k", "sent", "router"),
    "prompt_cache_options": ({"ttl": "1h"}, "dropped", "dropped"),
    "prompt_cache_retention": ("24h", "dropped", "dropped"),
    "reasoning": ({"effort": "low"}, "sent", "sent"),
    "safety_identifier": ("s", "sent", "router"),
    "service_tier": ("flex", "sent", "dropped"),
    "store": (True, "router", "router"),
    "stream": (True, "router", "router"),
    "stream_options": ({"include_obfuscation": False}, "router", "router"),
    "temperature": (0.5, "sent", "sent"),
    "text": ({"format": {"type": "json_object"}}, "sent", "sent"),
    "tool_choice": ("none", "sent", "sent"),
    "tools": ([FUNCTION], "sent", "sent"),
    "top_logprobs": (2, "sent", "sent"),
    "top_p": (0.5, "sent", "sent"),
    "truncation": ("auto", "router", "sent"),
    "user": ("u", "sent", "router"),
    # Fields that Responses do not have.
    "cache": ({"ttl": 5}, "router", "router"),
    "nomyo": ({"cache": True}, "router", "router"),
    "frequency_penalty": (1, "sent", "sent"),
    "function_call": ({"name": "f"}, "dropped", "dropped"),
    "functions": ([{"name": "f"}], "dropped", "dropped"),
    "guided_regex": ("a+", "sent", "dropped"),
    "keep_alive": (0, "sent", "dropped"),
    "logit_bias": ({"1": 2}, "sent", "dropped"),
    "max_completion_tokens": (9, "sent", "sent"),
    "max_tokens": (9, "sent", "sent"),
    "messages": ([{"role": "user"}], "dropped", "dropped"),
    "min_p": (0.1, "sent", "sent"),
    "n": (2, "dropped", "dropped"),
    "num_ctx": (4096, "sent", "dropped"),
    "prediction": ({"type": "content"}, "sent", "dropped"),
    "presence_penalty": (1, "sent", "sent"),
    "seed": (1, "sent", "sent"),
    "stop": (["x"], "sent", "sent"),
    "web_search_options": ({"search_context_size": "low"}, "sent", "dropped"),
}
PLAIN = {"model": "m", "input": "hi", "tools": [FUNCTION]}


def chat(body: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    return encoded(body, model="m", stream=False)


def ollama(body: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    sent, mode = encode_ollama_request(body, model="m", stream=False, num_ctx=None)
    return sent, mode.dropped


def test_every_field_has_its_fate() -> None:
    assert FIELDS.keys() >= RESPONSES_FIELDS
    assert {name for name, (_, *fates) in FIELDS.items() if "router" in fates} <= ROUTERS


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("dialect", [chat, ollama])
def test_what_becomes_of_a_field(name: str, dialect: Any) -> None:
    value, of_chat, of_ollama = FIELDS[name]
    fate = of_chat if dialect is chat else of_ollama
    body = {**PLAIN, name: value}
    validate_create(body)
    plain, nothing = dialect(PLAIN)
    sent, dropped = dialect(body)
    assert nothing == ()
    assert dropped == ((name,) if fate == "dropped" else ())
    if PLAIN.get(name) != value:
        assert (sent != plain) == (fate == "sent")


@pytest.mark.parametrize("dialect", [chat, ollama])
@pytest.mark.parametrize(
    ("name", "value"),
    [(name, None) for name in FIELDS if name not in ("model", "input", "instructions")]
    + [
        ("n", 1),
        ("parallel_tool_calls", True),
        ("service_tier", "auto"),
        ("service_tier", "default"),
        ("logit_bias", {}),
        ("presence_penalty", 0),
        ("text", {"verbosity": "medium"}),
        ("stop", []),
        ("functions", []),
        ("messages", []),
        ("context_management", []),
        ("prompt_cache_retention", "in_memory"),
        ("reasoning", {"summary": "auto"}),
        ("include", ["reasoning.encrypted_content"]),
    ],
)
def test_a_default_is_never_named(name: str, value: Any, dialect: Any) -> None:
    assert dialect({**PLAIN, name: value})[1] == ()


def test_tools_come_first() -> None:
    body = {**PLAIN, "tools": [FUNCTION, {"type": "web_search"}], "n": 2, "moderation": {"a": 1}}
    assert chat(body)[1] == ("web_search", "moderation", "n")
    assert ollama(body)[1] == ("web_search", "n", "moderation")


def test_a_wordiness_is_named() -> None:
    assert ollama({**PLAIN, "text": {"verbosity": "low"}})[1] == ("text.verbosity",)


def test_one_call_at_a_time_is_named_where_there_are_tools() -> None:
    assert ollama({"model": "m", "input": "hi", "parallel_tool_calls": False})[1] == ()


def test_native_endpoints_get_everything() -> None:
    body = {name: value for name, (value, *_) in FIELDS.items()}
    sent, _ = encode_responses_request(body, model="m", stream=True, account="a")
    state = {"background", "conversation", "previous_response_id", "prompt", "cache", "nomyo"}
    assert sent.keys() == body.keys() - state | {"store", "stream"}


def test_but_of_another_apis_request_what_responses_have() -> None:
    body = {name: value for name, (value, *_) in FIELDS.items()}
    known, dropped = known_fields(body)
    assert known.keys() == RESPONSES_FIELDS
    assert set(dropped) == body.keys() - RESPONSES_FIELDS - {"cache", "nomyo"}
    assert known_fields({"model": "m", "n": 1, "stop": None, "seed": 0})[1] == ("seed",)


@pytest.mark.parametrize(
    ("name", "value", "asks"),
    [("n", 1, False), ("n", 2, True), ("n", None, False), ("x", False, True), ("x", None, False)],
)
def test_defaults(name: str, value: Any, asks: bool) -> None:
    assert is_default(name, value) != asks
