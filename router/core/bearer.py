"""The key that a request presents."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

__all__ = ["bearer_token", "presented_key", "same_key"]


def bearer_token(authorization: str) -> str | None:
    """The token of the scheme ``Bearer``; None where the header has none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def presented_key(headers: Mapping[str, str]) -> str | None:
    """The key in ``Authorization`` or, where that has none, in ``x-api-key``, as Anthropic's
    clients send it. A wrong key in the one is not made good by another in the other.
    """
    token = bearer_token(headers.get("Authorization", ""))
    return token or headers.get("X-Api-Key", "").strip() or None


def same_key(given: str, known: str) -> bool:
    """Whether they are the same, in a time that tells neither where they differ nor how long the
    known one is.
    """
    return hmac.compare_digest(_digest(given), _digest(known))


def _digest(key: str) -> bytes:
    return hashlib.blake2b(key.encode("utf-8", "surrogateescape")).digest()
