"""What is refused of embeddings, legacy completions and rerankings, and with which words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from router.dialects.embeddings.schema import (
    check_completions,
    check_embeddings,
    check_rerank,
    inputs_of,
)
from router.errors import InvalidRequest

EMBEDDINGS = {"model": "m", "input": "hi"}
COMPLETION = {"model": "m", "prompt": "hi"}
RERANK = {"model": "m", "query": "q", "documents": ["a", "b"]}

CHECKS: dict[str, tuple[Callable[[dict[str, Any]], None], dict[str, Any]]] = {
    "embeddings": (check_embeddings, EMBEDDINGS),
    "completions": (check_completions, COMPLETION),
    "rerank": (check_rerank, RERANK),
}


def refusal(api: str, fields: dict[str, Any]) -> tuple[str | None, str | None]:
    check, body = CHECKS[api]
    with pytest.raises(InvalidRequest) as caught:
        check({**body, **fields})
    return caught.value.param, caught.value.code


@pytest.mark.parametrize(
    ("api", "fields"),
    [
        ("embeddings", {}),
        ("embeddings", {"input": ["a"] * 2048}),
        ("embeddings", {"input": list(range(1, 9000))}),
        ("embeddings", {"input": [[1], [2, 3]]}),
        ("embeddings", {"encoding_format": "base64", "dimensions": 1, "user": "u"}),
        ("embeddings", {"encoding_format": None, "dimensions": None, "input_type": "query"}),
        ("completions", {"prompt": ""}),
        ("completions", {"prompt": ["", "a"]}),
        ("completions", {"prompt": [1, 2], "max_tokens": 0, "logprobs": 5, "echo": True}),
        ("completions", {"prompt": [[1], [2]], "n": 2, "best_of": 3, "suffix": "s"}),
        ("completions", {"stream": True, "stream_options": {"include_usage": True}}),
        ("rerank", {"documents": ["", {"text": "a"}, {"image": "https://a/b.png"}]}),
        ("rerank", {"query": {"text": "a"}, "top_n": 7, "return_documents": False}),
    ],
)
def test_what_is_well_formed_passes(api: str, fields: dict[str, Any]) -> None:
    check, body = CHECKS[api]
    check({**body, **fields})


@pytest.mark.parametrize(
    ("api", "fields", "param", "code"),
    [
        ("embeddings", {"model": None}, "model", "missing_required_parameter"),
        ("embeddings", {"model": ""}, "model", "missing_required_parameter"),
        ("embeddings", {"model": 1}, "model", "invalid_type"),
        ("embeddings", {"input": None}, "input", "missing_required_parameter"),
        ("embeddings", {"input": ""}, "input", "empty_string"),
        ("embeddings", {"input": []}, "input", "empty_array"),
        ("embeddings", {"input": 1}, "input", "invalid_type"),
        ("embeddings", {"input": {"text": "a"}}, "input", "invalid_type"),
        ("embeddings", {"input": [True]}, "input[0]", "invalid_type"),
        ("embeddings", {"input": [{"text": "a"}]}, "input[0]", "invalid_type"),
        ("embeddings", {"input": ["a", ""]}, "input[1]", "empty_string"),
        ("embeddings", {"input": ["a", 1]}, "input[1]", "invalid_type"),
        ("embeddings", {"input": [1, "a"]}, "input[1]", "invalid_type"),
        ("embeddings", {"input": [1, True]}, "input[1]", "invalid_type"),
        ("embeddings", {"input": [1, -1]}, "input[1]", "integer_below_min_value"),
        ("embeddings", {"input": [1, 1.0]}, "input[1]", "invalid_type"),
        ("embeddings", {"input": [2**32]}, "input[0]", "integer_above_max_value"),
        ("embeddings", {"input": [[1], []]}, "input[1]", "empty_array"),
        ("embeddings", {"input": [[1], [None]]}, "input[1][0]", "invalid_type"),
        ("embeddings", {"input": [[1], "a"]}, "input[1]", "invalid_type"),
        ("embeddings", {"input": ["a"] * 2049}, "input", "array_above_max_length"),
        ("embeddings", {"input": [[1]] * 2049}, "input", "array_above_max_length"),
        ("embeddings", {"encoding_format": "int8"}, "encoding_format", "invalid_value"),
        ("embeddings", {"encoding_format": 1}, "encoding_format", "invalid_type"),
        ("embeddings", {"dimensions": 0}, "dimensions", "integer_below_min_value"),
        ("embeddings", {"dimensions": 1.5}, "dimensions", "invalid_type"),
        ("embeddings", {"dimensions": True}, "dimensions", "invalid_type"),
        ("embeddings", {"user": 1}, "user", "invalid_type"),
        ("completions", {"prompt": None}, "prompt", "missing_required_parameter"),
        ("completions", {"prompt": []}, "prompt", "empty_array"),
        ("completions", {"prompt": [None]}, "prompt[0]", "invalid_type"),
        ("completions", {"stream": "yes"}, "stream", "invalid_type"),
        ("completions", {"stream_options": []}, "stream_options", "invalid_type"),
        ("completions", {"n": 0}, "n", "integer_below_min_value"),
        ("completions", {"max_tokens": -1}, "max_tokens", "integer_below_min_value"),
        ("completions", {"echo": 1}, "echo", "invalid_type"),
        ("rerank", {"query": None}, "query", "missing_required_parameter"),
        ("rerank", {"query": ""}, "query", "empty_string"),
        ("rerank", {"query": {"t": "a"}}, "query.text", "missing_required_parameter"),
        ("rerank", {"query": ["a"]}, "query", "invalid_type"),
        ("rerank", {"documents": None}, "documents", "missing_required_parameter"),
        ("rerank", {"documents": []}, "documents", "empty_array"),
        ("rerank", {"documents": "a"}, "documents", "invalid_type"),
        ("rerank", {"documents": ["a", 1]}, "documents[1]", "invalid_type"),
        ("rerank", {"documents": [{"a": 1}]}, "documents[0].text", "missing_required_parameter"),
        ("rerank", {"documents": ["a"] * 10_001}, "documents", "array_above_max_length"),
        ("rerank", {"top_n": 0}, "top_n", "integer_below_min_value"),
        ("rerank", {"return_documents": "no"}, "return_documents", "invalid_type"),
    ],
)
def test_what_is_not_is_refused_by_name(
    api: str, fields: dict[str, Any], param: str, code: str
) -> None:
    assert refusal(api, fields) == (param, code)


@pytest.mark.parametrize(
    ("given", "inputs"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2]], [[1], [2]])],
)
def test_a_single_input_is_a_batch_of_one(given: Any, inputs: list[Any]) -> None:
    assert inputs_of(given) == inputs
