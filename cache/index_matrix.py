"""The rows of one namespace, and the comparison of a vector with all of them.

Rows stand in blocks: float32 matrices side by side with what else is known of each row. Only the
last block is not full; a row that goes is replaced by the last one. One large matrix would have
to be copied whole to grow, which blocks the event loop, and a product with it would be spread
over threads by OpenBLAS: slower by far where the cores are busy.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from cache.entry import CacheEntry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cache.index_graph import NeighbourGraph

    Vector = NDArray[np.float32]
    View = tuple[int, NDArray[np.float32], NDArray[np.float64]]

__all__ = ["BLOCK_ELEMENTS", "MatrixBlock", "Place", "Shelf", "scan"]

Place = tuple[str, str, str, tuple[str, ...]]
"""What is kept of a row as objects: key, text, model, tags. A plain tuple of strings: the garbage
collector need not look at it again."""

BLOCK_ELEMENTS: Final = 393_216
"""1024 rows of 384: OpenBLAS uses more threads from 460 800 elements on."""

_FIELDS: Final = np.dtype(
    [("created", "<f8"), ("expires", "<f8"), ("epoch", "<i8"), ("node", "<i4"), ("cost", "<i4")]
)
_BLOCK_BYTES: Final = 480
_SHELF_BYTES: Final = 640
_ROW_BYTES: Final = 184
"""Measured: the objects of a block, a namespace, and a row; without what they hold."""

_REMEMBERED_MOVES: Final = 256
_TOLERANCE: Final = 1e-4
"""Products of different shapes differ in the last bits; the exact comparison comes after."""


class MatrixBlock:
    """Some rows; there is room for more."""

    __slots__ = ("fields", "loose", "places", "soonest", "vectors")

    def __init__(self, dimensions: int) -> None:
        self.vectors: Vector = np.empty((1, dimensions), np.float32)
        self.fields = np.empty(1, _FIELDS)
        self.places: list[Place] = []
        self.soonest = float("inf")
        """No row expires earlier."""
        self.loose = 0
        """How many rows a graph does not find."""

    @property
    def bytes(self) -> int:
        return _BLOCK_BYTES + self.vectors.nbytes + self.fields.nbytes

    def put(self, row: int, place: Place, vector: Vector, fields: object) -> None:
        """Write one row: the next one, or over another."""
        if row == len(self.places):
            self.places.append(place)
        else:
            self.places[row] = place
        self.vectors[row] = vector
        self.fields[row] = fields
        self.soonest = min(self.soonest, float(self.fields["expires"][row]))

    def resize(self, room: int) -> None:
        """Make room for this many rows. What a thread still reads stays as it was."""
        count = len(self.places)
        vectors = np.empty((room, self.vectors.shape[1]), np.float32)
        fields = np.empty(room, _FIELDS)
        vectors[:count] = self.vectors[:count]
        fields[:count] = self.fields[:count]
        self.vectors, self.fields = vectors, fields

    def expired(self, now: float) -> list[int]:
        """Rows whose time is over, the last first."""
        if self.soonest > now:
            return []
        expires = self.fields["expires"][: len(self.places)]
        rows: list[int] = np.flatnonzero(expires <= now)[::-1].tolist()
        return rows

    def look_again(self) -> None:
        """Rows went: find out when the next one expires."""
        expires = self.fields["expires"][: len(self.places)]
        self.soonest = float(expires.min()) if len(expires) else float("inf")


class Shelf:
    """One namespace. ``number`` is given once; ``slot`` is a row's place, from 0 to ``count``."""

    __slots__ = (
        "_moved", "_per_block", "blocks", "bytes", "count", "graph", "moves", "name", "number",
    )  # fmt: skip

    def __init__(self, name: str, number: int, dimensions: int) -> None:
        self.name = name
        self.number = number
        self.blocks: list[MatrixBlock] = []
        self.count = 0
        self.bytes = _SHELF_BYTES + sys.getsizeof(name)
        self.graph: NeighbourGraph | None = None
        self.moves = 0
        self._moved: deque[int] | None = None
        self._per_block = max(16, BLOCK_ELEMENTS // dimensions)

    def at(self, slot: int) -> tuple[MatrixBlock, int]:
        block, row = divmod(slot, self._per_block)
        return self.blocks[block], row

    def place(self, slot: int) -> Place:
        block, row = self.at(slot)
        return block.places[row]

    def append(self, entry: CacheEntry, vector: Vector) -> int:
        """Put an entry behind the last row; returns its slot."""
        if self.count == len(self.blocks) * self._per_block:
            block = MatrixBlock(len(vector))
            self.blocks.append(block)
            self.bytes += block.bytes
        block = self.blocks[-1]
        row = len(block.places)
        if row == len(block.fields):
            self._resize(block, min(2 * row, self._per_block))
        place = (entry.key, entry.text, entry.model, entry.tags)
        cost = row_bytes(place)
        block.put(row, place, vector, (entry.created, entry.expires, entry.epoch, -1, cost))
        block.loose += 1
        self.bytes += cost
        self.count += 1
        return self.count - 1

    def remove(self, slot: int) -> Place | None:
        """Take a row out; returns the row that stands in its slot now, if one moved there."""
        block, row = self.at(slot)
        self.bytes -= int(block.fields["cost"][row])
        self._leave(block, int(block.fields["node"][row]))
        last, end = self.blocks[-1], len(self.blocks[-1].places) - 1
        moved = None
        if last is not block or end != row:
            moved = last.places[end]
            block.put(row, moved, last.vectors[end], last.fields[end])
            self._move(last, block, slot, int(last.fields["node"][end]))
        last.places.pop()
        self.count -= 1
        if not last.places:
            self.blocks.pop()
            self.bytes -= last.bytes
        elif len(last.fields) >= 4 * len(last.places):
            self._resize(last, len(last.fields) // 2)
        return moved

    def oldest(self, count: int) -> list[str]:
        """The keys of about this many rows, the oldest first."""
        created = np.concatenate([block.fields["created"][: len(block.places)]
                                  for block in self.blocks])  # fmt: skip
        count = min(count, self.count)
        slots = np.argpartition(created, count - 1)[:count]
        return [self.place(slot)[0] for slot in slots[np.argsort(created[slots])].tolist()]

    # -- searching

    def views(self) -> list[View]:
        """What ``scan`` takes, as it is now: every block, or those that the graph does not cover.
        Meanwhile rows may change under it: ``since`` says where to look again.
        """
        found: list[View] = []
        for number, block in enumerate(self.blocks):
            if self.graph is None or block.loose:
                rows = len(block.places)
                expires = block.fields["expires"][:rows]
                found.append((number * self._per_block, block.vectors[:rows], expires))
        return found

    def watch(self) -> int:
        """Remember rows that move from now on; returns the argument of ``since``."""
        if self._moved is None:
            self._moved = deque(maxlen=_REMEMBERED_MOVES)
        return self.moves

    def since(self, moves: int) -> list[int]:
        """Slots that rows have moved to; the last 256 of them."""
        moved = self._moved or ()
        return list(moved)[max(0, len(moved) - (self.moves - moves)) :]

    def measured(
        self, slots: Sequence[int], vector: Vector, now: float
    ) -> Iterator[tuple[float, int]]:
        """The exact similarities of these rows as they are now, and their slots."""
        for slot in set(slots):
            if 0 <= slot < self.count:
                block, row = self.at(slot)
                if block.fields["expires"][row] > now:
                    yield min(1.0, float(block.vectors[row] @ vector)), slot

    # -- the graph

    def loose(self, count: int) -> list[int]:
        """Some slots of rows that have no node yet."""
        for number, block in enumerate(self.blocks):
            if block.loose:
                rows = np.flatnonzero(block.fields["node"][: len(block.places)] < 0)[:count]
                if len(rows):
                    return [number * self._per_block + row for row in rows.tolist()]
        return []

    def tie(self, slots: Sequence[int], nodes: Sequence[int]) -> None:
        """These rows have these nodes from now on (-1: none)."""
        for slot, node in zip(slots, nodes, strict=True):
            block, row = self.at(slot)
            block.fields["node"][row] = node

    def settled(self, nodes: Sequence[int], graph: NeighbourGraph) -> None:
        """The graph has these nodes, not pending any more: their rows need no comparison."""
        for node in nodes:
            slot = graph.slot(node)
            if 0 <= slot < self.count:
                self.at(slot)[0].loose -= 1

    def ungraph(self) -> None:
        """Do without the graph."""
        self.graph = None
        for block in self.blocks:
            block.fields["node"] = -1
            block.loose = len(block.places)

    # -- inside

    def _resize(self, block: MatrixBlock, room: int) -> None:
        self.bytes -= block.bytes
        block.resize(room)
        self.bytes += block.bytes

    def _leave(self, block: MatrixBlock, node: int) -> None:
        if self.graph is None or self.graph.loose(node):
            block.loose -= 1
        if self.graph is not None and node >= 0:
            self.graph.removed(node)

    def _move(self, source: MatrixBlock, target: MatrixBlock, slot: int, node: int) -> None:
        if self.graph is None or self.graph.loose(node):
            source.loose -= 1
            target.loose += 1
        if self.graph is not None and node >= 0:
            self.graph.moved(node, slot)
        self.moves += 1
        if self._moved is not None:
            self._moved.append(slot)


def row_bytes(place: Place) -> int:
    """The memory of a row beside its vector and its fields."""
    key, text, model, tags = place
    return (
        _ROW_BYTES + sys.getsizeof(key) + sys.getsizeof(text) + sys.getsizeof(model)
        + (sys.getsizeof(tags) + sum(map(sys.getsizeof, tags)) if tags else 0)
    )  # fmt: skip


def scan(
    views: Sequence[View], vector: Vector, threshold: float, now: float, count: int
) -> list[int]:
    """The slots of the ``count`` nearest rows that are about as near as ``threshold``, unordered.
    It may run in a thread while rows change, and is then wrong about those.
    """
    slots, near = [], []
    for start, vectors, expires in views:
        similarities = vectors @ vector
        hits = np.flatnonzero((similarities >= threshold - _TOLERANCE) & (expires > now))
        if len(hits):
            slots.append(hits + start)
            near.append(similarities[hits])
    if not slots:
        return []
    found, order = np.concatenate(slots), np.concatenate(near)
    if len(found) > count:
        found = found[np.argpartition(order, -count)[-count:]]
    places: list[int] = found.tolist()
    return places
