"""Requests as the cache sees them: the same one, whichever surface it was asked on.

What can change an answer is in the canonical request, and an absent field equals its default.
Where it is not certain that two ways of asking are the same, they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cache.canonical import Bypass, CacheRequest, NotCacheable
from cache.canonical_chat import canonical_chat
from cache.canonical_completions import canonical_completions
from cache.canonical_embeddings import canonical_embeddings
from cache.canonical_responses import canonical_responses

__all__ = [
    "Bypass",
    "CacheRequest",
    "from_chat",
    "from_completions",
    "from_embeddings",
    "from_responses",
]


def from_responses(body: Mapping[str, Any]) -> CacheRequest | Bypass:
    """The request of a validated Responses body, or why it has none.

    What its input refers to is in it by then; that it refers to something stored is still told.
    """
    return _attempt(canonical_responses, body)


def from_chat(body: Mapping[str, Any]) -> CacheRequest | Bypass:
    """The request of a Chat Completions body, or why it has none; the body may be any object."""
    return _attempt(canonical_chat, body)


def from_completions(body: Mapping[str, Any]) -> CacheRequest | Bypass:
    """The request of a legacy completions body, or why it has none."""
    return _attempt(canonical_completions, body)


def from_embeddings(body: Mapping[str, Any]) -> CacheRequest | Bypass:
    """The request of an embeddings body, or why it has none."""
    return _attempt(canonical_embeddings, body)


def _attempt(
    make: Callable[[Mapping[str, Any]], CacheRequest], body: Mapping[str, Any]
) -> CacheRequest | Bypass:
    try:
        return make(body)
    except NotCacheable as unfit:
        return Bypass(unfit.reason)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return Bypass("unsupported")  # it is for the endpoint to say what is wrong with it
