"""Token counts in the form of the Responses API."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.response.tokens import (
    estimate_tokens,
    estimated_usage,
    from_chat,
    from_ollama,
    from_response,
    prompt_chars,
    response_usage,
)


def counts(usage: dict[str, Any] | None) -> tuple[int, int, int, int, int]:
    assert usage is not None
    assert usage["input_tokens_details"]["cache_write_tokens"] == 0
    return (
        usage["input_tokens"],
        usage["input_tokens_details"]["cached_tokens"],
        usage["output_tokens"],
        usage["output_tokens_details"]["reasoning_tokens"],
        usage["total_tokens"],
    )


def test_the_form() -> None:
    assert response_usage(3, 2, cached=1, reasoning=1) == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 5,
    }


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 99}, (3, 0, 2, 0, 5)),
        (
            {
                "prompt_tokens": 3,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 1, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            (3, 1, 2, 2, 5),
        ),
        ({"prompt_tokens": 3, "completion_tokens": 0}, (3, 0, 0, 0, 3)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, (0, 0, 0, 0, 0)),
        ({"prompt_tokens": 3}, (3, 0, 0, 0, 3)),
        ({"prompt_tokens": 3.0, "completion_tokens": 2.0}, (3, 0, 2, 0, 5)),
        ({"prompt_tokens": 3, "completion_tokens": "2"}, (3, 0, 0, 0, 3)),
        ({"prompt_tokens": -3, "completion_tokens": 2}, (0, 0, 2, 0, 2)),
        ({"prompt_tokens": 2**63, "completion_tokens": 2}, (0, 0, 2, 0, 2)),
        ({"prompt_tokens": 3, "prompt_tokens_details": [1]}, (3, 0, 0, 0, 3)),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": None}}, (3, 0, 0, 0, 3)),
    ],
)
def test_chat_usage(usage: dict[str, Any], expected: tuple[int, ...]) -> None:
    assert counts(from_chat(usage)) == expected


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        5,
        "many",
        [],
        {"total_tokens": 5},
        {"prompt_tokens": "3", "completion_tokens": None},
        {"prompt_tokens": True, "completion_tokens": -1},
    ],
)
def test_what_counts_nothing_is_no_usage(usage: Any) -> None:
    assert from_chat(usage) is None
    assert from_response(usage) is None


def test_the_largest_counts_can_still_be_written() -> None:
    usage = from_chat({"prompt_tokens": 2**53 - 1, "completion_tokens": 2**53 - 1})
    assert usage is not None
    assert orjson.loads(orjson.dumps(usage)) == usage


def test_ollama_counts() -> None:
    assert counts(from_ollama({"prompt_eval_count": 3, "eval_count": 2})) == (3, 0, 2, 0, 5)
    assert counts(from_ollama({"eval_count": 2})) == (0, 0, 2, 0, 2)
    assert counts(from_ollama({"prompt_eval_count": 3, "eval_count": 0})) == (3, 0, 0, 0, 3)
    assert from_ollama({"done": True}) is None
    assert from_ollama({"eval_count": "2"}) is None


def test_native_usage_gets_its_details() -> None:
    assert counts(from_response({"input_tokens": 3, "output_tokens": 2})) == (3, 0, 2, 0, 5)
    assert from_response(
        {
            "input_tokens": 3,
            "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2, "other": 3},
            "output_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 1},
            "total_tokens": 6,
            "cost": 0.1,
        }
    ) == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2, "other": 3},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 6,
        "cost": 0.1,
    }
    strange = from_response({"input_tokens": 3, "input_tokens_details": [], "total_tokens": "x"})
    assert counts(strange) == (3, 0, 0, 0, 3)


def test_an_estimate_says_that_it_is_one() -> None:
    items: list[dict[str, Any]] = [
        {"type": "message", "content": [{"type": "output_text", "text": "12345"}]},
        {"type": "message", "content": [{"type": "refusal", "refusal": "123"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "1234"}]},
        {"type": "function_call", "arguments": "1234"},
        {"type": "custom_tool_call", "input": "1"},
    ]
    usage = estimated_usage(3, items)
    assert usage["estimated"] is True
    assert counts(usage) == (3, 0, 5, 0, 8)
    assert [estimate_tokens(n) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_what_a_prompt_counts() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    text = {"type": "input_text", "text": "1234"}
    body = {
        "model": "not counted",
        "instructions": "12",
        "input": [{"role": "user", "content": [text, image]}, {"id": "x", "output": "123"}],
        "tools": [{"type": "function", "name": "1", "parameters": {"a": ["12", 5, None]}}],
    }
    assert prompt_chars(body) == 2 + 4 + 3 + 1 + 2
    assert prompt_chars({"messages": [{"role": "user", "content": "123"}]}) == 3
    assert prompt_chars({}) == 0


def test_a_deep_prompt_can_be_counted() -> None:
    deep: Any = "12"
    for _ in range(5000):
        deep = [deep]
    assert prompt_chars({"input": deep}) == 2
