"""What Anthropic's models take, as far as their names tell.

Its API has fields that one model requires and the next refuses. Sources: the pages "Extended
thinking", "Adaptive thinking", "Effort", "Structured outputs" and "Models overview" of its
documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

__all__ = ["ModelTraits", "ThinkingMode", "traits_of"]

ThinkingMode = Literal["adaptive", "budget", "off"]

_VERSION: Final = re.compile(
    r"claude-(?:(?P<old>\d)(?:[-.](?P<old_minor>\d))?-[a-z]"
    r"|(?P<line>[a-z]+)-(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2})(?!\d))?(?!\d))"
)
_SAMPLES: Final = frozenset({"temperature", "top_k", "top_p"})
_FOREIGN_LIMIT: Final = 8192
_LIMIT: Final = 32_000


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """``thinking`` is how a model is told to think: it is left to it (``adaptive``), or given a
    ``budget`` of tokens. ``efforts`` are the levels it has for that, by those of the Responses API;
    none where it knows no level. ``schemas``: it answers by a JSON schema (``output_config``), and
    calls functions strictly. ``samples`` are the parameters of sampling that it takes, and
    ``one_sample`` whether only one of temperature and ``top_p``. ``max_tokens`` is what an answer
    may have where nothing else says it: within what every such model allows.
    """

    thinking: ThinkingMode = "budget"
    efforts: Mapping[str, str] | None = None
    schemas: bool = False
    samples: frozenset[str] = _SAMPLES
    one_sample: bool = False
    max_tokens: int = _FOREIGN_LIMIT


_LEVELS: Final[Mapping[str, str]] = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "max",
}
_LEVELS_SINCE_4_7: Final[Mapping[str, str]] = {**_LEVELS, "xhigh": "xhigh"}


@lru_cache(maxsize=1024)
def traits_of(model: str) -> ModelTraits:
    """Those of an endpoint's model; one that is not Anthropic's is taken for an engine's."""
    found = _VERSION.search(model.lower())
    if found is None:
        return ModelTraits()
    version = (
        int(found["old"] or found["major"]),
        int(found["old_minor"] or found["minor"] or 0),
    )
    if version < (3, 7):
        return ModelTraits("off", max_tokens=4096 if version < (3, 5) else _FOREIGN_LIMIT)
    adaptive = version >= (4, 6)
    since_4_7 = version >= (4, 7)
    efforts = _LEVELS_SINCE_4_7 if since_4_7 else _LEVELS
    return ModelTraits(
        thinking="adaptive" if adaptive else "budget",
        efforts=efforts if adaptive else None,
        schemas=version >= (4, 5) or (found["line"], version) == ("opus", (4, 1)),
        samples=frozenset() if since_4_7 else _SAMPLES,
        one_sample=version >= (4, 5),
        max_tokens=_LIMIT,
    )
