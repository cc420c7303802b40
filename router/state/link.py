"""One connection to PostgreSQL, and what its errors mean."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import asyncpg

from router.state.database import Fault, StateError, Unreachable

__all__ = ["UNHOLDABLE", "DatabaseLink", "without_password"]

T = TypeVar("T")

_CONNECT_SECONDS: Final = 3.0
_CLOSE_SECONDS: Final = 1.0
_TROUBLE: Final[tuple[type[Exception], ...]] = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.OperatorInterventionError,
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,
)
"""What is no fault of the row or the statement."""

_AGAIN: Final[tuple[type[Exception], ...]] = (
    asyncpg.TransactionRollbackError,
    asyncpg.LockNotAvailableError,
)
"""What only this transaction suffered from."""

UNHOLDABLE: Final[tuple[type[Exception], ...]] = (asyncpg.DataError, UnicodeEncodeError)
"""Values that PostgreSQL has no place for: a text with a zero in it, a lone surrogate."""


class DatabaseLink:
    """Connects when it is needed, and again when the connection was lost.

    ``lost`` is called whenever a connection ends.
    """

    def __init__(self, url: str, settings: Mapping[str, str], lost: Callable[[], None]) -> None:
        self._url = url
        self._settings = settings
        self._lost = lost
        self._connection: Any = None
        self._opening: asyncio.Task[None] | None = None
        self._late = False

    async def run(self, work: Callable[[Any], Awaitable[T]], timeout: float) -> T:
        """What ``work(connection)`` returns; past ``timeout`` seconds the connection is cut.

        Raises Unreachable or Fault; StateError where ``work`` does.
        """
        usable = self._late = False
        try:
            connection = await self._open()
            # Not asyncpg's own timeouts: they ask the server to cancel, which may be frozen.
            alarm = asyncio.get_running_loop().call_later(timeout, self._cut_off, connection)
            try:
                result = await work(connection)
            except (asyncpg.PostgresError, *UNHOLDABLE):
                usable = not connection.is_closed() and not connection.is_in_transaction()
                raise
            finally:
                alarm.cancel()
            usable = True
        except _AGAIN as exc:
            raise Unreachable(_text(exc), down=False) from None
        except _TROUBLE as exc:
            if self._late:
                # Perhaps only what was asked takes long: the probe that this brings on will tell.
                raise Unreachable(f"no answer within {timeout:g} s", down=False) from None
            raise Unreachable(without_password(self._url, _text(exc))) from None
        except StateError:
            raise
        except Exception as exc:
            raise Fault(_text(exc)) from None
        finally:
            if not usable:
                self.cut()
        return result

    def _cut_off(self, connection: Any) -> None:
        self._late = True
        connection.terminate()

    def cut(self) -> None:
        """End the connection without a word to the server."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def close(self) -> None:
        """Take leave of the server, if it listens."""
        if self._opening is not None:
            await asyncio.wait([self._opening], timeout=_CLOSE_SECONDS)
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await connection.close()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                connection.terminate()
        self.give_up()

    def give_up(self) -> None:
        """End the connection without a word to the server, or the attempt to make one."""
        if self._opening is not None:
            self._opening.cancel()
        self.cut()

    async def _open(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            self._connection = None
            if self._opening is None:
                self._opening = asyncio.create_task(self._connect(), name="connect to PostgreSQL")
            # Whoever leaves does not interrupt it: the next one needs it, too.
            await asyncio.shield(self._opening)
        return self._connection

    async def _connect(self) -> None:
        try:
            self._connection = await asyncpg.connect(
                self._url, timeout=_CONNECT_SECONDS, server_settings=dict(self._settings)
            )
        except ValueError:
            # Its text may quote any part of the URL.
            raise Unreachable("state.url is no URL that asyncpg understands") from None
        finally:
            self._opening = None
        self._connection.add_termination_listener(lambda _: self._lost())


def without_password(url: str, text: str) -> str:
    """``text`` in one line, with the password of ``url`` blotted out."""
    try:
        password = urlsplit(url).password
    except ValueError:
        password = None
    for secret in (password, unquote(password or "")):
        if secret:
            text = text.replace(secret, "***")
    return " ".join(text.split())


def _text(exc: BaseException) -> str:
    """What happened, without any value of a row."""
    if isinstance(exc, (*_TROUBLE, *_AGAIN)):
        said = exc.args[0] if isinstance(exc, asyncpg.PostgresError) and exc.args else exc
        return f"{type(exc).__name__}: {said}"
    if isinstance(exc, asyncpg.PostgresError):
        where = [exc.sqlstate, exc.table_name, exc.column_name, exc.constraint_name]
        return " ".join([type(exc).__name__, *[str(part) for part in where if part]])
    return type(exc).__name__
