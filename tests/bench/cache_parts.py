"""What the cache's index costs.

    python -m tests.bench.cache_parts [--rows 1000,10000,50000,200000] [--graph]

For each number of rows of 384 dimensions in one namespace, in milliseconds: ``search`` as the
event loop sees it (median and 99th percentile, with similar rows to be found), ``busy`` the same
while the loop is kept busy with requests of a tenth of a millisecond; in microseconds ``add``,
``remove``. ``apply`` is how long following a store takes until all rows are in, ``block`` the
longest time that the loop was held up meanwhile, and ``own`` the longest that this thread computed
without giving way: what remains of it when others have the core. All changes are one batch.
``bytes`` is the growth of the process for each row, without its key and its text (150 and 130
bytes here), ``counted`` what the index says, with them.

With ``--graph`` large namespaces get their approximate index first (``graph``: seconds it took);
without it they are searched whole. Each size has a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from cache.entry import CacheEntry
from cache.index import BIG, VectorIndex
from cache.offload import Offload
from cache.store import Change
from tests.support.vectors import Feed, added, near, units

from .cache_filling import covered

if TYPE_CHECKING:
    from tests.support.vectors import Vector

__all__ = ["main"]

DIMENSIONS: Final = 384
SIZES: Final = "1000,10000,50000,200000"
COLUMNS: Final = (
    "rows", "search", "p99", "busy", "p99", "add", "remove", "apply", "block", "own", "graph",
    "bytes", "counted",
)  # fmt: skip
_SEARCHES: Final = 300


def main() -> None:
    """Measure everything and print a table."""
    parser = argparse.ArgumentParser(description="What the cache's index costs.")
    parser.add_argument("--rows", default=SIZES)
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print("".join(f"{figure:>9}" for figure in asyncio.run(measured(given.one, given.graph))))
        return
    print("".join(f"{name:>9}" for name in COLUMNS), flush=True)
    for rows in given.rows.split(","):
        command = [sys.executable, "-m", "tests.bench.cache_parts", "--one", rows]
        subprocess.run(command + ["--graph"] * given.graph, check=True)


async def measured(rows: int, graph: bool) -> list[str]:
    vectors = units(rows, DIMENSIONS, 1)
    offload = Offload(2)
    index = VectorIndex(
        max_bytes=1 << 40, embedder="test-embedder", offload=offload,
        big=BIG if graph else 1 << 40,
    )  # fmt: skip
    feed = Feed()
    following = asyncio.create_task(index.follow(feed))
    changes = [change(number, vector) for number, vector in enumerate(vectors)]
    gc.collect()
    gc.freeze()  # they are the measurement's, not the index's
    before = resident()
    applied, block, own = await filled(index, feed, changes)
    grown = (resident() - before) / rows
    counted = index.stats().bytes / rows
    built = await covered(index) if graph and rows > BIG else 0.0
    calm = await searches(index, vectors)
    pressed = await under_load(index, vectors)
    add, remove = adding(index, vectors)
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following
    offload.close()
    return [
        str(rows), *(f"{1e3 * figure:.2f}" for figure in (*calm, *pressed)),
        f"{1e6 * add:.1f}", f"{1e6 * remove:.1f}", f"{applied:.2f}s", f"{1e3 * block:.1f}",
        f"{1e3 * own:.1f}", f"{built:.0f}s", f"{grown:.0f}", f"{counted:.0f}",
    ]  # fmt: skip


async def filled(
    index: VectorIndex, feed: Feed, changes: list[Change]
) -> tuple[float, float, float]:
    """Seconds until all rows are in; the longest block; the longest computation."""
    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    began = time.perf_counter()
    feed.put(changes, [])
    await index.ready.wait()
    took = time.perf_counter() - began
    watching.cancel()
    return took, *(await watching)


def change(number: int, vector: Vector) -> Change:
    """What a store tells of a usual entry: a question of some eighty letters."""
    return added(f"{number:064x}", vector, text=f"{number:080}")


async def watch() -> tuple[float, float]:
    """How late a timer of no time at all is at worst, by the clock and by this thread's own."""
    block = own = 0.0
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            clock, computed = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0)
            block = max(block, time.perf_counter() - clock)
            own = max(own, time.thread_time() - computed)
    return block, own


async def searches(index: VectorIndex, vectors: Vector) -> tuple[float, float]:
    """Median and 99th percentile of a search, in seconds."""
    spent = []
    for number in range(_SEARCHES):
        asked = near(vectors[number * 97 % len(vectors)], number)
        began = time.perf_counter()
        found = await index.search("n", asked, threshold=0.8)
        spent.append(time.perf_counter() - began)
        assert found
        await asyncio.sleep(0)
    return float(np.median(spent)), float(np.quantile(spent, 0.99))


async def under_load(index: VectorIndex, vectors: Vector) -> tuple[float, float]:
    """The same beside others who use the loop half of the time."""

    async def others() -> None:
        while True:
            until = time.perf_counter() + 0.0001
            while time.perf_counter() < until:
                pass
            await asyncio.sleep(0.0001)

    task = asyncio.create_task(others())
    try:
        return await searches(index, vectors)
    finally:
        task.cancel()


def adding(index: VectorIndex, vectors: Vector) -> tuple[float, float]:
    """Seconds for one more row, and for one less, of a thousand in a row."""
    more = [change(1 << 40 | number, vector) for number, vector in enumerate(vectors[:1000])]
    less = [Change(removed=_entry(new).key) for new in more]
    began = time.perf_counter()
    index.apply(more)
    between = time.perf_counter()
    index.apply(less)
    return (between - began) / len(more), (time.perf_counter() - between) / len(less)


def _entry(change: Change) -> CacheEntry:
    assert change.added is not None
    return change.added


def resident() -> int:
    """Bytes of memory that the process occupies."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4096


if __name__ == "__main__":
    main()
