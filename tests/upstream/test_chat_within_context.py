"""``server.chat_truncation: auto``: a chat is cut alike, whatever its endpoint speaks."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.core.exchange import Operation
from router.core.upstream import UpstreamCall
from router.settings.schema import EndpointSettings
from router.upstream.adapters import make_adapter
from tests.support.exchanges import an_exchange
from tests.upstream.test_within_context import ALL, HEADER, TURNS

WAYS: list[dict[str, Any]] = [
    {"dialect": "chat"},
    {"dialect": "chat", "system_messages": "keep"},
    {"dialect": "ollama"},
    {"dialect": "ollama", "chat_completions": "native"},
    {"dialect": "responses"},
    {"dialect": "responses", "chat_completions": "translated"},
]
CALLED = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
LONG = "x" * 400


@pytest.fixture(params=WAYS, ids=lambda way: "-".join(way.values()))
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    """How an endpoint is spoken to."""
    found: dict[str, Any] = request.param
    return found


def chat(
    way: dict[str, Any], context: int | None, *, auto: bool = True, **body: Any
) -> UpstreamCall:
    exchange = an_exchange(
        operation=Operation.CHAT,
        truncates_chat=auto,
        body={"model": "m", "messages": TURNS, **body},
    )
    endpoint = EndpointSettings(name="one", url="http://localhost/v1", **way)
    return make_adapter(endpoint).chat(exchange, "m", context)


def said(call: UpstreamCall) -> list[str]:
    """The texts of what is sent, in whatever form, and the ids of calls and outputs."""
    body = orjson.loads(call.request.body)
    assert "truncation" not in body
    found = []
    for item in body["messages"] if "messages" in body else body["input"]:
        content = item.get("content") or ""
        if isinstance(content, list):
            content = "".join(part["text"] for part in content)
        found += [content.strip()] if content.strip() else []
        found += ["call"] * len(item.get("tool_calls", ()))
        found += ["call"] if item.get("type") == "function_call" else []
        found += ["output"] if item.get("type") == "function_call_output" else []
    return found


@pytest.mark.parametrize(
    ("body", "context", "kept"),
    [
        ({}, 10_000, 7),
        ({}, 700, 5),
        ({}, 400, 3),
        ({}, 10, 1),
        ({}, None, 7),
        # What the answer may take is kept free.
        ({"max_completion_tokens": 9_500}, 10_000, 5),
        ({"max_tokens": 9_500}, 10_000, 5),
        ({"max_tokens": 10}, 700, 7),
        ({"max_tokens": 50_000}, 700, 5),
        ({"auto": False}, 10, 7),
        # The field is not one of the API's: it says nothing here.
        ({"auto": False, "truncation": "auto"}, 10, 7),
    ],
)
def test_the_oldest_turns_go(
    way: dict[str, Any], body: dict[str, Any], context: int | None, kept: int
) -> None:
    if "truncation" in body and way.get("chat_completions") != "translated":
        body = {"auto": False}
    call = chat(way, context, **body)
    assert said(call) == ALL[7 - kept :]
    assert call.response_headers == ({HEADER: str(7 - kept)} if kept < 7 else {})


def test_tools_count(way: dict[str, Any]) -> None:
    tool = {"name": "f", "description": "x" * 1000, "parameters": {"type": "object"}}
    assert chat(way, 900).response_headers == {}
    call = chat(way, 900, tools=[{"type": "function", "function": tool}])
    assert call.response_headers == {HEADER: "2"}


def test_instructions_and_the_last_question_stay(way: dict[str, Any]) -> None:
    head = [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Please."}]
    call = chat(way, 10, messages=[*head, *TURNS])
    assert call.response_headers == {HEADER: "6"}
    assert said(call)[-1] == "4?"
    assert "Be brief." in "".join(said(call))
    assert "Please." in "".join(said(call))


def test_a_call_goes_and_stays_with_its_output(way: dict[str, Any]) -> None:
    called = {"role": "assistant", "tool_calls": [CALLED, {**CALLED, "id": "call_2"}]}
    outputs = [
        {"role": "tool", "tool_call_id": f"call_{number}", "content": LONG} for number in (1, 2)
    ]
    first, last = {"role": "user", "content": "1" + LONG}, {"role": "user", "content": "last"}
    # The second output comes after another question: where that stays, the call does.
    across = [first, called, outputs[0], {"role": "user", "content": "2" + LONG}, outputs[1], last]
    call = chat(way, 400, messages=across)
    assert call.response_headers == {HEADER: "5"}
    assert said(call) == ["last"]

    newest = [first, {"role": "assistant", "content": LONG}, last, called, *outputs]
    call = chat(way, 300, messages=newest)
    assert call.response_headers == {HEADER: "2"}
    assert said(call)[0] == "last"
    assert said(call).count("call") == 2


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"role": 5, "type": []},
        {"role": ["user"], "content": 5},
        {"role": "assistant", "tool_calls": [None, {"id": 7}, {}], "function_call": 1},
        {"role": "assistant", "tool_calls": "none"},
        {"role": "tool", "tool_call_id": {}},
        {"type": {"a": 1}, "role": "user"},
        {"id": "msg_1"},
    ],
)
def test_odd_messages_are_the_endpoints_to_judge(odd: dict[str, Any]) -> None:
    call = chat({"dialect": "chat"}, 10, messages=[odd, *TURNS, odd], max_tokens="many")
    kept = orjson.loads(call.request.body)["messages"]
    assert kept[-1] == odd
    assert {"role": "user", "content": "4?"} in kept
    assert len(kept) <= 3


def test_other_requests_do_not_heed_the_setting() -> None:
    exchange = an_exchange()
    exchange.context.truncates_chat = True
    assert not exchange.truncates
    exchange.body = {"truncation": "auto"}
    assert exchange.truncates
