"""Keys in JSON, for the people who run the router: everything but their secrets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from router.settings.accounts import ApiKey
from router.usage.key_spec import shown_spec
from router.usage.keys import StoredKey

__all__ = ["shown_configured", "shown_virtual"]


def shown_virtual(key: StoredKey, now: float) -> dict[str, Any]:
    """A virtual key; what it may do is missing where this version cannot read it."""
    state = "active" if key.spec is not None else "unreadable"
    if key.revoked_at is not None:
        state = "revoked"
    elif key.expires is not None and key.expires <= now:
        state = "expired"
    previous = key.previous_until
    return {
        "object": "key",
        "name": key.name,
        "source": "virtual",
        "state": state,
        "hint": key.hint,
        "created_at": int(key.created_at),
        "changed_at": int(key.changed_at),
        "revoked_at": int(key.revoked_at) if key.revoked_at is not None else None,
        "previous_until": _date(previous) if previous is not None and previous > now else None,
        **(shown_spec(key.spec) if key.spec is not None else {}),
    }


def shown_configured(key: ApiKey, now: float) -> dict[str, Any]:
    """A key of the configuration."""
    expired = key.expires is not None and key.expires.timestamp() <= now
    return {
        "object": "key",
        "name": key.name,
        "source": "configuration",
        "state": "expired" if expired else "active",
        **shown_spec(key),
    }


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
