"""Fields of a request that are nearly known ones: their clients meant those.

Engines have fields of their own (``top_k``, ``guided_json`` …), which pass. What is one letter away
from a long name that an API has, or is it in another spelling (``maxTokens``), is not one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from router.dialects.chat.encode_request import PRIVATE_FIELDS, RESPONSES_FIELDS
from router.dialects.chat.schema import CHAT_FIELDS
from router.dialects.embeddings.schema import PLAIN_FIELDS

__all__ = ["misspelt", "without_misspelt"]

_KNOWN: Final = RESPONSES_FIELDS | PRIVATE_FIELDS | CHAT_FIELDS | PLAIN_FIELDS
_SHORTEST: Final = 8
"""Letters of a known name from which on one that is a letter away is taken for it: shorter ones
have neighbours among the engines' fields (``top_k`` and ``top_p``, ``models`` and ``model``).
"""
_LONGEST: Final = 64


def misspelt(names: Iterable[str]) -> list[str]:
    """Those of the names that are nearly, but not quite, known fields."""
    return [name for name in names if name not in _KNOWN and _is_near(name[: _LONGEST + 1])]


def without_misspelt(body: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The body without such fields, and their names; itself where it has none."""
    names = misspelt(body)
    if not names:
        return body, ()
    return {name: value for name, value in body.items() if name not in names}, tuple(names)


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _shorter(name: str) -> set[str]:
    """The name without one of its letters, each in turn."""
    return {name[:at] + name[at + 1 :] for at in range(len(name))}


_SPELLINGS: Final = frozenset(map(_plain, _KNOWN))
_LONG: Final = frozenset(name for name in _SPELLINGS if len(name) >= _SHORTEST)
_SHORTENED: Final = frozenset(short for name in _LONG for short in _shorter(name))


@lru_cache(maxsize=1024)
def _is_near(name: str) -> bool:
    if len(name) > _LONGEST:
        return False
    plain = _plain(name)
    if plain in _SPELLINGS or plain in _SHORTENED:
        return True
    shorter = _shorter(plain)
    # A letter too much; or another letter, or two in the wrong order.
    return not shorter.isdisjoint(_LONG) or not shorter.isdisjoint(_SHORTENED)
