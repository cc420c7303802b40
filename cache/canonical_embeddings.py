"""The canonical request of an embeddings body: what decides its vectors, and how they are written.

A text alone is the same as a batch of one. Of two batches that differ in a text none is an answer
for the other, and no similar text's vector will ever do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from cache.canonical import JSON, CacheRequest, FieldRules, NotCacheable, ordered, plain, written

__all__ = ["VECTORS", "canonical_embeddings", "inputs_of"]

VECTORS: Final = "vectors"
"""What sort of answer it has (see ``CacheEntry.kind``)."""


def canonical_embeddings(body: Mapping[str, Any], rules: FieldRules) -> CacheRequest:
    """The request of a body; raises NotCacheable, and KeyError, TypeError or AttributeError where
    the body is not what the surface takes.
    """
    model = body["model"]
    if type(model) is not str:
        raise NotCacheable("unsupported")
    settings: JSON = {
        name: ordered(plain(value))
        for name, value in body.items()
        if name != "input" and name not in rules.ignored and value is not None
    }
    if settings.get("encoding_format") == "float":
        del settings["encoding_format"]
    inputs = inputs_of(body["input"])
    canonical: JSON = {"inputs": inputs, "settings": settings}
    try:
        model.encode()
        asked = orjson.dumps(inputs)
    except (TypeError, UnicodeEncodeError):
        raise NotCacheable("unsupported") from None
    common = written(settings)
    return CacheRequest(VECTORS, model, canonical, None, VECTORS, common, asked)


def inputs_of(given: Any) -> list[Any]:
    """The texts, or lists of tokens, of a batch; raises NotCacheable for anything else."""
    if type(given) is str:
        return [given]
    if type(given) is not list or not given:
        raise NotCacheable("unsupported")
    batch = [given] if type(given[0]) is int else given
    if not all(type(one) is str or _is_tokens(one) for one in batch):
        raise NotCacheable("unsupported")
    return batch


def _is_tokens(value: Any) -> bool:
    return type(value) is list and all(type(token) is int for token in value)
