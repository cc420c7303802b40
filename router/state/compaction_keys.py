"""What the router's summaries of conversations are encrypted with, and how.

A client is given a summary as a text that it can only send back. Any router that has the key reads
it: those of the settings, or of the one database. The text says by which key it was encrypted
(``pmc1.KEY.DATA``), so that keys can be changed and former ones still decrypt; AES-256-GCM makes
sure that nobody has altered it, and that it comes from the one whom it was made for.
"""

from __future__ import annotations

import os
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from router.dialects.responses.summaries import COMPACTION_MARK
from router.settings.compaction import CompactionSettings
from router.state.database import Database, unavailable
from router.state.statement import Row, Statement, StatementStep

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["CompactionKeys", "UnreadableCompaction"]

_NONCE: Final = 12
_SECRET: Final = 32
_ID: Final = 8
_DAY: Final = 86_400.0
_MOST_HELD: Final = 256

_NEWEST: Final = Statement(
    "SELECT secret, created_at FROM compaction_keys ORDER BY created_at DESC, id DESC LIMIT 1"
)
_BY_ID: Final = Statement("SELECT secret FROM compaction_keys WHERE id = :id")
_ADD: Final = Statement(
    """
    INSERT INTO compaction_keys (id, created_at, secret) VALUES (:id, :created_at, :secret)
    ON CONFLICT DO NOTHING
    """
)


class UnreadableCompaction(Exception):
    """A text that nobody here can read: the reason, as a sentence for the client."""


class CompactionKeys:
    """Encrypts and decrypts. ``clock`` is in seconds since 1970.

    Keys of the settings need no database. Without any, the database has them: the newest encrypts
    until it is ``rotate_days`` old, then whoever needs one makes another.
    """

    def __init__(
        self,
        database: Database,
        settings: CompactionSettings,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._clock = clock
        self._stored: dict[str, bytes] = {}
        """Keys of the database, by their ids."""
        self._current: tuple[bytes, float] | None = None
        """The newest of them, and when it was made."""
        self.configure(settings)

    def configure(self, settings: CompactionSettings) -> None:
        """Go on with these settings."""
        self._rotate = settings.rotate_days * _DAY
        secrets = [_derived(key.get_secret_value().encode()) for key in settings.keys]
        self._first = secrets[0] if secrets else None
        self._configured = {_id_of(secret): secret for secret in secrets}

    async def seal(self, plain: bytes, owner: str) -> str:
        """``plain`` as a text that only ``owner`` can bring back. Raises StateUnavailable."""
        secret = self._first if self._first is not None else await self._newest()
        ident = _id_of(secret)
        nonce = os.urandom(_NONCE)
        data = nonce + _cipher(secret).encrypt(nonce, plain, _bound(ident, owner))
        return f"{COMPACTION_MARK}{ident}.{_encoded(data)}"

    async def unseal(self, text: str, owner: str) -> bytes:
        """What was sealed for this owner.

        Raises UnreadableCompaction, and StateUnavailable where the key may be in the database.
        """
        from cryptography.exceptions import InvalidTag

        ident, _, encoded = text.removeprefix(COMPACTION_MARK).partition(".")
        secret = self._configured.get(ident) or await self._stored_key(ident)
        if secret is None:
            raise UnreadableCompaction("It was encrypted with a key that is no longer there.")
        try:
            data = _decoded(encoded)
            nonce, sealed = data[:_NONCE], data[_NONCE:]
            return _cipher(secret).decrypt(nonce, sealed, _bound(ident, owner))
        except (InvalidTag, ValueError):
            raise UnreadableCompaction("It could not be verified.") from None

    async def _newest(self) -> bytes:
        """The key of the database that encrypts; another one is made where it is too old."""
        if self._current is None or self._is_old(self._current[1]):
            self._current = await self._read_newest()
        if self._current is None or self._is_old(self._current[1]):
            secret, now = os.urandom(_SECRET), self._clock()
            row: Row = {"id": _id_of(secret), "created_at": now, "secret": secret}
            await self._database.write(StatementStep(_ADD, (row,)))
            self._hold(secret)
            self._current = (secret, now)
        return self._current[0]

    async def _read_newest(self) -> tuple[bytes, float] | None:
        if not self._database.up:
            raise unavailable()
        rows = await self._database.read(_NEWEST)
        if not rows:
            return None
        secret, created_at = bytes(rows[0][0]), float(rows[0][1])
        self._hold(secret)
        return secret, created_at

    async def _stored_key(self, ident: str) -> bytes | None:
        if (known := self._stored.get(ident)) is not None:
            return known
        if len(ident) != 2 * _ID or not ident.isascii() or not ident.isalnum():
            return None
        if not self._database.up:
            raise unavailable()
        rows = await self._database.read(_BY_ID, id=ident)
        return self._hold(bytes(rows[0][0])) if rows else None

    def _hold(self, secret: bytes) -> bytes:
        self._stored[_id_of(secret)] = secret
        if len(self._stored) > _MOST_HELD:
            del self._stored[next(iter(self._stored))]
        return secret

    def _is_old(self, created_at: float) -> bool:
        return self._clock() - created_at >= self._rotate


def _cipher(secret: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(secret)


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    """Raises ValueError for anything that was not encoded here."""
    data = b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _encoded(data) != text:  # bits that the decoder passes over
        raise ValueError
    return data


def _bound(ident: str, owner: str) -> bytes:
    """What is not in the text, and has to be the same when it comes back."""
    return f"{COMPACTION_MARK}{ident}\0{owner}".encode()


def _derived(secret: bytes) -> bytes:
    """A key of the right length, of a secret of any."""
    return blake2b(secret, digest_size=_SECRET, person=b"compaction key").digest()


def _id_of(secret: bytes) -> str:
    """By which a key is known; it says nothing of the key."""
    return blake2b(secret, digest_size=_ID, person=b"compaction id").hexdigest()
