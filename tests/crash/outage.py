"""Databases that can be taken away from a running router, and given back."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import asyncpg

from tests.support.cluster import Cluster

__all__ = ["Outage", "locked_sqlite", "server_database"]


class Outage(Protocol):
    """A database at ``url``. ``reads`` says whether it is still read while it is away."""

    url: str
    reads: bool

    def begin(self) -> None:
        """Take it away."""
        ...

    def end(self) -> None:
        """Give it back."""
        ...


class _Server:
    """A PostgreSQL server that is killed, by its own means or by SIGKILL."""

    reads = False

    def __init__(self, server: Cluster, url: str, *, outright: bool) -> None:
        self.url = url
        self._server = server
        self._outright = outright

    def begin(self) -> None:
        if self._outright:
            self._server.slay()
        else:
            self._server.kill()

    def end(self) -> None:
        self._server.start()


class _Lock:
    """A SQLite file that another process, this one, writes to and does not finish."""

    reads = True

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path
        self._other: sqlite3.Connection | None = None

    def begin(self) -> None:
        self._other = sqlite3.connect(
            self._path, timeout=30, isolation_level=None, check_same_thread=False
        )
        self._other.execute("BEGIN IMMEDIATE")

    def end(self) -> None:
        if self._other is not None:
            self._other.close()
            self._other = None


@asynccontextmanager
async def server_database(server: Cluster, *, outright: bool) -> AsyncIterator[Outage]:
    """A database of its own on ``server``, which runs in the end."""
    if not server.runs:
        server.start()
    name = f"crash_{secrets.token_hex(6)}"
    connection = await asyncpg.connect(server.url)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
    finally:
        await connection.close()
    url = server.url.replace("/postgres?", f"/{name}?")
    try:
        yield _Server(server, url, outright=outright)
    finally:
        if not server.runs:
            server.start()


@asynccontextmanager
async def locked_sqlite(directory: Path) -> AsyncIterator[Outage]:
    """A SQLite file in ``directory``, unlocked in the end."""
    lock = _Lock(directory / "state.db")
    try:
        yield lock
    finally:
        lock.end()
