"""Embeddings: passed on as they came, made of Ollama's, and refused where they are broken."""

from __future__ import annotations

import base64
import struct
from typing import Any

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from router.dialects.embeddings.decode_response import (
    EmbeddingsDecoder,
    OllamaEmbedDecoder,
    ollama_embed_body,
    outline,
)
from router.errors import InvalidRequest, UpstreamFailure

USAGE = {"prompt_tokens": 5, "total_tokens": 5}
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32) | st.integers(-9, 9)
VECTORS = st.lists(NUMBERS, min_size=1, max_size=5) | st.binary(max_size=9).map(
    lambda data: base64.b64encode(data).decode()
)
ODD = st.text(alphabet='"embeding:[]{},\\ é', max_size=20)


def answer(*vectors: Any, **fields: Any) -> bytes:
    data = [
        {"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)
    ]
    return orjson.dumps({"object": "list", "data": data, "model": "m", "usage": USAGE, **fields})


def asked(*texts: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(texts), **fields}


def single(*numbers: float) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def ollamas(*vectors: Any, **fields: Any) -> bytes:
    return orjson.dumps(
        {"model": "m:latest", "embeddings": list(vectors), "prompt_eval_count": 7, **fields}
    )


@given(st.lists(VECTORS, max_size=4), ODD, ODD, st.booleans())
def test_an_outline_is_the_answer_without_its_vectors(
    vectors: list[Any], model: str, odd: str, indented: bool
) -> None:
    assume(odd != "embedding")  # that is a vector
    whole = {
        "model": model,
        odd: odd,
        "data": [{"embedding": v, "object": "embedding", odd: odd} for v in vectors],
    }
    body = orjson.dumps(whole, option=orjson.OPT_INDENT_2 if indented else None)
    left, found = outline(body)
    assert [orjson.loads(vector) for vector in found] == vectors
    empty = [[] if isinstance(v, list) else "" for v in vectors]
    expected = [{"embedding": v, "object": "embedding", odd: odd} for v in empty]
    assert orjson.loads(left) == {"model": model, odd: odd, "data": expected}


def test_an_answer_passes_as_it_came() -> None:
    body = answer([0.1, -2e-5, 3], [1, 2, 3]).replace(b",", b" ,\n ")
    decoder = EmbeddingsDecoder(asked("a", "b"), "m")
    assert decoder.whole(body) is body
    assert decoder.usage is not None
    assert (decoder.usage["input_tokens"], decoder.usage["output_tokens"]) == (5, 0)
    assert decoder.output_chars == 0
    packed = answer(single(1, 2))
    assert (
        EmbeddingsDecoder({**asked("a"), "encoding_format": "base64"}, "m").whole(packed) is packed
    )


def test_places_may_be_left_out_or_mixed() -> None:
    for first, second in ((None, None), (1, 0)):
        data = [{"index": first, "embedding": [1]}, {"index": second, "embedding": [2]}]
        body = orjson.dumps({"data": data})
        decoder = EmbeddingsDecoder(asked("a", "b"), "m")
        assert decoder.whole(body) is body
        assert decoder.usage is None


def test_several_vectors_for_a_text_pass() -> None:
    body = answer([[0.1, 0.2], [0.3, 0.4]])
    assert EmbeddingsDecoder(asked("a"), "m").whole(body) is body


def test_tokens_are_one_input_or_several() -> None:
    body = answer([1.0])
    assert EmbeddingsDecoder({"model": "m", "input": [1, 2, 3]}, "m").whole(body) is body
    two = answer([1.0], [2.0])
    assert EmbeddingsDecoder({"model": "m", "input": [[1], [2]]}, "m").whole(two) is two


def test_numbers_are_packed_where_base64_was_asked_for() -> None:
    body = answer([0.5, -1], [0.25, 3])
    told = orjson.loads(
        EmbeddingsDecoder(asked("a", "b", encoding_format="base64"), "m").whole(body)
    )
    assert [one["embedding"] for one in told["data"]] == [single(0.5, -1), single(0.25, 3)]
    assert (told["usage"], told["model"], told["data"][1]["index"]) == (USAGE, "m", 1)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (answer([0.1, 0.2], [0.3])[:-80], "not valid JSON"),
        (b'{"data":[{"index":0,"embedding":[0.1,', "not valid JSON"),
        (b'{"data":[{"index":0,"embedding":[0.1,NaN]},{"index":1,"embedding":[1,2]}]}', "JSON"),
        (b'{"data":[{"index":0,"embedding":[0.1,-Infinity]}]}', "not valid JSON"),
        (answer([0.1, None], [0.2, 0.3]), "without a vector"),
        (answer(["a"], [0.1]), "without a vector"),
        (answer([0.1]), "1 embeddings for 2 inputs"),
        (answer([0.1], [0.2], [0.3]), "3 embeddings for 2 inputs"),
        (answer([0.1], [0.2, 0.3]), "different lengths"),
        (answer([0.1], "AAAA"), "different lengths"),
        (answer([], []), "without a number"),
        (answer("", ""), "without a number"),
        (answer(None, None), "without a vector"),
        (b'{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}', "places"),
        (b'{"data":[{"index":0,"embedding":[1]},{"index":"1","embedding":[1]}]}', "places"),
        (b'{"data":[[1],[2]]}', "places"),
        (b'{"object":"list","data":{}}', "without 'data'"),
        (b'{"error":{"message":"no such route"}}', "no such route"),
    ],
)
def test_what_is_no_answer_is_a_failure_of_the_endpoint(body: bytes, words: str) -> None:
    decoder = EmbeddingsDecoder(asked("a", "b"), "m")
    with pytest.raises(UpstreamFailure, match=words):
        decoder.whole(body)
    assert decoder.usage is None


@pytest.mark.parametrize("vector", [b"[1,,2]", b"[1..2]", b"[1e999]", b"[,]"])
def test_what_is_no_number_is_not_packed(vector: bytes) -> None:
    body = b'{"data":[{"embedding":%b}]}' % vector
    with pytest.raises(UpstreamFailure, match="not numbers"):
        EmbeddingsDecoder(asked("a", encoding_format="base64"), "m").whole(body)


def test_ollamas_answer_is_told_in_openais_form() -> None:
    body = ollamas([0.10, -2e-7], [1, 2]).replace(b",", b" , ")
    decoder = OllamaEmbedDecoder(asked("a", "b"), "m:latest")
    told = orjson.loads(decoder.whole(body))
    assert told == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [0.1, -2e-7]},
            {"object": "embedding", "index": 1, "embedding": [1, 2]},
        ],
        "model": "m:latest",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }
    assert decoder.usage is not None
    assert decoder.usage["input_tokens"] == 7
    packed = OllamaEmbedDecoder(asked("a", encoding_format="base64"), "m").whole(ollamas([0.5, 2]))
    assert orjson.loads(packed)["data"][0]["embedding"] == single(0.5, 2)


def test_what_ollama_does_not_count_is_estimated() -> None:
    decoder = OllamaEmbedDecoder(asked("four" * 3), "the-model")
    told = orjson.loads(decoder.whole(b'{"embeddings":[[1]]}'))
    assert (told["model"], told["usage"]["total_tokens"]) == ("the-model", 3)
    assert decoder.usage is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (ollamas([0.1]), "1 embeddings for 2 inputs"),
        (ollamas(), "0 embeddings for 2 inputs"),
        (ollamas([0.1], [0.2, 0.3]), "different lengths"),
        (ollamas([], []), "without a number"),
        (ollamas([[0.1]], [[0.1]]), "0 embeddings"),
        (ollamas([0.1], [None]), "0 embeddings"),
        (ollamas([0.1], [0.2])[:-60], "not valid JSON"),
        (b'{"embeddings":[[0.1],[0.2],]}', "not valid JSON"),
        (b'{"embeddings":[[0.1] [0.2]]}', "not valid JSON"),
        (b'{"embeddings":[[0.1],[NaN]]}', "not valid JSON"),
        (b'{"embeddings":[[0.1],[0.2', "not valid JSON"),
        (b'{"embedding":[0.1]}', "no 'embeddings'"),
        (b'{"error":"model runner has crashed"}', "model runner has crashed"),
    ],
)
def test_what_ollama_breaks_is_its_failure(body: bytes, words: str) -> None:
    with pytest.raises(UpstreamFailure, match=words):
        OllamaEmbedDecoder(asked("a", "b"), "m").whole(body)


def test_what_ollama_is_sent() -> None:
    given = asked("a", dimensions=8, encoding_format="base64", user="u", cache=True, input_type="q")
    assert ollama_embed_body(given, model="m:latest") == (
        {"model": "m:latest", "input": ["a"], "truncate": False, "dimensions": 8},
        ("input_type",),
    )
    given = asked("a", truncate=True, options={"num_ctx": 9, "num_thread": 2}, keep_alive="5m")
    sent, dropped = ollama_embed_body(given, model="m", num_ctx=512)
    assert (sent["truncate"], sent["keep_alive"], dropped) == (True, "5m", ())
    assert sent["options"] == {"num_ctx": 512, "num_thread": 2}


@pytest.mark.parametrize("tokens", [[1, 2], [[1], [2]]])
def test_ollama_takes_no_tokens(tokens: list[Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ollama_embed_body({"model": "m", "input": tokens}, model="m")
    assert (caught.value.param, caught.value.code) == ("input", "unsupported_value")
