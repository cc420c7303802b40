"""API keys: who calls is known before a body is read."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable

from router.errors import AuthenticationFailed
from router.exchange import Exchange
from router.plugin import Guard
from router.settings.schema import ApiKey
from router.wire.bearer import bearer_token

__all__ = ["ApiKeys"]


class ApiKeys(Guard):
    """Admits requests that carry one of the configured keys as a bearer token.

    Keys are kept as digests under a secret of this process, and what was presented is looked up
    by its digest: nobody can predict that, so the time the look-up takes says nothing about a key.
    """

    name = "api_keys"

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._secret = os.urandom(32)
        self._keys = {
            (digest := self._digest(key.key.get_secret_value())): (digest, key.name) for key in keys
        }

    async def admit(self, exchange: Exchange) -> None:
        """See ``Guard.admit``: sets ``exchange.caller`` to the key's name."""
        token = bearer_token(exchange.headers.get("Authorization", ""))
        if token is None:
            raise AuthenticationFailed(
                "No API key was given. Send it as 'Authorization: Bearer KEY'.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        presented = self._digest(token)
        digest, caller = self._keys.get(presented, (b"", ""))
        if not hmac.compare_digest(digest, presented):
            raise AuthenticationFailed(
                "Incorrect API key provided.", headers={"WWW-Authenticate": "Bearer"}
            )
        exchange.caller = caller

    def _digest(self, key: str) -> bytes:
        return hashlib.blake2b(key.encode("utf-8", "surrogateescape"), key=self._secret).digest()
