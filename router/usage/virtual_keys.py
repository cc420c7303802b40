"""The virtual keys as one router knows them: in memory, kept current from the database.

What this process changes counts here at once. What others change (another router, ``pointsman
keys``) counts within ``every`` seconds, the revocation of a key included; a key that is new is
looked up when it is first presented. While the database is away what is known goes on working,
keys that were revoked elsewhere meanwhile too.

The order of ``changed_at`` is not that of commits, and clocks are set: every look goes back a
minute, and once in a while everything is read again.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from router.core.key import Key
from router.errors import RouterError, StateUnavailable
from router.telemetry.log import get_logger
from router.telemetry.tasks import Tasks
from router.usage.key_spec import key_from, load_spec
from router.usage.keys import MOST_KEYS, KeyRow, KeyStore, digest_of, looks_like_ours

__all__ = ["VirtualKeys"]

_log = get_logger("router.keys")

_SECONDS: Final = 2.0
_OVERLAP_SECONDS: Final = 60.0
_LOOKS_TO_ALL: Final = 150
_PAGE: Final = 250
_MOST_UNKNOWN: Final = 10_000
_UNKNOWN_SECONDS: Final = 60.0
_LOOKUPS: Final = 100
_LOOKUPS_PER_SECOND: Final = 50.0
_ATTEMPTS: Final = 3


class VirtualKeys:
    """Finds virtual keys by their secrets and names.

    ``every`` is how often the database is asked for changes, in seconds; at most ``most`` keys are
    held, others are looked up each time. ``clock`` is monotonic, in seconds. ``displaced`` are the
    names that configured keys have taken, as far as that was told.
    """

    def __init__(
        self,
        store: KeyStore,
        *,
        every: float = _SECONDS,
        most: int = MOST_KEYS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._every = every
        self._most = most
        self._names: dict[str, _CachedKey] = {}
        self._digests: dict[bytes, _CachedKey] = {}
        self._unknown = _Unknown(clock)
        self._allowance = _Allowance(clock)
        self._fences = _Fences()
        self._since = 0.0
        self._looks = 0
        self._full = False
        self._tasks = Tasks()
        self.displaced: set[str] = set()
        store.changed = self.forget

    def __len__(self) -> int:
        """How many are held."""
        return len(self._names)

    def __contains__(self, name: str) -> bool:
        """Whether one of this name is held."""
        return name in self._names

    async def start(self) -> None:
        """Read all keys, and keep them current; where the database is away, once it is back."""
        await self._look()
        self._tasks.spawn(self._keep_looking(), "virtual keys")

    async def stop(self) -> None:
        """Ask no more. Works without a ``start`` before it."""
        await self._tasks.close()

    async def find(self, presented: str, now: float) -> Key | None:
        """See ``KeyResolver.find``."""
        if not looks_like_ours(presented):
            return None
        # Found by a digest that nobody can steer, the time it takes says nothing about a secret.
        digest = digest_of(presented)
        entry = self._digests.get(digest) or await self._looked_up(digest)
        return entry.key if entry is not None and entry.opens(digest, now) else None

    async def named(self, name: str) -> Key | None:
        """The key of this name unless it is revoked, expired or not. Raises StateUnavailable."""
        entry = self._names.get(name)
        if entry is None:
            entry = await self._read(lambda: self._store.named(name))
        return entry.key if entry is not None else None

    def forget(self, name: str) -> None:
        """The key has been changed: what is known of it, or just being read, is out of date."""
        self._fences.raise_for(name)
        self._drop(name)

    async def refresh(self) -> None:
        """Take over what has changed since the last time. Raises StateUnavailable."""
        everything = self._looks % _LOOKS_TO_ALL == 0
        with self._fences.reading() as began:
            now = await self._store.clock()
            since = 0.0 if everything else self._since - _OVERLAP_SECONDS
            seen: set[str] = set()
            after = (since, "")
            while rows := await self._store.changes(after, _PAGE, revoked=not everything):
                for row in rows:
                    seen.add(row.name)
                    if not self._fences.stale(row.name, began):
                        self._apply(row)
                after = (rows[-1].changed_at, rows[-1].name)
        if everything:
            for name in self._names.keys() - seen:
                self._drop(name)  # one that is newer than this look is looked up again
        self._since = now
        self._looks += 1

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                await self._look()
            except Exception:  # the next look may go well, and must not be the last
                _log.exception("virtual keys are not read")

    async def _look(self) -> None:
        try:
            await self.refresh()
        except StateUnavailable:
            _log.debug("virtual keys are not read: the database does not answer")
        except RouterError as error:
            _log.warning("virtual keys are not read", error=error.message)

    async def _looked_up(self, digest: bytes) -> _CachedKey | None:
        """The key that only the database may know; raises StateUnavailable."""
        if digest in self._unknown:
            return None
        if not self._allowance.take():
            # A key that exists is known within moments without being looked up.
            raise _unavailable("Too many keys that are not known here are presented. Try again.")
        entry = await self._read(lambda: self._store.find(digest))
        if entry is None:
            self._unknown.add(digest)
        return entry

    async def _read(self, read: Callable[[], Awaitable[KeyRow | None]]) -> _CachedKey | None:
        """What ``read`` finds, unless it is revoked; once more when it was changed meanwhile."""
        for _ in range(_ATTEMPTS):
            with self._fences.reading() as began:
                try:
                    row = await read()
                except StateUnavailable:
                    raise _unavailable(
                        "This key is not known here yet, and the database that may know it does "
                        "not answer. Try again soon."
                    ) from None
                if row is None or row.revoked_at is not None:
                    return None
                if not self._fences.stale(row.name, began):
                    return self._apply(row)
        raise _unavailable("This key is being changed. Try again.")

    def _apply(self, row: KeyRow) -> _CachedKey | None:
        """Hold this row in the place of what is held of its name; None for a revoked one."""
        known = self._names.get(row.name)
        if known is not None and known.changed_at == row.changed_at:
            return known
        self._drop(row.name)
        if row.revoked_at is not None:
            return None
        entry = _CachedKey(row)
        if len(self._names) >= self._most:
            if not self._full:
                _log.warning("too many virtual keys to hold them all", held=len(self._names))
            self._full = True
            return entry
        self._full = False
        self._names[row.name] = entry
        for digest in entry.digests:
            self._digests[digest] = entry
            self._unknown.discard(digest)
        return entry

    def _drop(self, name: str) -> None:
        entry = self._names.pop(name, None)
        if entry is not None:
            for digest in entry.digests:
                self._digests.pop(digest, None)


def _unavailable(message: str) -> StateUnavailable:
    return StateUnavailable(message, headers={"Retry-After": "1"})


class _CachedKey:
    """One key. What it may do is made of its row when it is first used."""

    __slots__ = ("_digest", "_key", "_previous", "_row", "_until", "changed_at")

    def __init__(self, row: KeyRow) -> None:
        self.changed_at = row.changed_at
        self._digest = row.digest
        self._previous = row.previous
        self._until = row.previous_until
        self._row: KeyRow | None = row
        self._key: Key | None = None

    @property
    def digests(self) -> list[bytes]:
        """What it is found by."""
        return [self._digest] if self._previous is None else [self._digest, self._previous]

    @property
    def key(self) -> Key | None:
        """What it may do; None where that cannot be read."""
        if self._row is not None:
            row, self._row = self._row, None
            spec = load_spec(row.spec, row.expires)
            if spec is None:
                _log.warning("a virtual key cannot be read, and is refused", key=row.name)
            else:
                self._key = key_from(row.name, spec)
        return self._key

    def opens(self, digest: bytes, now: float) -> bool:
        """Whether this is the digest of its secret, or of the one before in its time of grace."""
        if hmac.compare_digest(self._digest, digest):
            return True
        if self._previous is None or self._until is None or now >= self._until:
            return False
        return hmac.compare_digest(self._previous, digest)


class _Fences:
    """Which names have been changed since a read of the database began."""

    def __init__(self) -> None:
        self._count = 0
        self._readers = 0
        self._raised: dict[str, int] = {}

    @contextmanager
    def reading(self) -> Iterator[int]:
        """Around a read: when it began, for ``stale``."""
        self._readers += 1
        try:
            yield self._count
        finally:
            self._readers -= 1
            if not self._readers:
                self._raised.clear()

    def raise_for(self, name: str) -> None:
        """Whoever reads at this moment may have read what is no more."""
        self._count += 1
        if self._readers:
            self._raised[name] = self._count

    def stale(self, name: str, began: int) -> bool:
        """Whether the name has been changed since."""
        return self._raised.get(name, 0) > began


class _Unknown:
    """Digests that the database does not know: the latest, for a minute."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def __contains__(self, digest: bytes) -> bool:
        return self._until.get(digest, 0.0) > self._clock()

    def add(self, digest: bytes) -> None:
        """Remember it."""
        self._until[digest] = self._clock() + _UNKNOWN_SECONDS
        self._until.move_to_end(digest)
        if len(self._until) > _MOST_UNKNOWN:
            self._until.popitem(last=False)

    def discard(self, digest: bytes) -> None:
        """It is known now."""
        self._until.pop(digest, None)


class _Allowance:
    """How many unknown keys may be looked up: guesses are not the database's load."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = float(_LOOKUPS)
        self._at = clock()

    def take(self) -> bool:
        """Whether one more may be."""
        now = self._clock()
        self._left = min(_LOOKUPS, self._left + (now - self._at) * _LOOKUPS_PER_SECOND)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
