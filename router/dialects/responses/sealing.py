"""Encrypted content, marked with the account that issued it: no other can read it."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["ACCOUNT_MARK", "blob_of", "seal", "unseal"]

ACCOUNT_MARK: Final = "pm1."
"""What a marked ``encrypted_content`` begins with: ``pm1.ACCOUNT.BLOB``."""

_SEALED: Final = ("compaction", "reasoning")


def seal(blob: str, account: str) -> str:
    """Mark encrypted content with the account that issued it."""
    return f"{ACCOUNT_MARK}{account}.{blob}"


def unseal(blob: str) -> tuple[str | None, str]:
    """The account in a marked blob (None where there is no mark) and the blob itself."""
    if blob.startswith(ACCOUNT_MARK):
        account, dot, rest = blob[len(ACCOUNT_MARK) :].partition(".")
        if dot:
            return account, rest
    return None, blob


def blob_of(item: Any) -> str | None:
    """The encrypted content of an item, which only the account that issued it can read."""
    if not isinstance(item, dict) or item.get("type") not in _SEALED:
        return None
    blob = item.get("encrypted_content")
    return blob if isinstance(blob, str) and blob else None
