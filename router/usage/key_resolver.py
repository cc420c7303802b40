"""All keys of one configuration: those in it, and the virtual ones."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from typing import Final

from router.core.key import Key, key_of
from router.settings.accounts import ApiKey
from router.telemetry.log import get_logger
from router.usage.virtual_keys import VirtualKeys

__all__ = ["Ring"]

_log = get_logger("router.keys")

_NO_KEY: Final = Key("")


class Ring:
    """Implements ``router.core.key.KeyRing``.

    Configured keys are kept as digests under a secret of this process, and what was presented is
    looked up by its digest: nobody can predict that, so the time the look-up takes says nothing
    about a key. They go before virtual ones: a virtual key with the name of a configured one,
    which came later, does not count, since what belongs to the name is the configured key's.
    """

    def __init__(self, configured: Iterable[ApiKey], virtual: VirtualKeys | None = None) -> None:
        self._secret = os.urandom(32)
        self._virtual = virtual
        self._names: dict[str, Key] = {}
        self._keys: dict[bytes, tuple[bytes, Key]] = {}
        for one in configured:
            digest, key = self._digest(one.key.get_secret_value()), key_of(one)
            self._keys[digest] = (digest, key)
            self._names[key.name] = key

    def __repr__(self) -> str:
        return f"Ring({len(self._keys)} configured keys)"

    def warn(self) -> None:
        """Say so where virtual keys do not count: they are displaced by configured ones, or nobody
        is asked for a key.

        It is the configuration alone that closes a router: what is in a database, which may be
        away, does not decide who gets in.
        """
        if self._virtual is None:
            return
        if not self._keys and len(self._virtual):
            _log.warning(
                "open to everybody on this machine: auth.keys is empty, so that virtual keys "
                "do not count",
                virtual_keys=len(self._virtual),
            )
        self._virtual.displaced.intersection_update(self._names)
        for name in self._names:
            if name in self._virtual:
                self._warn_of(name, self._virtual)

    async def find(self, presented: str, now: float) -> Key | None:
        """See ``KeyRing.find``."""
        given = self._digest(presented)
        digest, key = self._keys.get(given, (b"", _NO_KEY))
        if hmac.compare_digest(digest, given):
            return key
        if self._virtual is None:
            return None
        found = await self._virtual.find(presented, now)
        if found is not None and found.name in self._names:
            self._warn_of(found.name, self._virtual)
            return None
        return found

    async def named(self, name: str) -> Key | None:
        """The key of this name, expired or not; None where there is none, or it is revoked.

        For what goes on after the request that it came with. Raises StateUnavailable like
        ``find``.
        """
        key = self._names.get(name)
        if key is not None or self._virtual is None:
            return key
        return await self._virtual.named(name)

    @staticmethod
    def _warn_of(name: str, virtual: VirtualKeys) -> None:
        if name not in virtual.displaced:
            virtual.displaced.add(name)
            _log.warning("a virtual key has the name of a configured one: refused", key=name)

    def _digest(self, key: str) -> bytes:
        return hashlib.blake2b(key.encode("utf-8", "surrogateescape"), key=self._secret).digest()
