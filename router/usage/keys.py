"""Virtual keys in the database: made, changed, rotated and revoked while routers run.

A key's secret leaves once, when it is made; what is kept is its SHA-256. Without a salt: that is
for secrets that somebody could guess, and nobody can try 2**256 of them.

A row is never deleted. Objects belong to the name of a key, so that a name that was used once is
nobody else's later.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pydantic import SecretStr, TypeAdapter, ValidationError

from router.core.key import ANYBODY
from router.errors import Conflict, InvalidRequest, NotFound
from router.settings.accounts import KeySpec
from router.settings.values import KeyName
from router.state.database import Database
from router.state.statement import Statement, StatementStep, Value
from router.usage.key_spec import changed_spec, load_spec, parse_spec, stored_spec

__all__ = ["MOST_KEYS", "Issued", "KeyRow", "KeyStore", "StoredKey", "digest_of", "looks_like_ours"]

MOST_KEYS: Final = 100_000
"""Virtual keys that are not revoked, at once."""

_PREFIX: Final = "sk-sy-"
_FORM: Final = re.compile(rf"{_PREFIX}[A-Za-z0-9_-]{{43}}")
_BYTES: Final = 32
_HINT: Final = 4
_LONGEST_GRACE: Final = 366 * 86400.0
_ATTEMPTS: Final = 20
_SHOWN: Final = 200
_NAME: Final[TypeAdapter[str]] = TypeAdapter(KeyName)

# Every change of a row has a later time than the one before it, whatever the clock does.
_NOW: Final = "CASE WHEN {now} > changed_at THEN {now} ELSE changed_at + 0.001 END"
_CREATE: Final = Statement(
    """
    INSERT INTO virtual_keys (name, digest, hint, created_at, changed_at, expires, spec)
    SELECT CAST(:name AS TEXT), CAST(:digest AS {blob}), CAST(:hint AS TEXT), {now}, {now},
           CAST(:expires AS {real}), CAST(:spec AS {blob})
    WHERE (SELECT COUNT(*) FROM virtual_keys WHERE revoked_at IS NULL) < CAST(:most AS {int})
    ON CONFLICT DO NOTHING
    """
)
# Refuses the job when the row is not ours; holds when the job is run again.
_CREATED: Final = Statement(
    "UPDATE virtual_keys SET hint = :hint WHERE name = :name AND digest = :digest"
)
_UPDATE: Final = Statement(
    f"""
    UPDATE virtual_keys SET spec = :spec, expires = :expires, changed_at = {_NOW}
    WHERE name = :name AND changed_at = :seen AND revoked_at IS NULL
    """
)
_ROTATE: Final = Statement(
    f"""
    UPDATE virtual_keys
    SET previous = CASE WHEN CAST(:grace AS {{real}}) > 0 THEN digest END,
        previous_until = CASE
            WHEN CAST(:grace AS {{real}}) > 0 THEN {{now}} + CAST(:grace AS {{real}})
        END,
        digest = :digest, hint = :hint, changed_at = {_NOW}
    WHERE name = :name AND digest = :old AND revoked_at IS NULL
    """
)
_REVOKE: Final = Statement(
    f"""
    UPDATE virtual_keys
    SET revoked_at = COALESCE(revoked_at, {{now}}), previous = NULL, previous_until = NULL,
        changed_at = {_NOW}
    WHERE name = :name
    """
)
_COLUMNS: Final = (
    "name, digest, previous, previous_until, hint, created_at, changed_at, expires, revoked_at,"
    " spec"
)
_GET: Final = Statement(f"SELECT {_COLUMNS} FROM virtual_keys WHERE name = :name")
_FIND: Final = Statement(
    f"SELECT {_COLUMNS} FROM virtual_keys WHERE digest = :digest OR previous = :digest"
)
_PAGE: Final = Statement(
    f"SELECT {_COLUMNS} FROM virtual_keys WHERE name > :after ORDER BY name LIMIT :limit"
)
_CHANGES: Final = Statement(
    f"""
    SELECT {_COLUMNS} FROM virtual_keys
    WHERE (changed_at, name) > (:at, :name)
      AND (revoked_at IS NULL OR CAST(:revoked AS {{int}}) = 1)
    ORDER BY changed_at, name LIMIT :limit
    """
)
_CLOCK: Final = Statement("SELECT {now}")


class KeyRow(NamedTuple):
    """A row of ``virtual_keys``. Times are in Unix time, those of the database's clock."""

    name: str
    digest: bytes
    previous: bytes | None
    previous_until: float | None
    hint: str
    created_at: float
    changed_at: float
    expires: float | None
    revoked_at: float | None
    spec: bytes

    def __repr__(self) -> str:
        return f"KeyRow({self.name!r})"


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A virtual key as it may be shown. Times are in Unix time; ``spec`` is None where another
    version of Pointsman wrote what this one cannot read. Until ``previous_until`` the secret
    before the last rotation is good too.
    """

    name: str
    hint: str
    created_at: float
    changed_at: float
    expires: float | None
    revoked_at: float | None
    previous_until: float | None
    spec: KeySpec | None


@dataclass(frozen=True, slots=True)
class Issued:
    """A key with a new secret, which is nowhere else."""

    key: StoredKey
    secret: SecretStr


def digest_of(secret: str) -> bytes:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def looks_like_ours(presented: str) -> bool:
    """Whether this may be the secret of a virtual key."""
    return _FORM.fullmatch(presented) is not None


class KeyStore:
    """The table of virtual keys. Everything raises StateUnavailable.

    ``changed`` is called with the name of a key after this process has changed it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.changed: Callable[[str], None] = lambda name: None

    async def create(
        self,
        name: str,
        spec: Mapping[str, Any],
        *,
        reserved: Collection[str] = (),
        endpoints: Sequence[str] | None = None,
    ) -> Issued:
        """A new key; ``spec`` are fields of KeySpec, as in JSON, and ``endpoints`` the names that
        it may refer to, None for any.

        Raises InvalidRequest with the field at fault, Conflict for a name that is or was
        another key's, or is one of ``reserved``, those of the configuration.
        """
        _check_name(name)
        if name == ANYBODY.name or name in reserved:
            owner = "who calls without a key" if name == ANYBODY.name else "a configured key"
            raise Conflict(f"'{name}' is the name of {owner}.", code="name_taken", param="name")
        checked = parse_spec(spec, endpoints)
        if checked.expires is not None and checked.expires.timestamp() <= time.time():
            raise InvalidRequest(
                "Invalid 'expires': is in the past.", code="invalid_value", param="expires"
            )
        secret = _PREFIX + secrets.token_urlsafe(_BYTES)
        row = {**_secret_row(name, secret), **_spec_row(checked), "most": MOST_KEYS}
        if not await self._database.write(
            StatementStep(_CREATE, (row,)), StatementStep(_CREATED, (row,), guard=True)
        ):
            if await self._row(name) is not None:
                raise Conflict(
                    f"There is, or was, a key named '{name}'; a name is not used again.",
                    code="name_taken",
                    param="name",
                )
            raise Conflict(
                f"There are {MOST_KEYS} virtual keys, which is the most. Revoke some first.",
                code="too_many_keys",
            )
        return await self._issued(name, secret)

    async def get(self, name: str) -> StoredKey | None:
        """The key of this name, revoked or not."""
        row = await self._row(name)
        return _stored(row) if row is not None else None

    async def page(self, after: str, limit: int) -> list[StoredKey]:
        """At most ``limit`` keys whose names come after ``after``, by name."""
        rows = await self._database.read(_PAGE, after=after, limit=limit)
        return [_stored(KeyRow(*row)) for row in rows]

    async def update(
        self, name: str, changes: Mapping[str, Any], *, endpoints: Sequence[str] | None = None
    ) -> StoredKey:
        """Change these fields of KeySpec, the others stay; null is as if it was never given.

        Raises NotFound, Conflict for a revoked key, InvalidRequest with the field at fault.
        """
        for _ in range(_ATTEMPTS):
            row = await self._usable(name)
            spec = load_spec(row.spec, row.expires)
            if spec is None:
                raise Conflict(
                    f"The key '{name}' was made by another version of Pointsman, and cannot be "
                    "changed by this one.",
                    code="unreadable_key",
                )
            changed = _spec_row(changed_spec(spec, changes, endpoints))
            step = StatementStep(
                _UPDATE, ({"name": name, "seen": row.changed_at, **changed},), guard=True
            )
            if await self._database.write(step):
                return await self._after(name)
        raise _contended(name)

    async def rotate(self, name: str, grace: float) -> Issued:
        """Give the key another secret; for ``grace`` seconds the one it has is good too.

        One that was rotated out before is not any more. Raises NotFound, Conflict for a revoked
        key and for one that somebody else rotates, InvalidRequest.
        """
        if not 0 <= grace <= _LONGEST_GRACE:
            raise InvalidRequest(
                f"Invalid 'grace': expected 0 to {_LONGEST_GRACE:.0f} seconds.",
                code="invalid_value",
                param="grace",
            )
        old = (await self._usable(name)).digest
        secret = _PREFIX + secrets.token_urlsafe(_BYTES)
        row = {**_secret_row(name, secret), "old": old, "grace": grace}
        if not await self._database.write(StatementStep(_ROTATE, (row,), guard=True)):
            # Its first run may have been committed, and only nobody have heard of it.
            now = await self._usable(name)
            if now.digest != digest_of(secret):
                raise _contended(name)
        return await self._issued(name, secret)

    async def revoke(self, name: str) -> StoredKey:
        """Refuse the key from now on, for good. Once more does nothing. Raises NotFound."""
        row = await self._row(name)
        if row is None:
            raise _no_key(name)
        if row.revoked_at is None:
            await self._database.write(StatementStep(_REVOKE, ({"name": name},)))
        return await self._after(name)

    async def find(self, digest: bytes) -> KeyRow | None:
        """The row with this digest, or which had it before; it may be revoked, or its time over."""
        rows = await self._database.read(_FIND, digest=digest)
        return KeyRow(*rows[0]) if rows else None

    async def named(self, name: str) -> KeyRow | None:
        """The row of this name."""
        return await self._row(name)

    async def changes(self, after: tuple[float, str], limit: int, *, revoked: bool) -> list[KeyRow]:
        """At most ``limit`` rows by (changed_at, name), those after ``after``."""
        at, name = after
        rows = await self._database.read(
            _CHANGES, at=at, name=name, limit=limit, revoked=int(revoked)
        )
        return [KeyRow(*row) for row in rows]

    async def clock(self) -> float:
        """The database's time, in Unix time."""
        [[now]] = await self._database.read(_CLOCK)
        return float(now)

    async def _row(self, name: str) -> KeyRow | None:
        rows = await self._database.read(_GET, name=name)
        return KeyRow(*rows[0]) if rows else None

    async def _usable(self, name: str) -> KeyRow:
        row = await self._row(name)
        if row is None:
            raise _no_key(name)
        if row.revoked_at is not None:
            raise Conflict(f"The key '{name}' is revoked.", code="key_revoked")
        return row

    async def _after(self, name: str) -> StoredKey:
        """The key as it is after a change, which is made known."""
        self.changed(name)
        row = await self._row(name)
        if row is None:
            raise _no_key(name)
        return _stored(row)

    async def _issued(self, name: str, secret: str) -> Issued:
        return Issued(await self._after(name), SecretStr(secret))


def _check_name(name: str) -> None:
    try:
        _NAME.validate_python(name)
    except ValidationError as exc:
        raise InvalidRequest(
            f"Invalid 'name': {exc.errors()[0]['msg']}.", code="invalid_value", param="name"
        ) from None


def _secret_row(name: str, secret: str) -> dict[str, Value]:
    hint = f"{_PREFIX}...{secret[-_HINT:]}"
    return {"name": name, "digest": digest_of(secret), "hint": hint}


def _spec_row(spec: KeySpec) -> dict[str, Value]:
    expires = spec.expires.timestamp() if spec.expires is not None else None
    return {"spec": stored_spec(spec), "expires": expires}


def _stored(row: KeyRow) -> StoredKey:
    return StoredKey(
        row.name,
        row.hint,
        row.created_at,
        row.changed_at,
        row.expires,
        row.revoked_at,
        row.previous_until,
        load_spec(row.spec, row.expires),
    )


def _no_key(name: str) -> NotFound:
    return NotFound(f"There is no virtual key '{name[:_SHOWN]}'.")


def _contended(name: str) -> Conflict:
    return Conflict(f"The key '{name}' is being changed by others.", code="conflict")
