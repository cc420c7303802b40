"""Ollama's ``/api/embed`` and ``/api/embeddings`` as an embeddings request, and its answer back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from router.dialects.dialect import RequestTimes
from router.dialects.embeddings.decode_response import outline
from router.dialects.ollama.decode_request import DecodedRequest, model_of
from router.dialects.parameters import (
    boolean,
    integer,
    object_,
    string,
    strings,
    wrong_type,
)
from router.errors import UpstreamFailure
from router.response.frame import Frame, load_object

__all__ = ["OllamaEmbedEncoder", "embed_request", "embeddings_request"]

_dimensions = integer(1)
_KNOWN: Final = frozenset({"dimensions", "input", "model", "name", "options", "prompt", "truncate"})


def embed_request(body: Mapping[str, Any]) -> DecodedRequest:
    """The request for ``/api/embed``; raises InvalidRequest. Without a text its input is empty."""
    given = body.get("input")
    if given is None:
        given = []
    if type(given) is list:
        strings(given, "input")
    elif type(given) is not str:
        raise wrong_type("input", "a string or an array of strings", given)
    return _asked(body, given)


def embeddings_request(body: Mapping[str, Any]) -> DecodedRequest:
    """The request for ``/api/embeddings``, which takes one text."""
    prompt = body.get("prompt") or ""
    string(prompt, "prompt")
    return _asked(body, prompt)


def _asked(body: Mapping[str, Any], given: str | list[str]) -> DecodedRequest:
    made: dict[str, Any] = {"model": model_of(body), "input": given, "encoding_format": "float"}
    if (dimensions := body.get("dimensions")) is not None:
        _dimensions(dimensions, "dimensions")
        if dimensions:
            made["dimensions"] = dimensions
    if (truncate := body.get("truncate")) is not None:
        boolean(truncate, "truncate")
        if truncate:  # else it is as everywhere here: what is too long is refused
            made["truncate"] = True
    options = body.get("options") or {}
    object_(options, "options")
    dropped = [f"options.{name}" for name, value in options.items() if value is not None]
    dropped += [name for name, value in body.items() if name not in _KNOWN and value is not None]
    return DecodedRequest(made, tuple(dropped))


class OllamaEmbedEncoder:
    """Implements ``router.dialects.dialect.ResponseEncoder`` for an answer in OpenAI's form.

    ``one`` is for ``/api/embeddings``, which answers with one vector.
    """

    def __init__(self, model: str, watch: RequestTimes, *, one: bool) -> None:
        self._model = model
        self._watch = watch
        self._one = one

    def frames(self, batch: Sequence[Frame]) -> list[Frame]:
        """See ``ResponseEncoder.frames``: nothing is streamed."""
        return []

    def whole(self, body: bytes) -> bytes:
        """See ``ResponseEncoder.whole``. The vectors stay as they were written."""
        left, vectors = outline(body)
        answer = load_object(left, "embeddings")
        data = answer.get("data")
        if not isinstance(data, list) or len(data) != len(vectors):
            data, vectors = [], [b""]  # of a kind that is not known here
        if not all(vector[:1] == b"[" for vector in vectors):
            raise UpstreamFailure("The endpoint sent embeddings that are not arrays of numbers.")
        places = sorted(range(len(data)), key=lambda place: _index(data[place], place))
        written = [orjson.Fragment(vectors[place]) for place in places]
        return self._told(written, (answer.get("usage") or {}).get("prompt_tokens", 0))

    def nothing(self) -> bytes:
        """The answer where there is no text."""
        return self._told([], 0)

    def _told(self, vectors: Sequence[Any], tokens: int) -> bytes:
        if self._one:
            return orjson.dumps({"embedding": vectors[0] if vectors else []})
        return orjson.dumps(
            {
                "model": self._watch.replaced() or self._model,
                "embeddings": vectors,
                "total_duration": self._watch.since(),
                "load_duration": self._watch.waited(),
                "prompt_eval_count": tokens,
            }
        )


def _index(entry: Any, place: int) -> int:
    index = entry.get("index") if isinstance(entry, dict) else None
    return index if type(index) is int else place
