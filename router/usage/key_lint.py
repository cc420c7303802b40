"""What may be a slip in a key, and may as well be meant: for whoever makes it to look at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from router.usage.key_fields import path_of

__all__ = ["Served", "hints"]

Served = Callable[[str], bool | None]
"""Whether a name or pattern is that of a model that is served; None where that is not known."""

_NEAR: Final = 0.85
"""How much alike two tags are for one to be taken for the other: not ``team-a`` and ``team-b``."""

_SHOWN: Final = 64


def hints(fields: Mapping[str, Any], served: Served, tags: Collection[str]) -> list[str]:
    """What to say of these fields of KeySpec, as they are in JSON and were found to be good.

    A model may be served later, and a tag needs no budget: ``tags`` are those that have some.
    """
    return [*_of_models(fields, served), *_of_tags(fields.get("tags") or (), tags)]


def _of_models(fields: Mapping[str, Any], served: Served) -> Iterator[str]:
    named: list[tuple[tuple[int | str, ...], str]] = [
        (("models", at), model) for at, model in enumerate(fields.get("models") or ())
    ]
    if default := fields.get("default_model"):
        named.append((("default_model",), default))
    limited = [(("model_limits", model), model) for model in fields.get("model_limits") or ()]
    for place, model in [*named, *limited]:
        if served(model) is False:
            shown = model[:_SHOWN]
            yield f"{path_of(place)}: no endpoint serves a model '{shown}' at the moment."


def _of_tags(given: Collection[str], tags: Collection[str]) -> Iterator[str]:
    by_small = {tag.casefold(): tag for tag in tags}
    for at, tag in enumerate(given):
        if tag in tags:
            continue
        for near in get_close_matches(tag.casefold(), by_small, n=1, cutoff=_NEAR):
            yield f"tags[{at}]: '{tag}' has no budget; did you mean '{by_small[near]}'?"
