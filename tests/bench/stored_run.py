"""The part of a run that is about stored responses: databases, their routers, the rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .databases import Databases
from .fill import Fill
from .growth import CHAIN, SMALL, Grown, growth, note_sizes, retrievals
from .measure import PACED_STREAMS, Bench
from .report import Figures
from .routers import OWNER, Routers
from .stored import TURNS, Store, Stored

__all__ = ["STORED_MEASUREMENTS", "StoredRun"]

STORED_MEASUREMENTS: Final = ("store", "chain", "background", "growth")


@dataclass(slots=True)
class StoredRun:
    """Measures the kinds of database that are there; ``missing`` names the others.

    ``large`` is how many responses the database has whose growth is measured.
    """

    routers: Routers
    databases: Databases
    bench: Bench
    figures: Figures
    say: Callable[[str], None]
    large: int
    missing: list[str] = field(default_factory=list)

    async def measure(self, kinds: Sequence[str], wanted: Sequence[str], rounds: int) -> None:
        """Everything that is ``wanted``, in interleaved rounds."""
        stored = Stored(self.bench, self.figures)
        stores = [store for kind in kinds if (store := await self._open(kind, kind)) is not None]
        self.missing += [kind for kind in kinds if kind not in [s.target.name for s in stores]]
        chains: dict[str, dict[int, str]] = {}
        if "chain" in wanted:
            for store in stores:
                chain = await stored.make_chain(store, max(TURNS))
                chains[store.target.name] = {turns: chain[turns - 1] for turns in TURNS}
        grown = []
        if "growth" in wanted:
            grown = [await self._grown(stored, store.target.name) for store in stores]
        for number in range(1, rounds + 1):
            self.say(f"stored responses: round {number} of {rounds}")
            for store in stores:
                if "store" in wanted:
                    await stored.store(store, number)
                if "chain" in wanted:
                    await stored.chains(store, chains[store.target.name], number)
                if "background" in wanted:
                    await stored.runs(store, number)
            for small, large in grown:
                await growth(stored, small, large, number)
        for small, large in grown:
            await note_sizes(stored, small, large)

    async def _open(self, kind: str, process: str) -> Store | None:
        """A router on a new database of this kind; None where there is no server for it."""
        url = await self.databases.make(kind, f"stored-{process}")
        return None if url is None else await self._start(kind, process, url)

    async def _start(self, kind: str, process: str, url: str) -> Store:
        state: dict[str, Any] = {"url": url, "max_runs": 2 * PACED_STREAMS}
        target = await self.routers.start(f"stored-{process}", kind, "responses", state)
        self.bench.proxies.append(target.child)
        await self.bench.warm_up(target)
        return Store(target, url)

    async def _grown(self, stored: Stored, kind: str) -> tuple[Grown, Grown]:
        small, large = [
            await self._filled(stored, kind, size, count)
            for size, count in (("small", SMALL), ("large", self.large))
        ]
        return small, large

    async def _filled(self, stored: Stored, kind: str, size: str, count: int) -> Grown:
        url = await self.databases.make(kind, f"{kind}-{size}")
        assert url is not None
        self.say(f"{kind}: {count:,} responses are stored")
        fill = Fill(count, OWNER)
        await fill.run(url)
        store = await self._start(kind, f"{kind}-{size}", url)
        chain = await stored.make_chain(store, CHAIN)
        return Grown(store, retrievals(fill.picked, self.bench.key), chain[-1])
