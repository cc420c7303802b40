"""Embeddings: passed on, or asked of Ollama's own API, with as little done to numbers as possible.

Vectors are most of an answer, and to read and write them again would hold up everybody else. They
are cut out as they stand in the bytes; only what is left is decoded (``outline``). That what was
cut out is an array of numbers, or base64, is still checked.
"""

from __future__ import annotations

import re
import struct
from base64 import b64encode
from typing import Any, Final

import orjson

from router.dialects.embeddings.decoder import WholeBodyDecoder
from router.dialects.embeddings.schema import inputs_of
from router.dialects.model_name import ModelName
from router.errors import InvalidRequest, UpstreamFailure
from router.response.decoder import check_reported
from router.response.frame import load_object
from router.response.tokens import estimate_tokens, from_embeddings, prompt_chars

__all__ = [
    "OLLAMA_FIELDS",
    "EmbeddingsDecoder",
    "OllamaEmbedDecoder",
    "ollama_embed_body",
    "outline",
]

OLLAMA_FIELDS: Final = ("truncate", "options", "keep_alive", "dimensions")
"""What an embeddings request may have of Ollama's, beside its input."""

_VECTOR: Final = re.compile(rb'"embedding"\s*:\s*(\[|")')
_BATCH: Final = re.compile(rb'"embeddings"\s*:\s*\[')
_OF_NUMBERS: Final = b"0123456789+-.eE \t\r\n"
_EMPTY: Final = (0, -1)
_BLANKS: Final = b" \t\r\n"
_WHAT: Final = "embeddings"
_READ: Final = frozenset(
    {"model", "input", "encoding_format", "user", "cache", "nomyo", *OLLAMA_FIELDS}
)


class EmbeddingsDecoder(WholeBodyDecoder):
    """Passes an answer in OpenAI's form on, as it came where it is what was asked for, but for the
    name of the model, which is ``model``.
    """

    def __init__(self, body: dict[str, Any], model: str) -> None:
        super().__init__()
        self._model = ModelName(model)
        self._inputs = len(inputs_of(body["input"]))
        self._base64 = body.get("encoding_format") == "base64"

    def whole(self, body: bytes) -> bytes:
        """See ``StreamDecoder.whole``."""
        left, vectors, sizes = _measured(body)
        answer = load_object(left, _WHAT)
        check_reported(answer)
        data = answer.get("data")
        if not isinstance(data, list):
            raise UpstreamFailure("The endpoint sent embeddings without 'data'.")
        _check_count(len(data), self._inputs)
        if not _in_order(data):
            raise UpstreamFailure("The endpoint sent embeddings whose places are wrong.")
        if len(vectors) != len(data):
            vectors, sizes = [], []  # of a kind that is not known here, such as several for a text
            if not all(isinstance(one, dict) and one.get("embedding") for one in data):
                raise UpstreamFailure("The endpoint sent embeddings without a vector.")
        _check_sizes(sizes)
        self.usage = from_embeddings(answer.get("usage"))
        if not self._base64 or not any(vector[:1] == b"[" for vector in vectors):
            named = self._model.in_bytes(body, answer.get("model"))
            return self._model.put(body, orjson.loads(body)) if named is None else named
        self._model.put(b"", answer)
        for one, vector in zip(data, vectors, strict=True):
            one["embedding"] = _packed(vector) if vector[:1] == b"[" else vector[1:-1].decode()
        return orjson.dumps(answer)


class OllamaEmbedDecoder(WholeBodyDecoder):
    """Makes an answer of Ollama's ``/api/embed`` one in OpenAI's form, by ``model``."""

    def __init__(self, body: dict[str, Any], model: str) -> None:
        super().__init__()
        self._body = body
        self._model = model

    def whole(self, body: bytes) -> bytes:
        """See ``StreamDecoder.whole``."""
        left, vectors, sizes = _batch(body)
        answer = load_object(left, _WHAT)
        check_reported(answer)
        if not isinstance(answer.get("embeddings"), list):
            raise UpstreamFailure("The endpoint sent no 'embeddings'.")
        _check_count(len(vectors), len(inputs_of(self._body["input"])))
        _check_sizes(sizes)
        count = answer.get("prompt_eval_count")
        self.usage = from_embeddings({"prompt_tokens": count})
        if self.usage is None:
            tokens = estimate_tokens(prompt_chars(self._body))
        else:
            tokens = self.usage["input_tokens"]
        base64 = self._body.get("encoding_format") == "base64"
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": _packed(vector) if base64 else orjson.Fragment(vector),
            }
            for index, vector in enumerate(vectors)
        ]
        return orjson.dumps(
            {
                "object": "list",
                "data": data,
                "model": self._model,
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        )


def ollama_embed_body(
    body: dict[str, Any], *, model: str, num_ctx: int | None = None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The body for ``/api/embed``, and the fields that it cannot carry.

    A text that is too long is refused, as everywhere else, and not cut, unless that is asked for.
    ``num_ctx`` is that of every request for the model: with another one it would be loaded anew.
    Raises InvalidRequest for tokens, which Ollama does not take.
    """
    given = body["input"]
    if any(type(one) is list for one in inputs_of(given)):
        raise InvalidRequest(
            "Unsupported value: 'input' has tokens in it, and an endpoint that speaks Ollama's API "
            "takes text only.",
            code="unsupported_value",
            param="input",
        )
    sent: dict[str, Any] = {"model": model, "input": given, "truncate": False}
    sent |= {name: body[name] for name in OLLAMA_FIELDS if body.get(name) is not None}
    if num_ctx is not None:
        sent["options"] = {**(sent.get("options") or {}), "num_ctx": num_ctx}
    dropped = [name for name, value in body.items() if name not in _READ and value is not None]
    return sent, tuple(dropped)


def outline(body: bytes) -> tuple[bytes, list[bytes]]:
    """An answer in OpenAI's form without its vectors, and these: arrays as they were written, or
    base64 in its quotes. What is neither stays where it is.

    Within a string a quote has a backslash before it, so that what is found is always a member.
    """
    left, vectors, _ = _measured(body)
    return left, vectors


def _measured(body: bytes) -> tuple[bytes, list[bytes], list[int]]:
    """``outline``, and the sizes of the vectors: how many numbers, or below zero how long it is."""
    pieces: list[bytes] = []
    vectors: list[bytes] = []
    sizes: list[int] = []
    at = 0
    place = 0  # where to look on: what is in a vector is not looked at
    while (found := _VECTOR.search(body, place)) is not None:
        start = place = found.start(1)
        is_array = found[1] == b"["
        end = body.find(b"]" if is_array else b'"', start + 1) + 1
        vector = body[start:end]
        size = _size(vector) if is_array else 1 - len(vector)
        if not end or size is None:
            continue
        pieces += (body[at:start], b"[]" if is_array else b'""')
        vectors.append(vector)
        sizes.append(size)
        at = place = end
    return b"".join([*pieces, body[at:]]), vectors, sizes


def _batch(body: bytes) -> tuple[bytes, list[bytes], list[int]]:
    """An answer of Ollama's without its vectors, these, and their sizes."""
    found = _BATCH.search(body)
    if found is None:
        return body, [], []
    vectors: list[bytes] = []
    sizes: list[int] = []
    at = found.end()
    while True:
        start = body.find(b"[", at)
        between = body[at : start if start >= 0 else len(body)]
        if start < 0 or b"]" in between:
            break
        end = body.find(b"]", start) + 1
        vector = body[start:end]
        size = _size(vector)
        apart = between.strip(_BLANKS) == (b"," if vectors else b"")
        if not (end and apart) or size is None:
            return body, [], []  # it is told what is wrong with it when it is decoded
        vectors.append(vector)
        sizes.append(size)
        at = end
    return body[: found.end()] + body[at:], vectors, sizes


def _size(vector: bytes) -> int | None:
    """How many numbers are in an array of numbers, as it is written; None where it is none."""
    commas = vector[1:-1].translate(None, _OF_NUMBERS)
    if commas.strip(b","):
        return None
    return len(commas) + 1 if commas or vector[1:-1].strip(_BLANKS) else 0


def _check_count(vectors: int, inputs: int) -> None:
    if vectors != inputs:
        raise UpstreamFailure(f"The endpoint sent {vectors} embeddings for {inputs} inputs.")


def _check_sizes(sizes: list[int]) -> None:
    """Raise UpstreamFailure for vectors that are empty, or not alike."""
    if len(set(sizes)) > 1:
        raise UpstreamFailure("The endpoint sent embeddings of different lengths.")
    if sizes and sizes[0] in _EMPTY:
        raise UpstreamFailure("The endpoint sent embeddings without a number in them.")


def _in_order(data: list[Any]) -> bool:
    """Whether each has a place of its own, or none says its place."""
    if not all(isinstance(one, dict) for one in data):
        return False
    places = [one.get("index") for one in data]
    return all(place is None for place in places) or (
        all(type(place) is int for place in places) and sorted(places) == list(range(len(data)))
    )


def _packed(vector: bytes) -> str:
    """An array of numbers as OpenAI's API has it in base64: 32 bits each, the lowest byte first."""
    try:
        numbers = orjson.loads(vector)
        return b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
    except (orjson.JSONDecodeError, struct.error, OverflowError):
        raise UpstreamFailure("The endpoint sent embeddings that are not numbers.") from None
