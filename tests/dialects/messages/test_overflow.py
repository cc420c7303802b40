"""What engines say of a request that is too long, in the words that Claude Code acts on."""

from __future__ import annotations

import re

import pytest

from router.balance.capability import too_long
from router.dialects.messages.overflow import overflow_message

# Both as Claude Code 2.1.197 has them.
TOO_LONG = re.compile(r"prompt is too long[^0-9]*(\d+)\s*tokens?\s*>\s*(\d+)", re.IGNORECASE)
TOO_MUCH = re.compile(r"exceed context limit: (\d+) \+ (\d+) > (\d+)")


@pytest.mark.parametrize(
    ("said", "numbers"),
    [
        (
            "This model's maximum context length is 4,096 tokens. However, your messages resulted "
            "in 5,000 tokens. Please reduce the length of the messages.",
            ("5000", "4096"),
        ),
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5100 tokens"
            " (5000 in the messages, 100 in the completion).",
            ("5000", "4096"),
        ),
        (
            "You passed 5000 input tokens and requested 10 output tokens. However, the model's "
            "maximum context length is 4096 tokens.",
            ("5000", "4096"),
        ),
        (
            "request (5000 tokens) exceeds the available context size (4096 tokens), try "
            "increasing it",
            ("5000", "4096"),
        ),
        ("prompt is too long: 5000 tokens > 4096 maximum", ("5000", "4096")),
        (too_long({}, "qwen3", 5000, 4096).message, ("5000", "4096")),
    ],
)
def test_a_prompt_that_is_too_long(said: str, numbers: tuple[str, str]) -> None:
    found = TOO_LONG.search(overflow_message(said))
    assert found is not None
    assert found.groups() == numbers


@pytest.mark.parametrize(
    "said",
    [
        "This model's maximum context length is 32768 tokens. However, you requested 41000 tokens "
        "(9000 in the messages, 32000 in the completion). Please reduce the length.",
        "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context "
        "length is 32768 tokens and your request has 9000 input tokens (32000 > 32768 - 9000).",
        "This model's maximum context length is 32768 tokens. However, you requested 32000 output "
        "tokens and your prompt contains at least 9000 input tokens, for at least 41000 in total.",
    ],
)
def test_an_answer_that_is_too_long(said: str) -> None:
    """The prompt itself has room: compacting it would not help."""
    told = overflow_message(said)
    found = TOO_MUCH.search(told)
    assert found is not None
    assert found.groups() == ("9000", "32000", "32768")
    assert "prompt is too long" not in told.lower()


@pytest.mark.parametrize("said", ["context size has been exceeded", "", "9 > 'a' " * 300])
def test_without_numbers(said: str) -> None:
    assert overflow_message(said).startswith("prompt is too long: ")
