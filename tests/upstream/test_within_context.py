"""``truncation: auto`` at endpoints that are translated for."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.core.upstream import UpstreamCall
from router.errors import NotSupported
from router.response.tokens import estimate_tokens, prompt_chars
from router.settings.schema import Dialect, EndpointSettings
from router.upstream.adapters import make_adapter
from tests.support.exchanges import an_exchange
from tests.support.reading import make_builder

HEADER = "X-Pointsman-Truncated"
TRANSLATED: list[Dialect] = ["chat", "ollama"]


def turn(number: int, chars: int = 400) -> list[dict[str, Any]]:
    """A turn of about 200 tokens."""
    return [
        {"role": "user", "content": f"{number}?".ljust(chars)},
        {"type": "message", "role": "assistant", "content": f"{number}!".ljust(chars)},
    ]


TURNS = [*turn(1), *turn(2), *turn(3), {"role": "user", "content": "4?"}]


def respond(dialect: Dialect, body: dict[str, Any], context: int | None = None) -> UpstreamCall:
    endpoint = EndpointSettings(name="one", url="http://localhost/v1", dialect=dialect)
    exchange = an_exchange()
    exchange.body = {"model": "m", "input": TURNS, **body}
    return make_adapter(endpoint).respond(exchange, "m", make_builder(), context)


def said(call: UpstreamCall) -> list[str]:
    messages = orjson.loads(call.request.body)["messages"]
    return [message["content"].strip() for message in messages]


ALL = ["1?", "1!", "2?", "2!", "3?", "3!", "4?"]


@pytest.mark.parametrize("dialect", TRANSLATED)
@pytest.mark.parametrize(
    ("body", "context", "kept"),
    [
        ({"truncation": "auto"}, 10_000, 7),
        ({"truncation": "auto"}, 700, 5),
        ({"truncation": "auto"}, 400, 3),
        ({"truncation": "auto"}, 10, 1),
        # What the answer may take is kept free.
        ({"truncation": "auto", "max_output_tokens": 9_500}, 10_000, 5),
        ({"truncation": "auto", "max_output_tokens": 10}, 700, 7),
        ({"truncation": "auto", "max_output_tokens": 50_000}, 700, 5),
        # Only who asks for it gets it, and only where the context is known.
        ({"truncation": "auto"}, None, 7),
        ({"truncation": "disabled"}, 10, 7),
        ({"truncation": None}, 10, 7),
        ({}, 10, 7),
    ],
)
def test_the_oldest_turns_go(
    dialect: Dialect, body: dict[str, Any], context: int | None, kept: int
) -> None:
    call = respond(dialect, body, context)
    assert said(call) == ALL[7 - kept :]
    assert call.response_headers == ({HEADER: str(7 - kept)} if kept < 7 else {})


@pytest.mark.parametrize("dialect", TRANSLATED)
@pytest.mark.parametrize(
    "fixed",
    [
        {"instructions": "x" * 1000},
        {"tools": [{"type": "function", "name": "f", "description": "x" * 1000, "parameters": {}}]},
    ],
)
def test_instructions_and_tools_count(dialect: Dialect, fixed: dict[str, Any]) -> None:
    body = {"truncation": "auto", **fixed}
    assert HEADER not in respond(dialect, {"truncation": "auto"}, context=900).response_headers
    call = respond(dialect, body, context=900)
    assert call.response_headers[HEADER] == "2"


@pytest.mark.parametrize("dialect", TRANSLATED)
def test_a_single_text_is_not_cut(dialect: Dialect) -> None:
    call = respond(dialect, {"input": "x" * 1000, "truncation": "auto"}, context=10)
    assert said(call) == ["x" * 1000]
    assert call.response_headers == {}


@pytest.mark.parametrize("dialect", TRANSLATED)
def test_what_is_dropped_is_neither_counted_nor_reported(dialect: Dialect) -> None:
    """The estimate of an answer without usage, and the header for reasoning not sent."""
    thought = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    first = turn(1)
    body = {"input": [first[0], thought, first[1], *turn(2)], "truncation": "auto"}
    call = respond(dialect, body, context=300)
    assert call.response_headers == {HEADER: "3"}
    message = {"role": "assistant", "content": "Hi"}
    answers = {
        "chat": {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]},
        "ollama": {"message": message, "done": True, "done_reason": "stop"},
    }
    call.decoder.whole(orjson.dumps(answers[dialect]))
    assert call.decoder.usage is not None
    expected = estimate_tokens(prompt_chars({"input": turn(2)}))
    assert call.decoder.usage["input_tokens"] == expected


def test_a_native_endpoint_truncates_itself() -> None:
    call = respond("responses", {"truncation": "auto"}, context=10)
    sent = orjson.loads(call.request.body)
    assert (sent["truncation"], len(sent["input"])) == ("auto", 7)
    assert call.response_headers == {}


@pytest.mark.parametrize("dialect", TRANSLATED)
def test_who_cannot_compact(dialect: Dialect) -> None:
    endpoint = EndpointSettings(name="one", url="http://localhost/v1", dialect=dialect)
    exchange = an_exchange()
    exchange.body = {"model": "m", "input": "x"}
    with pytest.raises(NotSupported, match="'truncation': 'auto'"):
        make_adapter(endpoint).compact(exchange, "m", make_builder())
