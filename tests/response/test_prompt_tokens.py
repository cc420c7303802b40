"""How long prompts are, in every form that there is, and how many of them."""

from __future__ import annotations

from typing import Any

import pytest

from router.response.tokens import answers, is_text, longest_prompt_chars, prompt_chars, prompts

EMBED = {"model": "m"}


@pytest.mark.parametrize(
    ("body", "chars", "longest", "count"),
    [
        ({"input": "abc"}, 3, 3, 1),
        ({"input": ["abc", "de"]}, 5, 3, 2),
        ({"input": [7, 8, 9]}, 12, 12, 1),
        ({"input": [[7, 8], [9]]}, 12, 8, 2),
        ({"prompt": "abc", "suffix": "xy"}, 5, 5, 1),
        ({"prompt": ["abc", "d"], "suffix": "xy"}, 6, 5, 2),
        ({"prompt": [1, 2]}, 8, 8, 1),
        ({"prompt": {"id": "pmpt_1", "variables": {"a": "long text"}}, "input": "abc"}, 3, 3, 1),
        ({"query": "ab", "documents": ["abc", {"text": "de"}]}, 7, 0, 2),
        ({"input": [{"role": "user", "content": "abc"}], "instructions": "x"}, 4, 4, 1),
        ({"messages": [{"role": "user", "content": "abc"}], "documents": ["x"]}, 4, 4, 1),
        ({"input": []}, 0, 0, 1),
        ({"documents": [], "query": "q"}, 1, 0, 1),
        ({}, 0, 0, 1),
    ],
)
def test_length(body: dict[str, Any], chars: int, longest: int, count: int) -> None:
    assert (prompt_chars(body), longest_prompt_chars(body), prompts(body)) == (
        chars,
        longest,
        count,
    )


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ({"prompt": "a"}, 1),
        ({"prompt": "a", "n": 3}, 3),
        ({"prompt": ["a", "b"], "n": 2, "best_of": 5}, 10),
        ({"messages": [], "n": 2}, 2),
        ({"prompt": "a", "n": None, "best_of": "x"}, 1),
    ],
)
def test_answers(body: dict[str, Any], count: int) -> None:
    assert answers(body) == count


@pytest.mark.parametrize(
    ("part", "known"),
    [
        ({"type": "text", "text": "a"}, True),
        ({"text": "a"}, True),
        ({"type": "image_url", "image_url": {"url": "data:,"}}, False),
        ({"type": ["text"], "text": "a"}, False),
        ({"type": {}}, False),
        ({"type": 7}, False),
    ],
)
def test_text(part: dict[str, Any], known: bool) -> None:
    assert is_text({"messages": [{"role": "user", "content": [part]}]}) is known
