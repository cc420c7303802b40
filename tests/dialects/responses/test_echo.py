"""What a Response repeats of its request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from router.dialects.responses.schema import echo_fields, validate_create

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data"
DOCUMENT = DATA / "openapi.reduced.json"
TRACES = DATA / "ConformanceTraces" / "Responses"

needs_document = pytest.mark.skipif(not DOCUMENT.exists(), reason=f"{DOCUMENT} is not there")
needs_traces = pytest.mark.skipif(not TRACES.exists(), reason=f"{TRACES} is not there")

FUNCTION: dict[str, Any] = {"type": "function", "name": "f"}


def body(**changes: Any) -> dict[str, Any]:
    return {"model": "m", "input": "hi", **changes}


def test_defaults_are_openais() -> None:
    assert echo_fields({"model": "small", "input": "x"}, model="gpt") == {
        "background": False,
        "frequency_penalty": 0,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "model": "gpt",
        "parallel_tool_calls": True,
        "presence_penalty": 0,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "auto",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
        "metadata": {},
    }


def test_two_echoes_share_nothing_that_may_change() -> None:
    first = echo_fields({"model": "m", "input": "x"}, model="m")
    first["metadata"]["a"] = "b"
    first["tools"].append(1)
    first["reasoning"]["effort"] = "low"
    first["text"]["format"]["type"] = "changed"
    second = echo_fields({"model": "m", "input": "x"}, model="m")
    assert (second["metadata"], second["tools"]) == ({}, [])
    assert second["reasoning"]["effort"] is None
    assert second["text"]["format"] == {"type": "text"}


FULL = body(
    instructions="Be brief.",
    temperature=0,
    top_p=0.9,
    max_output_tokens=200,
    metadata={"a": "b"},
    reasoning={"effort": "low", "generate_summary": "auto"},
    store=False,
    parallel_tool_calls=False,
    conversation="conv_1",
    prompt={"id": "p"},
    seed=5,
    tool_choice={"type": "function", "name": "f"},
    tools=[
        FUNCTION,
        {**FUNCTION, "parameters": {"type": "object"}, "strict": False, "description": "d"},
        {**FUNCTION, "strict": None, "parameters": None},
        {"type": "custom", "name": "c", "description": None},
        {"type": "file_search"},
        {"type": "code_interpreter"},
        {"type": "web_search", "filters": None},
        {
            "type": "mcp",
            "server_label": "s",
            "server_url": "https://example.com",
            "authorization": "secret",
            "headers": {"X-Key": "secret"},
        },
    ],
    text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
)


def test_what_is_asked_for_is_echoed() -> None:
    echo = echo_fields(FULL, model="m")
    for name in ("instructions", "temperature", "top_p", "max_output_tokens", "metadata", "store"):
        assert echo[name] == FULL[name]
    assert echo["parallel_tool_calls"] is False
    assert echo["tool_choice"] == {"type": "function", "name": "f"}
    assert echo["reasoning"] == {"effort": "low", "summary": "auto"}
    assert echo["conversation"] == {"id": "conv_1"}
    assert echo["prompt"] == {"id": "p"}
    assert "seed" not in echo
    assert "input" not in echo
    assert echo["text"]["format"] == {
        "type": "json_schema",
        "name": "n",
        "schema": {"type": "object"},
        "strict": False,
    }


def test_tools_are_echoed_with_defaults_and_without_secrets() -> None:
    tools = echo_fields(FULL, model="m")["tools"]
    assert tools[0] == {
        "type": "function",
        "description": None,
        "name": "f",
        "parameters": None,
        "strict": True,
    }
    assert (tools[1]["strict"], tools[1]["description"]) == (False, "d")
    assert tools[2] == tools[0]
    assert tools[3] == {"type": "custom", "name": "c"}
    assert tools[4]["vector_store_ids"] == []
    assert tools[6] == {"type": "web_search"}
    assert "secret" not in json.dumps(tools)


SHOWN = [
    FULL,
    body(),
    body(tools=[FUNCTION, {"type": "custom", "name": "c"}, {"type": "web_search_2025_08_26"}]),
    body(tools=[{**FUNCTION, "strict": None, "parameters": None}], text={"verbosity": "low"}),
    body(text={"format": {"type": "json_object"}}, reasoning={"effort": "high"}),
    body(metadata=None, tools=None, text=None, reasoning=None, tool_choice=None),
    body(tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [FUNCTION]}),
    body(conversation={"id": "conv_1"}, instructions=[{"role": "developer", "content": "x"}]),
    body(max_tool_calls=3, top_logprobs=5, safety_identifier="s", truncation="auto"),
]


@pytest.fixture(scope="module")
def response_schema() -> Draft202012Validator:
    document = json.loads(DOCUMENT.read_text())
    resource = DRAFT202012.create_resource(document)
    registry: Registry[Any] = Registry().with_resource("urn:openapi", resource)
    reference = {"$ref": "urn:openapi#/components/schemas/Response"}
    return Draft202012Validator(reference, registry=registry)


@needs_document
@pytest.mark.parametrize("request_body", SHOWN)
def test_the_echo_fits_the_response_schema(
    response_schema: Draft202012Validator, request_body: dict[str, Any]
) -> None:
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        **echo_fields(request_body, model="m"),
        "output": [],
    }
    # The document says string; OpenAI's own answers have null.
    assert response.pop("user") is None
    found = [f"{list(e.absolute_path)}: {e.message}" for e in response_schema.iter_errors(response)]
    assert found == []


@needs_traces
def test_the_echo_is_that_of_recorded_answers() -> None:
    compared = 0
    for folder in sorted(TRACES.iterdir()):
        answer = folder / "response.json"
        if not answer.exists():
            continue
        request_body = json.loads((folder / "request.json").read_bytes())
        recorded = json.loads(answer.read_bytes())
        if recorded.get("error"):
            continue
        validate_create(request_body)
        echo = echo_fields(request_body, model=recorded["model"])
        # OpenAI rewrites schemas, settles the tier, and shows a description it was not given.
        echo["service_tier"] = recorded["service_tier"]
        recorded["text"]["format"].pop("description", None)
        for mine, theirs in zip(echo["tools"], recorded["tools"], strict=True):
            assert mine.keys() == theirs.keys()
            mine["parameters"] = theirs["parameters"]
        for name in ("frequency_penalty", "presence_penalty"):  # OpenResponses' only
            assert echo.pop(name) == recorded.pop(name, 0)
        for name, value in echo.items():
            assert recorded[name] == value, f"{folder.name}: {name}"
        compared += 1
    assert compared >= 5
