"""Rerankings passed on, and brought to Jina's form."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.dialects.embeddings.rerank import RerankDecoder
from router.errors import UpstreamFailure


def decoder(*documents: Any, **fields: Any) -> RerankDecoder:
    return RerankDecoder({"query": "q", "documents": list(documents), **fields}, "up")


def ranked(*results: Any, **fields: Any) -> bytes:
    return orjson.dumps({"model": "up", "results": list(results), **fields})


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"usage": {"total_tokens": 9}}, 9),
        ({"usage": {"prompt_tokens": 8, "total_tokens": 9}}, 8),
        ({"meta": {"billed_units": {"search_units": 1}}}, None),
        ({"meta": {"billed_units": {"input_tokens": 4}}}, 4),
        ({"meta": {"tokens": {"input_tokens": 5}, "billed_units": {"input_tokens": 4}}}, 5),
        ({"meta": "v2", "usage": None}, None),
    ],
)
def test_what_it_cost_is_read_in_either_form(fields: dict[str, Any], tokens: int | None) -> None:
    body = ranked(
        {"index": 1, "relevance_score": 0.5}, {"index": 0, "relevance_score": 1}, **fields
    )
    subject = decoder("a", "b")
    assert subject.whole(body) is body
    usage = subject.usage
    assert (usage["input_tokens"] if usage is not None else None) == tokens
    assert usage is None or usage["output_tokens"] == 0


def test_a_list_is_brought_to_that_form() -> None:
    rows = [
        {"score": 0.1, "document": "a", "index": 0, "meta_info": {"prompt_tokens": 3}},
        {"score": 0.9, "document": "b", "index": 1, "meta_info": {"prompt_tokens": 4}},
    ]
    subject = decoder("a", {"text": "b"}, top_n=1, return_documents=True)
    assert orjson.loads(subject.whole(orjson.dumps(rows))) == {
        "model": "up",
        "results": [{"index": 1, "relevance_score": 0.9, "document": {"text": "b"}}],
        "usage": {"total_tokens": 7},
    }
    assert subject.usage is not None
    plain = decoder("a", "b")
    told = orjson.loads(plain.whole(b' [{"index":0,"score":1},{"index":1,"score":2}]'))
    assert told["results"][0] == {"index": 1, "relevance_score": 2}
    assert plain.usage is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not valid JSON"),
        (b"[{", "not valid JSON"),
        (b"7", "not a JSON object"),
        (b"{}", "without 'results'"),
        (b'{"error":{"message":"no reranker"}}', "no reranker"),
        (ranked({"index": 2, "relevance_score": 1}), "not given"),
        (ranked({"index": -1, "relevance_score": 1}), "not given"),
        (ranked({"index": True, "relevance_score": 1}), "not given"),
        (ranked({"relevance_score": 1}), "not given"),
        (ranked("a"), "not given"),
        (ranked(*[{"index": 0, "relevance_score": 1}] * 2), "not given"),
        (ranked({"index": 0, "relevance_score": None}), "without scores"),
        (b'{"results":[{"index":0,"relevance_score":NaN}]}', "not valid JSON"),
        (b'[{"index":0}]', "without scores"),
        (b"[[1]]", "not given"),
    ],
)
def test_what_ranks_nothing_is_a_failure(body: bytes, words: str) -> None:
    with pytest.raises(UpstreamFailure, match=words):
        decoder("a", "b").whole(body)
