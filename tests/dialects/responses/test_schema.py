"""What a create request may hold, and what is refused."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.dialects.responses.schema import (
    echo_fields,
    parse_create,
    parse_object,
    validate_create,
)
from router.errors import InvalidRequest

FUNCTION: dict[str, Any] = {"type": "function", "name": "f"}
GROUP: dict[str, Any] = {"type": "namespace", "name": "n", "tools": [FUNCTION]}
MISSING = "missing_required_parameter"


def body(**changes: Any) -> dict[str, Any]:
    return {"model": "m", "input": "hi", **changes}


def items(*given_items: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(given_items)}


def content(*parts: Any) -> dict[str, Any]:
    return items({"role": "user", "content": list(parts)})


def refusal(request: dict[str, Any]) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        validate_create(request)
    return caught.value


# -- parsing


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "invalid_json"),
        (b'{"model": "x", "input": ', "invalid_json"),
        (b"\xff\xfe", "invalid_json"),
        (b'{"model":"m","input":"\xc3"}', "invalid_json"),
        (b'{"model":"m","input":"\\ud800"}', "invalid_json"),
        (b'{"model":"m","input":"x","temperature":NaN}', "invalid_json"),
        (b"[" * 2000, "invalid_json"),
        (b"[]", "invalid_type"),
        (b'"text"', "invalid_type"),
        (b"null", "invalid_type"),
    ],
)
def test_what_is_no_object_is_refused(raw: bytes, code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_create(raw)
    assert (caught.value.code, caught.value.param, caught.value.status) == (code, None, 400)


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert parse_create(b'{"model":"m","input":"\\ud83d\\ude00"}')["input"] == "😀"


@pytest.mark.parametrize(("levels", "fine"), [(150, True), (240, False), (1000, False)])
def test_nesting_that_could_not_be_written_again_is_refused(levels: int, fine: bool) -> None:
    raw = b'{"model":"m","input":"x","extra":' + b"[" * levels + b"]" * levels + b"}"
    if fine:
        assert parse_create(raw)["model"] == "m"
        return
    with pytest.raises(InvalidRequest, match="levels deep"):
        parse_object(raw)


def test_parse_create_validates() -> None:
    with pytest.raises(InvalidRequest, match="'model'"):
        parse_create(b'{"input": "x"}')


# -- refusals: (body, code, param)

Case = tuple[dict[str, Any], str, str | None]

FIELDS: list[Case] = [
    ({"input": "x"}, MISSING, "model"),
    ({"model": "", "input": "x"}, MISSING, "model"),
    ({"model": None, "input": "x"}, MISSING, "model"),
    ({"model": 0, "input": "x"}, "invalid_type", "model"),
    ({"model": "m"}, MISSING, "input"),
    ({"model": "m", "input": None}, MISSING, "input"),
    ({"model": "m", "input": []}, MISSING, "input"),
    ({}, MISSING, "model"),
    (body(input=5), "invalid_type", "input"),
    (body(input={"role": "user"}), "invalid_type", "input"),
    (body(instructions=5), "invalid_type", "instructions"),
    (body(instructions=["x"]), "invalid_type", "instructions[0]"),
    (body(temperature="hot"), "invalid_type", "temperature"),
    (body(temperature=True), "invalid_type", "temperature"),
    (body(temperature=3), "decimal_above_max_value", "temperature"),
    (body(temperature=-0.1), "decimal_below_min_value", "temperature"),
    (body(top_p=1.5), "decimal_above_max_value", "top_p"),
    (body(top_logprobs=21), "integer_above_max_value", "top_logprobs"),
    (body(top_logprobs=-1), "integer_below_min_value", "top_logprobs"),
    (body(max_output_tokens=0), "integer_below_min_value", "max_output_tokens"),
    (body(max_output_tokens="9"), "invalid_type", "max_output_tokens"),
    (body(max_output_tokens=1.0), "invalid_type", "max_output_tokens"),
    (body(max_output_tokens=True), "invalid_type", "max_output_tokens"),
    (body(max_tool_calls=-1), "integer_below_min_value", "max_tool_calls"),
    (body(stream="yes"), "invalid_type", "stream"),
    (body(stream=1), "invalid_type", "stream"),
    (body(store=0), "invalid_type", "store"),
    (body(parallel_tool_calls="no"), "invalid_type", "parallel_tool_calls"),
    (body(background="no"), "invalid_type", "background"),
    (body(stream_options=True), "invalid_type", "stream_options"),
    (body(stream_options={"durable": "yes"}), "invalid_type", "stream_options.durable"),
    (body(metadata={"a": 1}), "invalid_type", "metadata.a"),
    (body(metadata={"a": None}), "invalid_type", "metadata.a"),
    (body(metadata=[]), "invalid_type", "metadata"),
    (
        body(metadata={f"k{i}": "v" for i in range(17)}),
        "object_above_max_properties",
        "metadata",
    ),
    (body(metadata={"k" * 65: "v"}), "property_name_above_max_length", "metadata"),
    (body(metadata={"k": "v" * 513}), "string_above_max_length", "metadata.k"),
    (body(safety_identifier="x" * 65), "string_above_max_length", "safety_identifier"),
    (body(user=5), "invalid_type", "user"),
    (body(prompt_cache_key=5), "invalid_type", "prompt_cache_key"),
    (body(service_tier=5), "invalid_type", "service_tier"),
    (body(include="x"), "invalid_type", "include"),
    (body(include=["x", 5]), "invalid_type", "include[1]"),
    (body(truncation="maybe"), "invalid_value", "truncation"),
    (body(text="json"), "invalid_type", "text"),
    (body(text={"verbosity": "loud"}), "invalid_value", "text.verbosity"),
    (body(text={"format": "json"}), "invalid_type", "text.format"),
    (body(text={"format": {}}), MISSING, "text.format.type"),
    (body(text={"format": {"type": "xml"}}), "invalid_value", "text.format.type"),
    (body(text={"format": {"type": "json_schema", "schema": {}}}), MISSING, "text.format.name"),
    (body(text={"format": {"type": "json_schema", "name": "n"}}), MISSING, "text.format.schema"),
    (
        body(text={"format": {"type": "json_schema", "name": "n", "schema": "s"}}),
        "invalid_type",
        "text.format.schema",
    ),
    (
        body(text={"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": 1}}),
        "invalid_type",
        "text.format.strict",
    ),
    (body(reasoning="high"), "invalid_type", "reasoning"),
    (body(reasoning={"effort": "huge"}), "invalid_value", "reasoning.effort"),
    (body(reasoning={"summary": "long"}), "invalid_value", "reasoning.summary"),
    (body(conversation=5), "invalid_type", "conversation"),
    (body(conversation={}), MISSING, "conversation.id"),
    (body(conversation=""), "empty_string", "conversation"),
    (body(conversation="invalid"), "invalid_value", "conversation"),
    (body(conversation={"id": "invalid"}), "invalid_value", "conversation.id"),
    (body(max_tool_calls=0), "integer_below_min_value", "max_tool_calls"),
    (body(presence_penalty=3), "decimal_above_max_value", "presence_penalty"),
    (body(conversation={"id": ""}), "empty_string", "conversation.id"),
    (body(previous_response_id={}), "invalid_type", "previous_response_id"),
    ({"model": "m", "previous_response_id": ""}, "empty_string", "previous_response_id"),
    (body(prompt="p"), "invalid_type", "prompt"),
    (body(prompt={}), MISSING, "prompt.id"),
    (
        body(conversation={"id": "conv_1"}, previous_response_id="resp_1"),
        "mutually_exclusive_parameters",
        None,
    ),
    (body(background=True, store=False), "unsupported_parameter", "background"),
]

TOOLS: list[Case] = [
    (body(tools="no"), "invalid_type", "tools"),
    (body(tools=["no"]), "invalid_type", "tools[0]"),
    (body(tools=[{}]), MISSING, "tools[0].type"),
    (body(tools=[FUNCTION, {"type": "no_such_tool"}]), "invalid_value", "tools[1].type"),
    (body(tools=[{"type": 5}]), "invalid_type", "tools[0].type"),
    (body(tools=[{"type": []}]), "invalid_type", "tools[0].type"),
    (body(tools=[{"type": "web_search\r\nX: y"}]), "invalid_value", "tools[0].type"),
    (body(tools=[{"type": "function"}]), MISSING, "tools[0].name"),
    (body(tools=[{"type": "custom"}]), MISSING, "tools[0].name"),
    (body(tools=[{"type": "function", "name": ""}]), "invalid_value", "tools[0].name"),
    (body(tools=[{**FUNCTION, "parameters": "p"}]), "invalid_type", "tools[0].parameters"),
    (body(tools=[{**FUNCTION, "strict": "p"}]), "invalid_type", "tools[0].strict"),
    (body(tools=[{**FUNCTION, "defer_loading": 1}]), "invalid_type", "tools[0].defer_loading"),
    (body(tools=[{"type": "namespace"}]), MISSING, "tools[0].name"),
    (body(tools=[{"type": "namespace", "name": "n"}]), MISSING, "tools[0].tools"),
    (body(tools=[{**GROUP, "description": 5}]), "invalid_type", "tools[0].description"),
    (body(tools=[{**GROUP, "tools": {}}]), "invalid_type", "tools[0].tools"),
    (body(tools=[{**GROUP, "tools": [FUNCTION, 5]}]), "invalid_type", "tools[0].tools[1]"),
    (body(tools=[{**GROUP, "tools": [GROUP]}]), "invalid_value", "tools[0].tools[0].type"),
    (
        body(tools=[{**GROUP, "tools": [{"type": "web_search"}]}]),
        "invalid_value",
        "tools[0].tools[0].type",
    ),
    (
        body(tools=[{"type": "tool_search", "execution": "me"}]),
        "invalid_value",
        "tools[0].execution",
    ),
    (body(tools=[{"type": "tool_search", "execution": 1}]), "invalid_type", "tools[0].execution"),
    (
        body(tools=[{"type": "tool_search", "parameters": []}]),
        "invalid_type",
        "tools[0].parameters",
    ),
    (body(tools=[{**FUNCTION, "description": 5}]), "invalid_type", "tools[0].description"),
    (body(tool_choice="maybe"), "invalid_value", "tool_choice"),
    (body(tool_choice=5), "invalid_type", "tool_choice"),
    (body(tool_choice={}), MISSING, "tool_choice.type"),
    (body(tool_choice={"type": "function"}), MISSING, "tool_choice.name"),
    (body(tool_choice={"type": "bad"}), "invalid_value", "tool_choice.type"),
    (body(tool_choice={"type": "allowed_tools"}), MISSING, "tool_choice.mode"),
    (
        body(tool_choice={"type": "allowed_tools", "mode": "none"}),
        "invalid_value",
        "tool_choice.mode",
    ),
    (body(tool_choice={"type": "allowed_tools", "mode": "auto"}), MISSING, "tool_choice.tools"),
    (
        body(tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom"}]}),
        MISSING,
        "tool_choice.tools[0].name",
    ),
]

CALL: dict[str, Any] = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}

ITEMS: list[Case] = [
    (items({**CALL, "namespace": 5}), "invalid_type", "input[0].namespace"),
    (items({"role": "assistant", "content": "x", "phase": 5}), "invalid_type", "input[0].phase"),
    (items({"type": "additional_tools"}), MISSING, "input[0].tools"),
    (items({"type": "additional_tools", "tools": {}}), "invalid_type", "input[0].tools"),
    (
        items({"type": "additional_tools", "tools": [{"type": "function"}]}),
        MISSING,
        "input[0].tools[0].name",
    ),
    (items({"type": "tool_search_output", "call_id": "c"}), MISSING, "input[0].tools"),
    (
        items({"type": "tool_search_output", "call_id": 5, "tools": []}),
        "invalid_type",
        "input[0].call_id",
    ),
    (
        items({"type": "tool_search_call", "execution": "us", "arguments": {}}),
        "invalid_value",
        "input[0].execution",
    ),
    (items(5), "invalid_type", "input[0]"),
    (items({}), MISSING, "input[0].role"),
    (items({"role": "user"}), MISSING, "input[0].content"),
    (items({"type": "message", "content": "x"}), MISSING, "input[0].role"),
    (
        items({"role": "user", "content": "x"}, {"role": "wizard", "content": "x"}),
        "invalid_value",
        "input[1].role",
    ),
    (items({"role": ["user"], "content": "x"}), "invalid_type", "input[0].role"),
    (items({"role": "user", "content": 5}), "invalid_type", "input[0].content"),
    (items({"type": "no_such_item", "x": 1}), "invalid_value", "input[0].type"),
    (items({"type": 5}), "invalid_type", "input[0].type"),
    (items({"type": {}}), "invalid_type", "input[0].type"),
    (items({"type": "function_call", "name": "f", "arguments": ""}), MISSING, "input[0].call_id"),
    (
        items({"type": "function_call", "name": "f", "call_id": "c"}),
        MISSING,
        "input[0].arguments",
    ),
    (
        items({"type": "function_call", "name": "f", "call_id": "c", "arguments": {}}),
        "invalid_type",
        "input[0].arguments",
    ),
    (items({"type": "function_call_output", "output": "x"}), MISSING, "input[0].call_id"),
    (items({"type": "function_call_output", "call_id": "c"}), MISSING, "input[0].output"),
    (
        items({"type": "function_call_output", "call_id": "c", "output": {"a": 1}}),
        "invalid_type",
        "input[0].output",
    ),
    (items({"type": "item_reference"}), MISSING, "input[0].id"),
    (content(5), "invalid_type", "input[0].content[0]"),
    (content({}), MISSING, "input[0].content[0].type"),
    (content({"type": []}), "invalid_type", "input[0].content[0].type"),
    (content({"type": "video"}), "invalid_value", "input[0].content[0].type"),
    (content({"type": "input_text"}), MISSING, "input[0].content[0].text"),
    (content({"type": "input_text", "text": 5}), "invalid_type", "input[0].content[0].text"),
    (content({"type": "refusal", "text": "x"}), MISSING, "input[0].content[0].refusal"),
    (content({"type": "input_image"}), MISSING, "input[0].content[0].image_url"),
    (
        content({"type": "input_image", "image_url": {"url": "x"}}),
        "invalid_type",
        "input[0].content[0].image_url",
    ),
    (content({"type": "input_file"}), MISSING, "input[0].content[0].file_data"),
    (content({"type": "input_audio"}), MISSING, "input[0].content[0].input_audio"),
]


@pytest.mark.parametrize(("request_body", "code", "param"), FIELDS + TOOLS + ITEMS)
def test_refused(request_body: dict[str, Any], code: str, param: str | None) -> None:
    error = refusal(request_body)
    assert (error.code, error.param) == (code, param)
    assert error.status == 400
    assert error.type == "invalid_request_error"


def test_mutual_exclusion_is_said_first() -> None:
    error = refusal({"conversation": 5, "previous_response_id": 5})
    assert error.message.startswith("Mutually exclusive parameters")


def test_a_long_value_is_quoted_in_part() -> None:
    error = refusal(body(truncation="x" * 10_000))
    assert len(error.message) < 300


# -- what passes

PART = {"type": "input_text", "text": "x"}
ACCEPTED: list[dict[str, Any]] = [
    body(tools=[GROUP, {"type": "tool_search"}, {"type": "tool_search", "execution": "client"}]),
    body(tools=[{**GROUP, "description": None, "tools": [{"type": "custom", "name": "c"}]}]),
    items({**CALL, "namespace": "n"}, {"role": "assistant", "content": "x", "phase": "commentary"}),
    items(
        {"type": "tool_search_call", "call_id": None, "arguments": {}},
        {"type": "tool_search_output", "call_id": None, "tools": [GROUP]},
        {"type": "additional_tools", "role": "developer", "tools": [GROUP]},
    ),
    body(),
    body(input=""),
    {"model": "m", "previous_response_id": "resp_1"},
    {"model": "m", "conversation": "conv_1"},
    {"model": "m", "prompt": {"id": "p"}},
    body(
        tools=None,
        previous_response_id=None,
        metadata=None,
        stream=None,
        store=None,
        instructions=None,
        max_output_tokens=None,
        text=None,
        reasoning=None,
        conversation=None,
        include=None,
        tool_choice=None,
        background=None,
    ),
    body(max_tokens=100000, top_k=5, seed=1, request_id="r", nomyo={"cache": True}),
    body(max_output_tokens=1, temperature=0, top_p=0, top_logprobs=20, max_tool_calls=1),
    body(instructions=[{"role": "developer", "content": "x"}]),
    body(text={"format": None, "verbosity": None}, reasoning={"effort": None}),
    body(background=True),
    body(include=["something.new"]),
    body(metadata={f"{i:064}": "v" * 512 for i in range(16)}),
    body(tools=[FUNCTION, {"type": "custom", "name": "c"}, {"type": "web_search_2025_08_26"}]),
    body(tools=[{**FUNCTION, "parameters": None, "strict": None, "description": None}]),
    body(tools=[{"type": "web_search_preview_2025_03_11"}, {"type": "file_search"}]),
    body(tools=[FUNCTION], tool_choice={"type": "function", "name": "f"}),
    body(tool_choice={"type": "mcp", "server_label": "s"}),
    body(tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [FUNCTION]}),
    items({"id": "msg_1"}),
    items({"type": None, "role": "user", "content": "x"}),
    items({"role": "assistant", "content": [PART, {"type": "refusal", "refusal": "no"}]}),
    items({"role": "user", "content": []}),
    items({"type": "reasoning", "id": "lol", "summary": [], "content": [{"type": "x"}]}),
    items({"type": "reasoning", "summary": [], "encrypted_content": None}),
    items({"type": "function_call_output", "call_id": "c", "output": [PART]}),
    items({"type": "web_search_call", "id": "ws_1", "status": "completed"}),
    content({"type": "input_image", "file_id": "file_1", "detail": None}),
    content({"type": "input_file", "file_url": "https://example.com/a.pdf"}),
]


@pytest.mark.parametrize("request_body", ACCEPTED)
def test_accepted(request_body: dict[str, Any]) -> None:
    before = copy.deepcopy(request_body)
    validate_create(request_body)
    echo_fields(request_body, model="m")
    assert request_body == before


# -- whatever comes

TEXT = st.text("ab\u00e9\u0000\U0001f600", max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
KNOWN_FIELDS = sorted({name for request, _, _ in FIELDS + TOOLS for name in request})
WORDS = st.sampled_from(
    [
        "message", "function_call", "function_call_output", "item_reference", "reasoning", "user",
        "assistant", "input_text", "input_image", "input_file", "input_audio", "json_schema",
        "function", "custom", "mcp", "allowed_tools", "auto", "required",
    ]
)  # fmt: skip
KEYS = st.sampled_from(
    [
        "type", "role", "content", "text", "call_id", "name", "arguments", "output", "id", "mode",
        "tools", "format", "schema", "effort", "image_url", "file_data", "parameters",
    ]
)  # fmt: skip
NEARLY = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2000) | TEXT | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


def refused_or_none(request_body: Any) -> InvalidRequest | None:
    try:
        parse_create(json.dumps(request_body).encode())
    except InvalidRequest as error:
        return error
    echo_fields(request_body, model="m")
    return None


@given(JSON)
def test_arbitrary_json_raises_nothing_else(value: Any) -> None:
    error = refused_or_none(value)
    assert error is not None
    assert error.code


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from(KNOWN_FIELDS), NEARLY, max_size=4))
def test_arbitrary_fields_raise_nothing_else(fields: dict[str, Any]) -> None:
    error = refused_or_none({"model": "m", "input": "x", **fields})
    assert error is None or error.code


@settings(max_examples=150)
@given(st.lists(NEARLY, min_size=1, max_size=3))
def test_arbitrary_items_raise_nothing_else(given_items: list[Any]) -> None:
    error = refused_or_none({"model": "m", "input": given_items})
    assert error is None or str(error.param).startswith("input")
