"""Where near texts are found: the vectors of all entries, by namespace, in memory.

The index follows a store (``follow``) and belongs to one event loop. What it finds is where to
look: whoever uses a candidate asks the store for it, which knows what was invalidated.

Changes are applied in small steps, so that the loop is not held up, and searches of more than
some thousand rows go to a thread. It reads while rows change and may be wrong about those;
therefore it returns nothing but places to look at, and a candidate's key, text and similarity are
read together afterwards, on the loop, from what is there then.

Mistakes, answers that were given wrongly and reported, stand in shelves of their own: they are no
candidates, but in their neighbourhood more likeness is asked for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import numpy as np

from cache.index_graph import NeighbourGraph
from cache.index_matrix import BLOCK_ELEMENTS, scan
from cache.index_shelves import Shelves
from cache.offload import Busy, Offload
from cache.store import Change

if TYPE_CHECKING:
    from cache.index_matrix import Shelf, Vector

__all__ = ["BIG", "IndexRow", "IndexStats", "NearEntry", "VectorIndex"]

T = TypeVar("T")

BIG: Final = 4096
"""Above so many rows a namespace gets an approximate index: it reads less memory than all rows."""

_ON_LOOP: Final = 4 * BLOCK_ELEMENTS
"""Up to 4096 rows of 384 are compared at once: 0.3 ms, less than the way to a thread and back
costs on a busy loop. A search of a graph takes about as long, of 100 000 rows 0.6 to 1 ms."""

_SPARE: Final = 4
"""A scan brings this many times the candidates asked for: some may be gone by then."""

_FROM_GRAPH: Final = 32
_SLICE: Final = 0.001
"""So many seconds of changes are applied before others have their turn."""

_TEND_SECONDS: Final = 1.0
_GRAPH_BATCH: Final = 4
"""Searches wait while so many rows are put into a graph."""

_GRAPH_PAUSE: Final = 0.005
"""After a batch, which takes about as long: half a core at most."""

_GRAPH_TIMEOUT: Final = 60.0
_SWEPT_IN_PASSING: Final = 32


class Changing(Protocol):
    """What the index needs of a store."""

    def changes(self) -> AsyncIterator[Sequence[Change]]:
        """See ``Store.changes``."""
        ...


@dataclass(frozen=True, slots=True)
class NearEntry:
    """An entry whose text is near; ``similarity`` is the cosine, times are Unix seconds."""

    key: str
    similarity: float
    text: str
    created: float
    expires: float


@dataclass(frozen=True, slots=True)
class IndexRow:
    """What the index knows of an entry; ``mistake``: it is a warning and no candidate."""

    key: str
    namespace: str
    text: str
    created: float
    expires: float
    model: str
    tags: tuple[str, ...]
    epoch: int
    mistake: bool


@dataclass(frozen=True, slots=True)
class IndexStats:
    """``approximate`` is how many namespaces have a graph, ``evicted`` counts since the start."""

    entries: int
    mistakes: int
    namespaces: int
    approximate: int
    bytes: int
    max_bytes: int
    evicted: int


def _log(message: str) -> None:
    logging.getLogger("cache.index").warning(message)


class VectorIndex:
    """See the module. ``ready`` is set while everything that the store told of at first is in.

    Entries of another embedder than ``embedder``, or with other dimensions than the rest, are
    ignored. Above ``big`` rows a namespace gets an approximate index, where ``usearch`` is
    installed; ``say`` hears once when it is not.
    """

    def __init__(
        self,
        *,
        max_bytes: int,
        embedder: str,
        offload: Offload,
        clock: Callable[[], float] = time.time,
        big: int = BIG,
        say: Callable[[str], None] = _log,
    ) -> None:
        self.ready = asyncio.Event()
        self._clock = clock
        self._offload = offload
        self._say = say
        self._graphs = True
        self._shelves = Shelves(max_bytes=max_bytes, embedder=embedder, clock=clock, big=big)

    # -- changes

    def apply(self, changes: Sequence[Change]) -> None:
        """Apply all of them at once: some microseconds for each."""
        for _ in self._steps(changes):
            pass

    async def follow(self, store: Changing) -> None:
        """Apply what happens in a store, sweep what expired, build graphs; never returns."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tend(), name="cache index")
            changes = store.changes()
            try:
                async for batch in changes:
                    await _gently(self._steps(batch))
                    if not batch:
                        self.ready.set()
            finally:
                if isinstance(changes, AsyncGenerator):
                    await changes.aclose()

    def row(self, key: str) -> IndexRow | None:
        """What is known of the entry with this key."""
        found = self._shelves.find(key)
        if found is None:
            return None
        shelf, slot = found
        block, at = shelf.at(slot)
        _, text, model, tags = block.places[at]
        created, expires, epoch, _, _ = block.fields[at].item()
        mistake = self._shelves.is_wrong(shelf)
        return IndexRow(key, shelf.name, text, created, expires, model, tags, epoch, mistake)

    def stats(self) -> IndexStats:
        """How full it is."""
        return IndexStats(
            entries=self._shelves.entries,
            mistakes=self._shelves.mistakes,
            namespaces=len(self._shelves),
            approximate=sum(shelf.graph is not None for shelf in self._shelves.large()),
            bytes=self._shelves.bytes,
            max_bytes=self._shelves.max_bytes,
            evicted=self._shelves.evicted,
        )

    def _steps(self, changes: Iterable[Change]) -> Iterable[None]:
        """Apply changes, a little at each step."""
        for change in changes:
            if change.added is not None:
                yield from self._shelves.add(change.added)
            elif change.removed is not None:
                self._shelves.remove(change.removed)
            elif change.invalidated is not None:
                yield from self._shelves.invalidate(change.invalidated)
            elif change.reset:
                self.ready.clear()
                yield from self._shelves.clear()
            yield
        self._shelves.sweep(_SWEPT_IN_PASSING)

    # -- searching

    def has(self, namespace: str) -> bool:
        """Whether there is anything to find in a namespace."""
        return self._shelves.use(namespace) is not None

    async def search(
        self,
        namespace: str,
        vector: Vector,
        *,
        threshold: float,
        limit: int = 8,
        timeout: float = 1.0,
    ) -> list[NearEntry]:
        """Entries of a namespace at least as near as ``threshold`` to a vector of length 1, the
        best first. Raises Busy and TimeoutError: do without, then.
        """
        if not self._shelves.fit(len(vector)):
            return []
        demanded = self._demanded(namespace, vector, threshold)
        shelf = self._shelves.use(namespace)
        if shelf is None:
            return []
        slots = self._slots_now(shelf, vector, demanded, limit)
        if slots is None:
            slots = await self._slots(shelf, vector, demanded, limit, timeout)
            demanded = self._demanded(namespace, vector, threshold)
        near = shelf.measured(slots, vector, self._clock())
        best = sorted((pair for pair in near if pair[0] >= demanded), reverse=True)[:limit]
        return [_candidate(shelf, slot, similarity) for similarity, slot in best]

    def _slots_now(
        self, shelf: Shelf, vector: Vector, threshold: float, limit: int
    ) -> list[int] | None:
        """Where to look; None where it would take too long on the event loop."""
        views, graph, nodes = shelf.views(), shelf.graph, []
        if sum(len(view[1]) for view in views) * len(vector) > _ON_LOOP:
            return None
        if graph is not None:
            found = graph.near_now(vector, threshold, max(_FROM_GRAPH, _SPARE * limit))
            if found is None:
                return None
            nodes = [graph.slot(node) for node in found]
        return scan(views, vector, threshold, self._clock(), _SPARE * limit) + nodes

    async def _slots(
        self, shelf: Shelf, vector: Vector, threshold: float, limit: int, timeout: float
    ) -> list[int]:
        """Where to look, found in a thread."""
        moves, graph, views = shelf.watch(), shelf.graph, shelf.views()
        near = None if graph is None else graph.near
        count = max(_FROM_GRAPH, _SPARE * limit)

        def work() -> tuple[list[int], list[int]]:
            nodes = [] if near is None else near(vector, threshold, count)
            return scan(views, vector, threshold, now, _SPARE * limit), nodes

        now = self._clock()
        slots, nodes = await self._offload.run(work, timeout=timeout)
        if graph is not None:
            slots.extend(graph.slot(node) for node in nodes)
        return slots + shelf.since(moves)

    def _demanded(self, namespace: str, vector: Vector, threshold: float) -> float:
        """The threshold, or more where mistakes are as near as that."""
        wrong = self._shelves.wrong(namespace)
        if wrong is None:
            return threshold
        now = self._clock()
        slots = scan(wrong.views(), vector, threshold, now, wrong.count)
        near = wrong.measured(slots, vector, now)
        demands = (_demand(wrong.place(slot)[3]) for similarity, slot in near
                   if similarity >= threshold)  # fmt: skip
        return max(threshold, max(demands, default=threshold))

    # -- what can wait

    async def _tend(self) -> None:
        """Sweep now and then; in between, let graphs grow."""
        swept = 0.0
        while True:
            if time.monotonic() - swept >= _TEND_SECONDS:
                await _gently(self._shelves.sweep_all())
                swept = time.monotonic()
            await asyncio.sleep(_GRAPH_PAUSE if await self._grow() else _TEND_SECONDS)

    async def _grow(self) -> bool:
        """Put some rows into a graph; False where there is nothing to do."""
        for shelf in self._shelves.large():
            if shelf.graph is None and self._graphs:
                await self._begin_graph(shelf)
                return True
            if shelf.graph is not None and (slots := shelf.loose(_GRAPH_BATCH)):
                await self._add_to_graph(shelf, shelf.graph, slots)
                return True
        return False

    async def _begin_graph(self, shelf: Shelf) -> None:
        try:
            # In a thread: the first one imports usearch.
            graph = await self._run_in_turn(NeighbourGraph, self._shelves.dimensions)
        except ImportError:
            self._give_up("usearch is not installed")
        except Exception as exc:  # usearch's own errors have no common class
            self._give_up(type(exc).__name__)
        else:
            if shelf in self._shelves.large():  # still
                shelf.graph = graph

    async def _add_to_graph(self, shelf: Shelf, graph: NeighbourGraph, slots: list[int]) -> None:
        vectors = np.stack([block.vectors[row] for block, row in map(shelf.at, slots)])
        nodes, gone = graph.claim(slots)
        shelf.tie(slots, nodes)
        try:
            await self._run_in_turn(graph.grow, nodes, vectors, gone)
        except Exception as exc:  # as above
            if shelf.graph is graph:
                self._shelves.ungraph(shelf)
            self._give_up(type(exc).__name__)
            return
        graph.settle(gone)
        if shelf.graph is graph:
            shelf.settled(nodes, graph)

    def _give_up(self, reason: str) -> None:
        if self._graphs:
            self._say(f"large namespaces of the cache are searched whole: {reason}")
        self._graphs = False

    async def _run_in_turn(self, function: Callable[..., T], *args: object) -> T:
        """Run it in a thread, when there is room among the searches."""
        while True:
            try:
                return await self._offload.run(function, *args, timeout=_GRAPH_TIMEOUT)
            except Busy:
                await asyncio.sleep(_TEND_SECONDS)


async def _gently(steps: Iterable[None]) -> None:
    """Go through the steps without holding up the event loop."""
    until = time.perf_counter() + _SLICE
    for _ in steps:
        if time.perf_counter() >= until:
            await asyncio.sleep(0)
            until = time.perf_counter() + _SLICE


def _candidate(shelf: Shelf, slot: int, similarity: float) -> NearEntry:
    block, at = shelf.at(slot)
    key, text, _, _ = block.places[at]
    created, expires = float(block.fields["created"][at]), float(block.fields["expires"][at])
    return NearEntry(key, similarity, text, created, expires)


def _demand(tags: tuple[str, ...]) -> float:
    """What a mistake demands. One that does not say so allows nothing in its neighbourhood."""
    for tag in tags:
        name, _, value = tag.partition(":")
        if name == "requires":
            try:
                return float(value)
            except ValueError:
                break
    return float("inf")
