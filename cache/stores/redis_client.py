"""Talking to Redis: where it is, how long it may take, what its errors become."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from redis.asyncio.connection import AbstractConnection, ConnectionPool, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from cache.patience import Timeout
from cache.store import StoreError
from cache.stores.scripts import Script, StoreScript

__all__ = ["RedisClient"]

_OPTIONS: Final = {
    "redis": {"db"},
    "rediss": {
        "db",
        "ssl_ca_certs",
        "ssl_cert_reqs",
        "ssl_certfile",
        "ssl_check_hostname",
        "ssl_keyfile",
    },
    "unix": {"db", "username", "password"},
}
"""What a URL may have after its question mark; the rest is the store's to decide."""

_CODE: Final = re.compile(r"[A-Z]{2,20}\b")


class RedisClient:
    """Connections to the Redis at ``url``, made when they are needed; raises ValueError where that
    is none. No command is sent twice.

    ``name`` says where it is, without a password. ``prefix`` is what the names of a store's keys
    begin with. ``timeout`` is for the answer to one command, and for a free connection; both in
    seconds. ``change`` is the last change that this process has heard of.
    """

    def __init__(
        self, url: str, prefix: str, *, connect_timeout: float, timeout: float, connections: int
    ) -> None:
        parts = _checked(url)
        self.name = _name(parts)
        settings: dict[str, Any] = dict(parse_url(url))
        # Its default is ten retries with pauses in between.
        settings |= {
            "retry": Retry(NoBackoff(), 0),
            "retry_on_error": [],
            "socket_connect_timeout": connect_timeout,
            # It is given a deadline here: its own goes through wait_for, which may lose a
            # cancellation before Python 3.12.
            "socket_timeout": None,
            "protocol": 2,
            "driver_info": None,
        }
        # A client and a pool of its own take longer than Redis for the answer.
        self._make = ConnectionPool(**settings).make_connection
        self._connections: set[AbstractConnection] = set()
        self._idle: list[AbstractConnection] = []
        self._free = asyncio.Semaphore(connections)
        self._timeout = timeout
        self._connect_timeout = connect_timeout + timeout
        self._prefix = f"{{{prefix}}}:"
        self._closed = asyncio.Event()
        self._epoch = 0
        self.change = 0

    def __repr__(self) -> str:
        return f"<RedisClient {self.name}>"

    async def close(self) -> None:
        """End all connections."""
        self._closed.set()
        for connection in tuple(self._connections):
            await connection.disconnect()

    def key(self, name: str) -> str:
        """The whole name of one of the store's keys."""
        return self._prefix + name

    async def run(
        self, script: StoreScript, key: str | None, *arguments: Any
    ) -> tuple[int, list[Any]]:
        """The epoch, and what else the script returns; raises StoreError. ``key`` is an entry's."""
        names = [self._prefix + (f"e:{key}" if k == "entry" else k) for k in script.keys]
        words: list[Any] = [len(names), *names, self._epoch, self.change]
        if script.entries:
            words.append(self._prefix + "e:")
        words += arguments
        [answer] = await self.run_scripts([(script, words)])
        if isinstance(answer, StoreError):
            raise answer
        epoch = int(answer[0])
        self._epoch = max(self._epoch, epoch)
        return epoch, answer[1:]

    async def command(self, *words: Any) -> Any:
        """Its answer; raises StoreError."""
        [answer] = await self.pipeline([words])
        if isinstance(answer, ResponseError):
            raise self._error(answer)
        return answer

    async def pipeline(
        self, commands: Sequence[Sequence[Any]], timeout: float | None = None
    ) -> list[Any | ResponseError]:
        """The answers to commands that are sent together, in their order; an error that Redis
        gives one of them stands in its place. ``timeout``: seconds for all of it, connecting
        included; without one, connecting has a deadline of its own. Raises StoreError where they
        are not answered: any of them may have been carried out.
        """
        try:
            if self._free.locked():
                async with asyncio.timeout(self._timeout):
                    await self._free.acquire()
            else:
                await self._free.acquire()
            try:
                return await self._exchange(commands, timeout)
            finally:
                self._free.release()
        except (RedisError, OSError, TimeoutError, ValueError) as exc:
            raise self._error(exc) from None

    async def _exchange(
        self, commands: Sequence[Sequence[Any]], timeout: float | None
    ) -> list[Any | ResponseError]:
        answers: list[Any | ResponseError] = []
        connection = self._taken()
        try:
            if timeout is None:
                await self._connected(connection)
            async with Timeout(self._timeout if timeout is None else timeout):
                if timeout is not None:
                    await self._connected(connection)
                await connection.send_packed_command(connection.pack_commands(commands))
                for _ in commands:
                    try:
                        answers.append(await connection.read_response())
                    except ResponseError as exc:
                        answers.append(exc)
        finally:
            if len(answers) < len(commands):
                # What is still to come would be taken for the answer to something else.
                await connection.disconnect(nowait=True)
            await self._given_back(connection)
        return answers

    async def run_scripts(
        self, calls: Sequence[tuple[Script, Sequence[Any]]], timeout: float | None = None
    ) -> list[Any | StoreError]:
        """What scripts return that are sent together, each with its keys and arguments; an error
        of one of them stands in its place. ``timeout`` is for each ``pipeline``: a second follows
        where Redis does not know a script. Raises StoreError as ``pipeline`` does.
        """
        answers = await self.pipeline(
            [("EVALSHA", script.sha, *words) for script, words in calls], timeout
        )
        unknown = [n for n, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:
            commands, told = [], set()
            for script, words in [calls[n] for n in unknown]:
                # Redis runs them in this order, and knows a script once it has run it.
                known = script.sha in told
                first = ("EVALSHA", script.sha) if known else ("EVAL", script.text)
                commands.append((*first, *words))
                told.add(script.sha)
            again = await self.pipeline(commands, timeout)
            for n, answer in zip(unknown, again, strict=True):
                answers[n] = answer
        return [self._error(a) if isinstance(a, ResponseError) else a for a in answers]

    def _taken(self) -> AbstractConnection:
        if self._closed.is_set():
            raise StoreError(f"{self.name}: it was closed")
        if self._idle:
            return self._idle.pop()
        connection: AbstractConnection = self._make()  # type: ignore[no-untyped-call]
        self._connections.add(connection)
        return connection

    async def _connected(self, connection: AbstractConnection) -> None:
        if not await _usable(connection):
            async with Timeout(self._connect_timeout):
                await connection.disconnect()
                await connection.connect()  # type: ignore[no-untyped-call]

    async def _given_back(self, connection: AbstractConnection) -> None:
        self._idle.append(connection)
        if self._closed.is_set():
            await connection.disconnect(nowait=True)

    def _error(self, exc: Exception) -> StoreError:
        """What an exception of the Redis library is told as: without what it may quote."""
        return StoreError(f"{self.name} does not answer as it should: {_kind(exc)}")


async def _usable(connection: AbstractConnection) -> bool:
    """Whether it is open, and nothing has come that nobody asked for."""
    try:
        return connection.is_connected and not await connection.can_read()
    except RedisError:
        return False


def _kind(error: Exception) -> str:
    """The error's own code where it has one: the rest of its text may hold anything."""
    code = _CODE.match(str(error)) if isinstance(error, ResponseError) else None
    return code.group() if code is not None else type(error).__name__


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("the Redis URL has a bad host or port") from None
    if parts.scheme not in _OPTIONS:
        raise ValueError("a Redis URL begins with redis://, rediss:// or unix://")
    if parts.fragment:
        raise ValueError("the Redis URL has a '#', which has to be written as %23")
    unknown = parse_qs(parts.query, keep_blank_values=True).keys() - _OPTIONS[parts.scheme]
    if unknown:
        raise ValueError("the Redis URL has options that are not known after its '?'")
    if parts.scheme == "unix":
        if not parts.path.strip("/"):
            raise ValueError("the Redis URL has no path: unix:///path/to/redis.sock")
    elif not parts.hostname or port == 0:
        raise ValueError("the Redis URL has no host, or a bad port")
    elif not re.fullmatch(r"(/[0-9]*)?", parts.path):
        raise ValueError("what follows the host in the Redis URL is no database number")
    if not all(value.isdigit() for value in parse_qs(parts.query).get("db", ())):
        raise ValueError("'db' in the Redis URL is no number")
    return parts


def _name(parts: SplitResult) -> str:
    database = parse_qs(parts.query).get("db", [parts.path.strip("/") or "0"])[0]
    if parts.scheme == "unix":
        return f"Redis at {unquote(parts.path)}"
    return f"Redis at {parts.hostname}:{parts.port or 6379}/{database}"
