"""The key in an ``Authorization`` header."""

from __future__ import annotations

__all__ = ["bearer_token"]


def bearer_token(authorization: str) -> str | None:
    """The token of the scheme ``Bearer``; None where the header has none."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
