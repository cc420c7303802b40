"""The canonical request of a legacy completions body.

A prompt alone is the same as a batch of one. It is a text to be gone on with, and no question: no
similar one's answer will ever do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from cache.canonical import (
    JSON,
    CacheRequest,
    FieldRules,
    NotCacheable,
    is_default,
    ordered,
    plain,
    refuse_shared,
    written,
)
from cache.canonical_embeddings import inputs_of

__all__ = ["COMPLETION", "canonical_completions"]

COMPLETION: Final = "completion"
"""What sort of answer it has (see ``CacheEntry.kind``)."""

_DEFAULTS: Final[Mapping[str, Any]] = {"best_of": 1, "echo": False, "n": 1}


def canonical_completions(body: Mapping[str, Any], rules: FieldRules) -> CacheRequest:
    """The request of a body; raises NotCacheable, and KeyError, TypeError or AttributeError where
    the body is not what the surface takes.
    """
    refuse_shared(body)
    model = body["model"]
    if type(model) is not str:
        raise NotCacheable("unsupported")
    n = body.get("n")
    if n is not None and not is_default(plain(n), 1):
        raise NotCacheable("several_choices")
    settings: JSON = {}
    defaults = {**rules.defaults, **_DEFAULTS}
    for name, given in body.items():
        if name == "prompt" or name in rules.ignored or given is None:
            continue
        value = plain(given)
        if name not in defaults or not is_default(value, plain(defaults[name])):
            settings[name] = ordered(value)
    prompts = inputs_of(body["prompt"])
    try:
        model.encode()
        asked = orjson.dumps(prompts)
    except (TypeError, UnicodeEncodeError):
        raise NotCacheable("unsupported") from None
    canonical: JSON = {"prompts": prompts, "settings": settings}
    common = written({"completion": settings})
    return CacheRequest(COMPLETION, model, canonical, None, COMPLETION, common, asked)
