"""What happens in a Redis that several routers share, told to those who keep an index of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from cache.entry import Entry
from cache.store import Change, StoreError
from cache.stores.codec import unpack, unpack_rule
from cache.stores.feed import RESET
from cache.stores.redis_client import RedisClient
from cache.stores.scripts import HEADS, STATE

__all__ = ["RedisFeed"]

_BATCH: Final = 200
_BLOCK_SECONDS: Final = 1.0
_PAUSES: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_FOLLOWERS: Final = 4


class _Lost(Exception):
    """What happened meanwhile is not known any more."""


class RedisFeed:
    """``client`` is for what is quick; waiting for changes has connections of its own, to the
    Redis at ``url``.
    """

    def __init__(
        self, client: RedisClient, url: str, prefix: str, connect_timeout: float, timeout: float
    ) -> None:
        self._client = client
        self._waiting = RedisClient(
            url,
            prefix,
            connect_timeout=connect_timeout,
            timeout=_BLOCK_SECONDS + timeout,
            connections=_FOLLOWERS,
        )

    async def close(self) -> None:
        """End its connections."""
        await self._waiting.close()

    async def follow(self) -> AsyncIterator[Sequence[Change]]:
        """See ``Store.changes``."""
        while True:
            yield (RESET,)
            change = await self._patiently(self._change)
            number = "0"
            while number:
                number, entries = await self._patiently(self._younger, number)
                if entries:
                    yield [Change(added=entry) for entry in entries]
            yield ()
            try:
                while True:
                    change, changes = await self._patiently(self._since, change)
                    if changes:
                        yield changes
            except _Lost:
                await asyncio.sleep(_PAUSES[0])

    async def _patiently(self, ask: Any, *arguments: Any) -> Any:
        """The answer, when there is one at last."""
        failures = 0
        while True:
            try:
                return await ask(*arguments)
            except StoreError:
                pause = _PAUSES[min(failures, len(_PAUSES) - 1)]
                failures += 1
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    async def _change(self) -> int:
        """The number of the last change."""
        _, (change, _, _) = await self._client.run(STATE, None)
        return int(change)

    async def _younger(self, number: str) -> tuple[str, list[Entry]]:
        _, (last, heads) = await self._client.run(HEADS, None, number, _BATCH)
        return last.decode(), list(_entries(heads))

    async def _since(self, change: int) -> tuple[int, list[Change]]:
        """What happened after that change; raises _Lost."""
        records = await self._read(change, _BLOCK_SECONDS)
        if not records:
            last = await self._change()
            if last == change:
                return change, []
            # It may have come just now; if it cannot be read, it is lost.
            records = await self._read(change, None) if last > change else []
        if not records or _number(records[0]) != change + 1:
            raise _Lost
        keys = [fields[1] for _, fields in records if fields[0] == b"added"]
        heads = (await self._client.run(HEADS, None, "", *keys))[1][1] if keys else []
        added = {entry.key: entry for entry in _entries(heads)}
        changes = [told for record in records for told in _told(record, added)]
        self._client.change = change = max(self._client.change, _number(records[-1]))
        return change, changes

    async def _read(self, change: int, block: float | None) -> list[Any]:
        wait = () if block is None else ("BLOCK", int(block * 1000))
        name = self._client.key("changes")
        answer = await self._waiting.command(
            "XREAD", "COUNT", _BATCH, *wait, "STREAMS", name, f"{change}-0"
        )
        return list(answer[0][1]) if answer else []


def _number(record: Any) -> int:
    return int(record[0].partition(b"-")[0])


def _entries(heads: Sequence[bytes]) -> list[Entry]:
    entries = []
    for head in heads:
        try:
            entry = unpack(head) if head else None
        except ValueError:
            continue
        if entry is not None and entry.vector:
            entries.append(entry)
    return entries


def _told(record: Any, added: dict[str, Entry]) -> list[Change]:
    kind, value = record[1][0], record[1][1].decode(errors="replace")
    if kind == b"added":
        # One that is not there any more has a record of its going.
        return [Change(added=added[value])] if value in added else []
    if kind == b"gone":
        return [Change(removed=key) for key in value.split(" ")]
    if kind == b"invalidated":
        try:
            return [Change(invalidated=unpack_rule(value))]
        except ValueError:
            raise _Lost from None
    raise _Lost
