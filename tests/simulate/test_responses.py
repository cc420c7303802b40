"""The simulated Responses API over real sockets."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import openai
import orjson
import pytest
from pydantic import BaseModel
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from tests.simulate.conftest import Start
from tests.support.order import Event, OrderError, check_order, parse_sse

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}
PERSON = {
    "type": "json_schema",
    "name": "person",
    "strict": True,
    "schema": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
}
REQUESTS: dict[str, dict[str, Any]] = {
    "text": {"input": "Hello"},
    "instructions": {"input": "Why?", "instructions": "Be brief.", "metadata": {"a": "b"}},
    "summary": {"input": "Why?", "reasoning": {"effort": "high", "summary": "auto"}},
    "silent": {
        "input": "Why?",
        "reasoning": {"effort": "low"},
        "include": ["reasoning.encrypted_content"],
    },
    "calls": {"input": "The weather in Paris and Rome", "tools": [WEATHER]},
    "empty_arguments": {
        "input": "Ping",
        "tools": [{"type": "function", "name": "ping"}],
        "tool_choice": "required",
    },
    "reasoned_calls": {
        "input": "The weather in Oslo",
        "tools": [WEATHER],
        "reasoning": {"effort": "medium", "summary": "detailed"},
    },
    "structured": {"input": "Ada is 36", "text": {"format": PERSON}},
    "json": {"input": "JSON, please", "text": {"format": {"type": "json_object"}}},
    "cut": {"input": "count to 100", "max_output_tokens": 20},
    "cut_in_reasoning": {
        "input": "count",
        "max_output_tokens": 5,
        "reasoning": {"effort": "high", "summary": "auto"},
    },
    "unicode": {"input": "Say exactly: naïve 日本 👍🏽\n\ndata: x"},
}
SCHEMA = Path(__file__).parents[3] / "shared" / "data" / "openapi.reduced.json"

Validate = Callable[[str, Any], None]


@pytest.fixture(scope="module")
def validate() -> Validate:
    """Check an object against a schema of OpenAI's own document."""
    if not SCHEMA.exists():
        pytest.skip(f"{SCHEMA} is not there")
    document = json.loads(SCHEMA.read_text())
    resource = DRAFT202012.create_resource(document)
    registry = Registry().with_resource("urn:openai", resource)

    def check(name: str, value: Any) -> None:
        validator = jsonschema.Draft202012Validator(
            {"$ref": f"urn:openai#/components/schemas/{name}"}, registry=registry
        )
        validator.validate(value)

    return check


async def stream(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> list[Event]:
    asked = {"model": "sim-native", "stream": True, **body}
    async with http.post(f"{url}/v1/responses", json=asked) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["Cache-Control"] == "no-cache"
        return parse_sse(await answer.read())


async def create(
    http: aiohttp.ClientSession, url: str, body: Any, path: str = "/v1/responses"
) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else orjson.dumps({"model": "sim-native", **body})
    async with http.post(url + path, data=data) as answer:
        assert answer.content_type == "application/json"
        return answer.status, await answer.json()


def without_ids(response: dict[str, Any]) -> dict[str, Any]:
    plain = copy.deepcopy(response)
    for key in ("id", "created_at", "completed_at"):
        del plain[key]
    for item in plain["output"]:
        del item["id"]
        item.pop("call_id", None)
    return plain


@pytest.mark.parametrize("case", REQUESTS)
async def test_the_stream_keeps_the_order_and_ends_in_the_same_response(
    start: Start, http: aiohttp.ClientSession, case: str
) -> None:
    url = await start("responses")
    final = check_order(await stream(http, url, REQUESTS[case]))
    status, whole = await create(http, url, REQUESTS[case])
    assert status == 200
    assert without_ids(final) == without_ids(whole)
    usage = whole["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


@pytest.mark.parametrize("case", REQUESTS)
async def test_responses_are_valid(
    start: Start, http: aiohttp.ClientSession, validate: Validate, case: str
) -> None:
    url = await start("responses")
    _, response = await create(http, url, {**REQUESTS[case], "user": "u"})
    if case == "structured":
        # The document types an absent description as a string; OpenAI itself sends null.
        del response["text"]["format"]["description"]
    validate("Response", response)


DAMAGE: list[tuple[str, Callable[[list[Event]], Any]]] = [
    ("no created", lambda events: events.pop(0)),
    ("no terminal event", lambda events: events.pop()),
    ("a gap in the numbers", lambda events: events[4].update(sequence_number=99)),
    ("no part added", lambda events: events.pop(3)),
    ("a delta lost", lambda events: events.pop(5)),
    ("a delta changed", lambda events: events[5].update(delta="?")),
    ("another item id", lambda events: events[5].update(item_id="msg_x")),
    ("another output index", lambda events: events[5].update(output_index=1)),
    ("no text done", lambda events: events.pop(-4)),
    ("another text", lambda events: events[-4].update(text="?")),
    ("no item done", lambda events: events.pop(-2)),
    ("another output", lambda events: events[-1]["response"].update(output=[])),
    ("another id", lambda events: events[-1]["response"].update(id="resp_x")),
    ("another status", lambda events: events[-1]["response"].update(status="failed")),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGE, ids=[name for name, _ in DAMAGE])
async def test_the_order_check_notices_damage(
    start: Start,
    http: aiohttp.ClientSession,
    name: str,
    damage: Callable[[list[Event]], Any],
) -> None:
    events = await stream(http, await start("responses"), REQUESTS["text"])
    check_order(events)
    damage(events)
    if "number" not in name:
        for number, event in enumerate(events):
            event["sequence_number"] = number
    with pytest.raises(OrderError):
        check_order(events)


async def test_a_function_call_round_trip(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start("responses")
    asked = {"role": "user", "content": "The weather in Paris?"}
    _, first = await create(http, url, {"input": [asked], "tools": [WEATHER]})
    (call,) = first["output"]
    assert json.loads(call["arguments"]) == {"location": "Paris"}
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    _, second = await create(http, url, {"input": [asked, call, result], "tools": [WEATHER]})
    assert second["output"][0]["content"][0]["text"] == "According to get_weather: sunny"


async def test_hidden_reasoning_and_replayed_items_are_accepted(
    start: Start, http: aiohttp.ClientSession
) -> None:
    url = await start("responses")
    _, first = await create(http, url, REQUESTS["silent"])
    reasoning, message = first["output"]
    assert reasoning["summary"] == []
    assert reasoning["encrypted_content"]
    again = [{"role": "user", "content": "Why?"}, reasoning, message]
    status, second = await create(http, url, {"input": [*again, again[0]]})
    assert status == 200
    assert "turn 2" in second["output"][0]["content"][0]["text"]


async def test_images_are_noticed(start: Start, http: aiohttp.ClientSession) -> None:
    parts = [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
    ]
    url = await start("responses")
    _, response = await create(http, url, {"input": [{"role": "user", "content": parts}]})
    assert "I see 1 image." in response["output"][0]["content"][0]["text"]


async def test_allowed_tools_narrow_the_choice(start: Start, http: aiohttp.ClientSession) -> None:
    tools = [WEATHER, {"type": "function", "name": "get_time"}, {"type": "web_search"}]
    allowed = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "get_time"}],
    }
    body = {"input": "The weather in Rome?", "tools": tools, "tool_choice": allowed}
    _, response = await create(http, await start("responses"), body)
    assert [item["name"] for item in response["output"]] == ["get_time"]
    assert response["tool_choice"] == allowed


async def test_input_tokens_agree_with_the_usage(start: Start, http: aiohttp.ClientSession) -> None:
    url = await start("responses")
    body = {**REQUESTS["calls"], "instructions": "Be brief."}
    status, counted = await create(http, url, body, "/v1/responses/input_tokens")
    _, response = await create(http, url, body)
    assert status == 200
    assert counted == {
        "object": "response.input_tokens",
        "input_tokens": response["usage"]["input_tokens"],
    }


CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
REFUSED: list[tuple[Any, int, str | None, str | None]] = [
    (b"{", 400, "invalid_json", None),
    (b"", 400, "invalid_json", None),
    (b"[]", 400, "invalid_json", None),
    (b"{}", 400, "missing_required_parameter", "model"),
    ({}, 400, "missing_required_parameter", "input"),
    ({"input": []}, 400, "missing_required_parameter", "input"),
    ({"input": 3}, 400, "invalid_type", "input"),
    ({"input": ["x"]}, 400, "invalid_type", "input[0]"),
    ({"input": [{"role": "user"}]}, 400, "missing_required_parameter", "input[0].content"),
    ({"input": [{"role": "boss", "content": ""}]}, 400, "invalid_value", "input[0].role"),
    (
        {"input": [{"role": "user", "content": [{"type": "video"}]}]},
        400,
        "invalid_value",
        "input[0].content[0].type",
    ),
    ({"model": "gpt", "input": "x"}, 404, "model_not_found", "model"),
    ({"input": "x", "temperature": 3}, 400, "invalid_value", "temperature"),
    ({"input": "x", "top_p": "1"}, 400, "invalid_type", "top_p"),
    ({"input": "x", "max_output_tokens": 0}, 400, "invalid_value", "max_output_tokens"),
    ({"input": "x", "max_output_tokens": True}, 400, "invalid_type", "max_output_tokens"),
    ({"input": "x", "stream": "yes"}, 400, "invalid_type", "stream"),
    (
        {"input": "x", "previous_response_id": "resp_1"},
        400,
        "previous_response_not_found",
        "previous_response_id",
    ),
    ({"input": "x", "conversation": "conv_1"}, 400, "unsupported_parameter", "conversation"),
    ({"input": "x", "background": True}, 400, "unsupported_parameter", "background"),
    ({"input": "x", "prompt": {"id": "p"}}, 400, "unsupported_parameter", "prompt"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, 404, None, "input"),
    ({"input": [CALL]}, 400, None, "input"),
    ({"input": [RESULT]}, 400, None, "input"),
    ({"input": "x", "tools": [{"type": "magic"}]}, 400, "invalid_value", "tools[0].type"),
    (
        {"input": "x", "tools": [{"type": "function"}]},
        400,
        "missing_required_parameter",
        "tools[0].name",
    ),
    (
        {"input": "x", "tool_choice": {"type": "function", "name": "f"}},
        400,
        "invalid_value",
        "tool_choice",
    ),
    ({"input": "x", "tool_choice": {"type": "mcp"}}, 400, "invalid_value", "tool_choice.type"),
    (
        {"input": "x", "text": {"format": {"type": "json_schema", "name": "n"}}},
        400,
        "missing_required_parameter",
        "text.format.schema",
    ),
    (
        {"input": "x", "text": {"format": {**PERSON, "schema": {"type": "alien"}}}},
        400,
        "invalid_json_schema",
        None,
    ),
]


@pytest.mark.parametrize(("body", "status", "code", "param"), REFUSED)
async def test_bad_requests_are_told_by_field(
    start: Start,
    http: aiohttp.ClientSession,
    body: Any,
    status: int,
    code: str | None,
    param: str | None,
) -> None:
    answered, error = await create(http, await start("responses"), body)
    assert answered == status
    assert set(error) == {"error"}
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert error["error"]["message"]
    assert error["error"]["type"] == "invalid_request_error"
    assert (error["error"]["code"], error["error"]["param"]) == (code, param)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/responses/resp_1", 404),
        ("DELETE", "/v1/responses/resp_1", 404),
        ("POST", "/v1/responses/resp_1/cancel", 404),
        ("GET", "/v1/responses", 405),
        ("GET", "/v1/models/other", 404),
        ("GET", "/api/tags", 404),
    ],
)
async def test_what_is_not_there(
    start: Start, http: aiohttp.ClientSession, method: str, path: str, status: int
) -> None:
    async with http.request(method, await start("responses") + path) as answer:
        assert answer.status == status
        assert (await answer.json())["error"]["message"]


class Person(BaseModel):
    name: str
    age: int


async def test_the_official_client(start: Start) -> None:
    url = await start("responses")
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=20) as client:
        models = await client.models.list()
        assert [model.id for model in models.data] == ["sim-native"]
        text = (await client.responses.create(model="sim-native", input="count to 3")).output_text
        assert text == "1, 2, 3"
        parsed = await client.responses.parse(
            model="sim-native", input="36 years", text_format=Person
        )
        assert parsed.output_parsed == Person(name="sample name", age=36)
        async with client.responses.stream(model="sim-native", input="count to 3") as events:
            kinds = [event.type async for event in events]
            final = await events.get_final_response()
        assert kinds[-1] == "response.completed"
        assert final.output_text == "1, 2, 3"
        with pytest.raises(openai.BadRequestError, match="stores nothing"):
            await client.responses.create(
                model="sim-native", input="x", previous_response_id="resp_1"
            )
