"""A PostgreSQL database under maintenance."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from router.state.database import Fault, StateError, Unreachable
from router.state.link import DatabaseLink
from router.state.migrate import postgresql_version
from router.state.schema import VERSIONS
from router.state.statement import Statement

__all__ = ["PostgresAccess"]

T = TypeVar("T")

_PATIENCE: Final = 3600.0
_SHORT: Final = 10.0
_AT_ONCE: Final = 8
"""So many rows of a scan are in memory."""

_TABLES: Final = tuple(
    re.findall(r"CREATE TABLE (\w+)", "\n".join(text for step in VERSIONS for text in step))
)
_SIZE: Final = """
    SELECT COALESCE(SUM(pg_total_relation_size(to_regclass(name))), 0)
    FROM unnest($1::text[]) AS name
"""


class PostgresAccess:
    """Implements ``Access``, on our tables only: others may be in the same database."""

    def __init__(self, url: str, *, writing: bool) -> None:
        settings = {
            "application_name": "pointsman state",
            "jit": "off",
            "default_transaction_read_only": "off" if writing else "on",
        }
        self._link = DatabaseLink(url, settings, lambda: None)

    async def version(self) -> int:
        """See ``Access.version``."""
        return await self._run(postgresql_version, _SHORT)

    async def rows(self, statement: Statement) -> list[tuple[Any, ...]]:
        """See ``Access.rows``."""

        async def work(connection: Any) -> list[tuple[Any, ...]]:
            return [tuple(record) for record in await connection.fetch(statement.postgresql)]

        return await self._run(work)

    async def scan(self, statement: Statement, visit: Callable[[tuple[Any, ...]], None]) -> None:
        """See ``Access.scan``."""

        async def work(connection: Any) -> None:
            async with connection.transaction():
                cursor = connection.cursor(statement.postgresql, prefetch=_AT_ONCE)
                async for record in cursor:
                    visit(tuple(record))

        await self._run(work)

    async def size(self) -> int:
        """See ``Access.size``."""

        async def work(connection: Any) -> int:
            return int(await connection.fetchval(_SIZE, list(_TABLES)))

        return await self._run(work)

    async def damage(self) -> list[str]:
        """See ``Access.damage``: the server looks after its own files."""
        return []

    async def reusable(self) -> int:
        """See ``Access.reusable``."""
        return 0

    async def compact(self) -> None:
        """See ``Access.compact``: nobody has to wait for it."""

        async def work(connection: Any) -> None:
            for table in _TABLES:
                await connection.execute(f"VACUUM (ANALYZE) {table}")

        await self._run(work)

    async def fold(self) -> None:
        """See ``Access.fold``: the server does."""

    async def close(self) -> None:
        """See ``Access.close``."""
        await self._link.close()

    async def _run(self, work: Callable[[Any], Awaitable[T]], timeout: float = _PATIENCE) -> T:
        try:
            return await self._link.run(work, timeout)
        except (Unreachable, Fault) as exc:
            raise StateError(f"The PostgreSQL database cannot be used: {exc}.") from None
