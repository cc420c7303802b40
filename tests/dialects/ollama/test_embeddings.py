"""Ollama's embeddings: the request as OpenAI's, and the answer back."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.dialects.ollama.embeddings import OllamaEmbedEncoder, embed_request, embeddings_request
from router.errors import InvalidRequest, UpstreamFailure
from tests.dialects.ollama.test_encode_stream import Clock


def test_embeddings() -> None:
    made = embed_request({
        "model": "m", "input": ["a", "b"], "dimensions": 3, "truncate": True, "keep_alive": 5,
        "options": {"num_ctx": 5},
    })  # fmt: skip
    assert made.body == {
        "model": "m", "input": ["a", "b"], "dimensions": 3, "truncate": True,
        "encoding_format": "float",
    }  # fmt: skip
    assert made.dropped == ("options.num_ctx", "keep_alive")
    assert embed_request({"model": "m", "input": "a", "truncate": False}).body["input"] == "a"
    assert embeddings_request({"model": "m", "prompt": "a"}).body["input"] == "a"


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"input": 5}, "input"),
        ({"input": ["a", 5]}, "input[1]"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "truncate": 1}, "truncate"),
        ({"input": "a", "options": 1}, "options"),
        ({"input": "a", "model": None}, "model"),
    ],
)
def test_what_is_wrong_with_an_embedding_is_named(given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        embed_request({"model": "m", **given})
    assert caught.value.param == param


def answer(*vectors: tuple[int | None, Any], **fields: Any) -> bytes:
    """An answer in OpenAI's form."""
    data = [
        {"object": "embedding", "embedding": vector, **({} if i is None else {"index": i})}
        for i, vector in vectors
    ]
    usage = {"prompt_tokens": 5, "total_tokens": 5}
    return orjson.dumps({"object": "list", "data": data, "model": "x", "usage": usage, **fields})


def encoder(*, one: bool = False) -> OllamaEmbedEncoder:
    return OllamaEmbedEncoder("m", Clock(), one=one)


def test_vectors_are_told_in_their_order_as_they_were_written() -> None:
    body = answer((1, [1.25, 2]), (0, [0.1, -3e-7]))
    told = encoder().whole(body)
    assert b"-3e-7" in told
    assert orjson.loads(told) == {
        "model": "m",
        "embeddings": [[0.1, -3e-7], [1.25, 2]],
        "total_duration": 30,
        "load_duration": 10,
        "prompt_eval_count": 5,
    }
    assert orjson.loads(encoder().whole(answer((None, [1]), (None, [2]))))["embeddings"] == [
        [1],
        [2],
    ]


def test_the_older_form_has_one() -> None:
    assert encoder(one=True).whole(answer((0, [0.5, 1]))) == b'{"embedding":[0.5,1]}'
    assert encoder(one=True).nothing() == b'{"embedding":[]}'
    assert orjson.loads(encoder().nothing())["embeddings"] == []


def test_without_counts_there_is_none() -> None:
    assert orjson.loads(encoder().whole(answer((0, [1]), usage=None)))["prompt_eval_count"] == 0


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"nonsense",
        answer((0, "AACAPw==")),
        answer((0, [[1, 2], [3, 4]])),
        answer((0, {"a": 1})),
        orjson.dumps({"data": 5}),
    ],
)
def test_what_is_no_vector_is_a_failure(body: bytes) -> None:
    with pytest.raises(UpstreamFailure):
        encoder().whole(body)


def test_an_answer_is_told_whole() -> None:
    assert encoder().frames([]) == []
