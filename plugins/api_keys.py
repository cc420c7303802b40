"""API keys: who calls is known before a body is read."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from router.errors import AuthenticationFailed
from router.exchange import Exchange
from router.plugin import Guard
from router.settings.schema import ApiKey

__all__ = ["ApiKeys"]


class ApiKeys(Guard):
    """Admits requests that carry one of the configured keys as a bearer token.

    Keys are kept as digests only. The digest of what was presented is looked up, so that the time
    it takes says nothing about a key, and is then compared in constant time.
    """

    name = "api_keys"

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._names = {_digest(key.key.get_secret_value()): key.name for key in keys}

    async def admit(self, exchange: Exchange) -> None:
        """See ``Guard.admit``: sets ``exchange.caller`` to the key's name."""
        scheme, _, token = exchange.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise AuthenticationFailed(
                "No API key was given. Send it as 'Authorization: Bearer KEY'.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        presented = _digest(token.strip())
        for digest in (presented,) if presented in self._names else ():
            if hmac.compare_digest(digest, presented):
                exchange.caller = self._names[digest]
                return
        raise AuthenticationFailed(
            "Incorrect API key provided.", headers={"WWW-Authenticate": "Bearer"}
        )


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
