"""Recorded answers, told again: what the published description, the official client and the
checker of the wire contract say of them.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import orjson
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from router.response import tokens
from router.response.replay import replay
from tests.support.answers import (
    CITATION,
    LOGPROBS,
    answer,
    call,
    custom,
    message,
    reasoning,
    refusal,
    text,
    without_ids,
)
from tests.support.order import parse_sse
from tests.support.reading import DATA, decoded, make_builder, trace, traces
from tests.support.rebuilding import rebuilt
from tests.support.schema import faults, faults_of_event

CHECKER = DATA.parent / "kit" / "validate.py"
STREAMS = traces("Responses/*/response.txt", "Conversations/*/*response.txt")
WHOLE = traces("Responses/*/response.json", "Conversations/*/*message_response.json")
MADE = {
    "text": [message(text("Hello, big world")), message(refusal("No."), text(""))],
    "log probabilities": [message(text("Hi you", logprobs=LOGPROBS))],
    "citation": [
        message(text("It is so", annotations=[{**CITATION, "start_index": 0, "end_index": 2}]))
    ],
    "reasoning": [reasoning(("one two", "three"), ("raw thoughts",)), message(text("x"))],
    "encrypted": [reasoning(encrypted_content="blob"), message(text("x"))],
    "calls": [call(), call('{"b":"世界"}', call_id="call_9"), custom("a b c")],
}
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def recorded(name: str) -> dict[str, Any]:
    """The final response in a recording; skips one that is no finished answer."""
    body = trace(name)
    final = parse_sse(body)[-1]["response"] if name.endswith(".txt") else orjson.loads(body)
    if final.get("status") != "completed":
        pytest.skip(f"does not apply: {name} is no finished answer")
    return dict(final)


def answered(final: dict[str, Any]) -> dict[str, Any]:
    """The answer in a final response."""
    others = final.keys() - {"model", "output", "usage"}
    fields = {name: final[name] for name in others}
    return {
        "model": final["model"],
        "output": final["output"],
        "usage": tokens.from_response(final["usage"]),
        "fields": fields,
        "hidden": {},
    }


@cache
def contract() -> tuple[Any, Any]:
    """The checker's module, and the schemas, which take it seconds to read."""
    spec = spec_from_file_location("contract_checker", CHECKER)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, module.Schemas()


def check(made: dict[str, Any]) -> dict[str, Any]:
    """Tell it as a stream; what it ends with, once everybody has looked at it."""
    played = replay(make_builder(), made)
    events = decoded(played.frames)
    assert rebuilt(events) == played.final
    for event in events:
        EVENT.validate_python(event)
        assert faults_of_event(event) == []
    assert faults("Response", played.final) == []
    Response.model_validate(played.final)
    if not CHECKER.exists():
        pytest.skip(f"{CHECKER} is not there")
    checker, schemas = contract()
    stream = b"".join(frame.encode() for frame in played.frames)
    stored = orjson.loads(orjson.dumps(played.final))
    found, told = checker.check_stream(stream, schemas, stored=stored)
    assert told
    assert checker.errors(found.findings) == []
    return played.final


@pytest.mark.parametrize("name", [*STREAMS, *WHOLE])
def test_a_recorded_answer_is_told_again(name: str) -> None:
    before = recorded(name)
    final = check(answered(before))
    assert without_ids(final["output"]) == without_ids(before["output"])
    assert final["usage"] == tokens.from_response(before["usage"])
    kept = ("model", "tools", "instructions", "temperature", "text", "service_tier")
    assert {key: final[key] for key in kept} == {key: before[key] for key in kept}
    assert final["metadata"] == {"a": "b"}


@pytest.mark.parametrize("kind", MADE)
def test_every_kind_of_item_is_told_as_the_contract_says(kind: str) -> None:
    items = [{**item, "id": f"{item['id']}{n}"} for n, item in enumerate(MADE[kind])]
    check(answer(*items))
