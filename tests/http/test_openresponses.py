"""What OpenResponses (openresponses.org) asks of every Response, on every dialect.

The cases are those of its compliance suite that are asked by HTTP, the required fields those of its
schema's ``ResponseResource``.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.settings.schema import Dialect
from tests.support.fetch import fetch
from tests.support.fleet import http_client, routed, simulated
from tests.support.order import check_order
from tests.support.router import endpoint, routing
from tests.support.schema import faults
from tests.support.speech import DIALECTS, SPEECH
from tests.support.sse import check_responses_stream
from tests.support.upstream import Upstream, streamed, whole

JSON = dict[str, Any]

NUMBERS = {"frequency_penalty", "presence_penalty", "temperature", "top_p"}
INTEGERS = {"created_at", "top_logprobs"}
OBJECTS = {"metadata", "text"}
LISTS = {"output", "tools"}
FLAGS = {"background", "parallel_tool_calls", "store"}
TEXTS = {"id", "model", "object", "service_tier", "status", "truncation"}
MAY_BE_NULL = {
    "completed_at",
    "error",
    "incomplete_details",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "usage",
    "user",
}
KINDS: list[tuple[set[str], type | tuple[type, ...]]] = [
    (NUMBERS, (int, float)),
    (INTEGERS, int),
    (OBJECTS, dict),
    (LISTS, list),
    (FLAGS, bool),
    (TEXTS, str),
]

IMAGE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6k"
    "gAAAABJRU5ErkJggg=="
)
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather at a place",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
}


def said(role: str, content: Any) -> JSON:
    return {"type": "message", "role": role, "content": content}


CASES: dict[str, JSON] = {
    "text": {"input": [said("user", "Say hello.")]},
    "system prompt": {"input": [said("system", "Be a pirate."), said("user", "Say hello.")]},
    "tools": {"input": [said("user", "How is the weather?")], "tools": [WEATHER]},
    "image": {
        "input": [
            said(
                "user",
                [
                    {"type": "input_text", "text": "What is it?"},
                    {"type": "input_image", "image_url": IMAGE},
                ],
            )
        ]
    },
    "several turns": {
        "input": [
            said("user", "My name is Alice."),
            said("assistant", "Hello Alice!"),
            said("user", "What is my name?"),
        ]
    },
}


def check(response: JSON, *, finished: bool, output: str = "message") -> None:
    """What the schema says of a Response; ``output`` is the type of its only item."""
    for names, kind in KINDS:
        for name in names:
            assert isinstance(response[name], kind), (name, response[name])
    assert response.keys() >= MAY_BE_NULL
    assert isinstance(response["text"]["format"], dict)
    assert response["tool_choice"] in ("auto", "none", "required")
    if finished:
        assert (response["status"], type(response["completed_at"])) == ("completed", int)
        assert [item["type"] for item in response["output"]] == [output]
        assert type(response["usage"]["output_tokens_details"]["reasoning_tokens"]) is int


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_response(dialect: Dialect, case: str) -> None:
    speech = SPEECH[dialect]
    async with (
        Upstream(default=whole(speech.whole)) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(**CASES[case])
        assert reply.status == 200, reply.body
        check(reply.json, finished=True)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_stream(dialect: Dialect, case: str) -> None:
    speech = SPEECH[dialect]
    async with (
        Upstream(default=streamed(*speech.pieces, kind=speech.kind)) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(stream=True, **CASES[case])
        check(check_responses_stream(reply.events), finished=True)
        for event in reply.events[:2]:
            check(event.response, finished=False)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_penalties_that_were_asked_for(dialect: Dialect) -> None:
    speech = SPEECH[dialect]
    async with (
        Upstream(default=whole(speech.whole)) as upstream,
        routing(endpoint(upstream, dialect)) as router,
    ):
        reply = await router.ask(presence_penalty=0.5, frequency_penalty=-1)
        assert reply.status == 200
        assert reply.json["presence_penalty"] == 0.5
        assert reply.json["frequency_penalty"] == -1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_tool_call(dialect: Dialect, stream: bool) -> None:
    """A model that is offered a function calls it, and answers from what it returns."""
    question = said("user", "What is the weather in Paris?")
    async with simulated(dialect, models=["m"]) as endpoints, routed(*endpoints) as url:
        response = await asked(url, stream=stream, input=[question], tools=[WEATHER])
        check(response, finished=True, output="function_call")
        [call] = response["output"]
        assert (call["name"], call["status"]) == ("get_weather", "completed")
        assert orjson.loads(call["arguments"]) == {"place": "Paris"}
        assert call["id"].startswith("fc_")
        assert isinstance(call["call_id"], str)
        assert call["call_id"] not in ("", call["id"])
        [tool] = response["tools"]
        assert tool.items() >= WEATHER.items()
        assert "strict" in tool
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "Sunny"}
        turn = [question, call, result]
        answer = await asked(url, stream=stream, input=turn, tools=[WEATHER])
        check(answer, finished=True)
        assert "Sunny" in answer["output"][0]["content"][0]["text"]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_compacted_conversation(dialect: Dialect) -> None:
    said_before = [said("user", "We launch on Tuesday."), said("assistant", "Understood.")]
    body = {"model": "m", "input": said_before, "prompt_cache_key": "k"}
    async with (
        simulated(dialect, models=["m"]) as endpoints,
        routed(*endpoints) as url,
        http_client() as http,
    ):
        reply = await fetch(http, "POST", f"{url}/v1/responses/compact", json=body)
        assert faults("CompactResource", reply.json) == []
        assert reply.json["output"][-1]["type"] == "compaction"
        del body["model"]
        refused = await fetch(http, "POST", f"{url}/v1/responses/compact", json=body)
        assert (refused.status, refused.error["param"]) == (400, "model")
        again = [*reply.json["output"], said("user", "When?")]
        check(await asked(url, stream=True, input=again, store=False), finished=True)


async def asked(url: str, *, stream: bool, **fields: Any) -> JSON:
    """The finished response, of a stream its last event's."""
    body = {"model": "m", "stream": stream, **fields}
    async with http_client() as http:
        reply = await fetch(http, "POST", f"{url}/v1/responses", json=body)
    assert reply.status == 200, reply.body
    if not stream:
        return reply.json
    check_order([event.json for event in reply.events])
    return check_responses_stream(reply.events)
