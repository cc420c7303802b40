"""Explaining a choice: what would be sent is what is sent, and nothing is changed by it."""

from __future__ import annotations

from typing import Any

import pytest

from router.dialects.dropped import DROPPED_PARAMETERS
from router.dialects.responses.summaries import COMPACTION_MARK
from router.endpoints.explain_routing import (
    ExplainedEndpoint,
    Explanation,
    LeftOut,
    ModelPlan,
    Sent,
)
from router.settings.schema import Dialect
from tests.support.admin import call_admin, explained
from tests.support.explain_routing import FUNCTION, PARAMETERS, PICTURE, fleet, left_out
from tests.support.fetch import fetch
from tests.support.router import API_KEY
from tests.support.speech import DIALECTS, SPEECH

STAND_IN = "(input that is not looked up)"
BODIES: dict[str, dict[str, Any]] = {
    "short": {"input": "hi"},
    "stream": {"input": "hi", "stream": True},
    "not stored": {"input": "hi", "store": False, "instructions": "Be brief.", "temperature": 0.5},
    "tools": {"input": "hi", "tools": [FUNCTION], "tool_choice": "required"},
    "schema": {"input": "hi", "text": {"format": {"type": "json_schema", "name": "s",
                                                  "schema": PARAMETERS}}},
    "history": {"input": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                          *PICTURE]},
    "metadata": {"input": "hi", "metadata": {"a": "b"}, "include": ["message.output_text.logprobs"],
                 "user": "u", "max_output_tokens": 99, "reasoning": {"effort": "low"}},
    "hosted": {"input": "hi", "tools": [{"type": "web_search"}, FUNCTION]},
    "cut": {"input": [{"role": "user", "content": "x" * 900}] * 9, "truncation": "auto"},
}  # fmt: skip

DROPPING: dict[Dialect, tuple[str, ...]] = {
    "responses": (),
    "chat": ("hosted", "cut"),
    "ollama": ("hosted", "cut"),
    "messages": ("hosted", "cut", "metadata"),  # whose few tokens leave none to think with
}
"""The bodies of which something is left out for an endpoint."""


TRIGGER = {"type": "compaction_trigger"}
ORDER = {"context_management": [{"type": "compaction", "compact_threshold": 5000}]}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("run", ["auto", "router", "endpoint"])
async def test_who_compacts(dialect: Dialect, run: str) -> None:
    by_router = run != "endpoint"  # of a server that is not OpenAI's it is not known that it can
    async with fleet({}, dialect=dialect, compaction={"run": run}) as (router, [upstream]):
        asked = {"role": "user", "content": "hi"}
        told = await explained(router, {"model": "m", "input": [asked, TRIGGER], **ORDER})
        refused = run == "endpoint" and dialect != "responses"
        assert left_out(told) == {"e0": "unsupported_dialect" if refused else None}
        words = [name for name in (*ORDER, TRIGGER["type"]) if f"'{name}'" in str(told["notes"])]
        assert words == ([*ORDER, TRIGGER["type"]] if by_router else [])
        if not refused:
            sent = str(told["request"]["body"])
            assert ("compaction" not in sent) == by_router
        wrong = {"model": "m", "input": [TRIGGER, asked]}
        reply = await call_admin(router, "POST", "/explain", wrong)
        assert reply.status == (400 if by_router else 200)
        assert upstream.requests == []


async def test_summaries_are_not_read() -> None:
    sealed = {"type": "compaction", "encrypted_content": f"{COMPACTION_MARK}x"}
    async with fleet({}) as (router, _):
        asked = {"role": "user", "content": "hi"}
        told = await explained(router, {"model": "m", "input": [asked, sealed, asked]})
        assert left_out(told) == {"e0": None}
        assert any("summary" in note for note in told["notes"])
        assert "not read" in str(told["request"]["body"]["messages"])


async def test_everything_that_is_documented_is_there() -> None:
    async with fleet({}, {"models": ["n"]}) as (router, _):
        told = await explained(router)
        assert told.keys() == Explanation.__annotations__.keys()
        assert told["request"].keys() == Sent.__annotations__.keys()
        [plan] = told["plans"]
        assert plan.keys() == ModelPlan.__annotations__.keys()
        for candidate in plan["candidates"]:
            assert candidate.keys() == ExplainedEndpoint.__annotations__.keys()
        assert plan["candidates"][1]["left_out"].keys() == LeftOut.__annotations__.keys()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("body", BODIES)
async def test_the_very_body_that_is_sent(dialect: Dialect, body: str) -> None:
    settings: dict[str, Any] = {"aliases": {"alias": "m"}}
    if dialect != "responses":
        settings["context_length"] = 2000
    async with fleet(settings, dialect=dialect) as (router, [upstream]):
        request = {"model": "alias", **BODIES[body]}
        told = await explained(router, request)
        native = dialect == "responses"
        runner = "left to the endpoint" if native else "run by nobody: it is dropped"
        assert told["notes"] == [
            "Plugins are not asked: they may refuse a request, answer or change it.",
            *([f"'tools[0]' (web_search) is {runner}."] if body == "hosted" else []),
        ]
        assert not upstream.requests
        reply = await fetch(router.http, "POST", f"{router.url}/v1/responses", json=request)
        [sent] = upstream.requests
        assert told["request"]["body"] == sent.json
        assert SPEECH[dialect].prefix + told["request"]["path"] == sent.path
        if reply.status == 200:  # or else it is not the answer that was asked for
            headers = told["request"]["answer_headers"]
            assert {name: reply.headers.get(name) for name in headers} == headers
            assert bool(headers) == (body in DROPPING[dialect])
        assert (told["model"], told["chosen"]["model"]) == ("alias", "m")
        assert API_KEY not in repr(told)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_chat_completions(dialect: Dialect, stream: bool) -> None:
    async with fleet({}, dialect=dialect) as (router, [upstream]):
        request = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
        told = await explained(router, request)
        assert (told["operation"], told["stream"]) == ("chat_completions", stream)
        await fetch(router.http, "POST", f"{router.url}/v1/chat/completions", json=request)
        assert told["request"]["body"] == upstream.requests[0].json


async def test_a_stream_by_its_query() -> None:
    async with fleet({}) as (router, _):
        reply = await call_admin(
            router, "POST", "/explain?stream=true", {"model": "m", "input": "a"}
        )
        assert (reply.json["stream"], reply.json["request"]["body"]["stream"]) == (True, True)


DURABLE = b'"store": false, "stream": true, "stream_options": {"durable": true}'
ODD: dict[str, tuple[str, bytes]] = {
    "empty": ("responses", b""),
    "cut off": ("responses", b'{"model": "m", "input": "a"'),
    "not UTF-8": ("responses", b'{"model": "m", "input": "\xff"}'),
    "a list": ("responses", b"[]"),
    "no model": ("responses", b'{"input": "a"}'),
    "empty model": ("responses", b'{"model": "", "input": "a"}'),
    "model of another type": ("responses", b'{"model": 1, "input": "a"}'),
    "unknown model": ("responses", b'{"model": "nope", "input": "a"}'),
    "no input": ("responses", b'{"model": "m"}'),
    "input of another type": ("responses", b'{"model": "m", "input": 1}'),
    "odd item": ("responses", b'{"model": "m", "input": [{"role": "nobody", "content": "a"}]}'),
    "odd stream": ("responses", b'{"model": "m", "input": "a", "stream": 1}'),
    "durable": ("responses", b'{"model": "m", "input": "a", ' + DURABLE + b"}"),
    "chat without a model": ("chat/completions", b'{"messages": []}'),
    "chat with an unknown one": ("chat/completions", b'{"model": "nope", "messages": []}'),
    "messages of another type": ("chat/completions", b'{"model": "m", "messages": "a"}'),
    "no messages": ("chat/completions", b'{"model": "m", "messages": null}'),
    "chat with an odd stream": ("chat/completions", b'{"model": "m", "messages": [], "stream": 1}'),
}


@pytest.mark.parametrize("odd", ODD)
async def test_what_is_wrong_is_told_like_there(odd: str) -> None:
    path, body = ODD[odd]
    async with fleet({}) as (router, [upstream]):
        told = await call_admin(router, "POST", "/explain", data=body)
        real = await fetch(router.http, "POST", f"{router.url}/v1/{path}", data=body)
        assert 400 <= real.status < 500
        assert (told.status, told.json) == (real.status, real.json)
        assert told.headers["Cache-Control"] == "no-store"
        assert not upstream.requests


async def test_the_model_of_a_prompt_is_not_looked_up() -> None:
    async with fleet({}) as (router, _):
        reply = await call_admin(router, "POST", "/explain", {"prompt": {"id": "pmpt_1"}})
        assert reply.status == 400
        assert reply.error["param"] == "model"
        assert reply.error["code"] == "missing_required_parameter"


async def test_a_body_that_is_too_large() -> None:
    async with fleet({}, server={"max_body_mb": 1 / 1024}) as (router, _):
        reply = await call_admin(router, "POST", "/explain", {"model": "m", "input": "x" * 2000})
        assert (reply.status, reply.error["code"]) == (413, "request_too_large")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}, *PICTURE]}, "item_reference"),
        ({"input": [{"id": "msg_1"}]}, "item_reference"),
    ],
    ids=["chain", "conversation", "prompt", "item", "item by id"],
)  # fmt: skip
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_is_not_looked_up(dialect: Dialect, fields: dict[str, Any], named: str) -> None:
    async with fleet({}, dialect=dialect) as (router, _):
        told = await explained(router, {"model": "m", **fields})
        [note] = [note for note in told["notes"] if "not looked up" in note]
        assert f"'{named}'" in note
        assert told["chosen"]["endpoint"] == "e0"
        assert "msg_1" not in repr(told["request"])
        if fields.keys() == {"input"} and len(fields["input"]) > 1:
            assert STAND_IN not in repr(told["request"]), "there is other input"
        else:
            assert STAND_IN in repr(told["request"])


async def test_a_field_that_is_nearly_a_known_one_is_left_out_as_it_is_for_a_request() -> None:
    request = {"model": "m", "input": "hi", "temprature": 1}
    async with fleet({}) as (lenient, _):
        told = await explained(lenient, request)
        assert "temprature" not in told["request"]["body"]
        assert told["request"]["answer_headers"][DROPPED_PARAMETERS] == "temprature"
    async with fleet({}, server={"unsupported": "strict"}) as (strict, _):
        reply = await call_admin(strict, "POST", "/explain", request)
        assert (reply.status, reply.error["code"]) == (400, "unsupported_parameter")
        assert reply.error["param"] == "temprature"
