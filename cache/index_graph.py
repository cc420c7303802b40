"""Approximate neighbours for the namespaces that are too large to compare with every row.

A ``NeighbourGraph`` knows rows as *nodes*, small numbers that stay while rows move. Which row a
node is, is known on the event loop only; ``grow`` and ``near`` run in threads, one at a time, and
``near_now`` on the loop while neither does. What they find is where to look, nothing more:
similarities are computed anew from the rows, of those that the graph, which knows them in steps of
a byte, does not rule out.
"""

from __future__ import annotations

import importlib
import threading
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NeighbourGraph"]

_CONNECTIVITY: Final = 16
_EXPANSION_ADD: Final = 64
_EXPANSION_SEARCH: Final = 96
_NODE_BYTES: Final = 16
"""What a node takes outside the graph: its slot, and its place in a list of free ones."""

_ROUGHNESS: Final = 0.1
"""The cosines of the graph may be too low by so much. Measured over 1500 rows of random directions:
up to 0.021 in 384 dimensions, 0.044 in 4096."""


class NeighbourGraph:
    """The nodes of one namespace. Raises ImportError where ``usearch`` is not installed."""

    def __init__(self, dimensions: int) -> None:
        # Not at the top: most have no namespace that is large enough, and need no usearch.
        self._index: Any = importlib.import_module("usearch.index").Index(
            ndim=dimensions,
            metric="cos",
            dtype="i8",
            connectivity=_CONNECTIVITY,
            expansion_add=_EXPANSION_ADD,
            expansion_search=_EXPANSION_SEARCH,
        )
        self._lock = threading.Lock()
        self._memory = 0
        self._slots = array("q")
        self._free: list[int] = []
        self._gone: list[int] = []
        self._pending: frozenset[int] = frozenset()

    @property
    def bytes(self) -> int:
        """Memory of the graph and of what is kept of its nodes."""
        return self._memory + _NODE_BYTES * len(self._slots)

    # -- on the event loop

    def slot(self, node: int) -> int:
        """The row's place; -1 where it is gone."""
        return self._slots[node]

    def loose(self, node: int) -> bool:
        """Whether a search of the graph does not find this node's row yet; ``node`` may be -1."""
        return node < 0 or node in self._pending

    def moved(self, node: int, slot: int) -> None:
        """The row is elsewhere now."""
        self._slots[node] = slot

    def removed(self, node: int) -> None:
        """The row is gone; its node follows with the next ``grow``."""
        self._slots[node] = -1
        self._gone.append(node)

    def claim(self, slots: Sequence[int]) -> tuple[list[int], list[int]]:
        """New nodes for these rows, and the old ones to remove first: arguments of ``grow``."""
        nodes = []
        for slot in slots:
            if self._free:
                node = self._free.pop()
                self._slots[node] = slot
            else:
                node = len(self._slots)
                self._slots.append(slot)
            nodes.append(node)
        self._pending = frozenset(nodes)
        gone, self._gone = self._gone, []
        return nodes, gone

    def settle(self, gone: Sequence[int]) -> None:
        """``grow`` is done: its nodes are found from now on, and the old ones are free."""
        self._pending = frozenset()
        self._free.extend(gone)

    def near_now(
        self, vector: NDArray[np.float32], threshold: float, count: int
    ) -> list[int] | None:
        """``near``, where no thread is at the graph; None where one is."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._near(vector, threshold, count)
        finally:
            self._lock.release()

    # -- in a thread

    def grow(self, nodes: Sequence[int], vectors: NDArray[np.float32], gone: Sequence[int]) -> None:
        """Remove the nodes ``gone``, then add ``nodes`` with these rows."""
        with self._lock:
            if gone:
                self._index.remove(np.array(gone, np.uint64), threads=1)
            if nodes:
                self._index.add(np.array(nodes, np.uint64), vectors, threads=1)
            self._memory = int(self._index.memory_usage)

    def near(self, vector: NDArray[np.float32], threshold: float, count: int) -> list[int]:
        """About ``count`` nodes nearest to a vector, without those farther than ``threshold``."""
        with self._lock:
            return self._near(vector, threshold, count)

    def _near(self, vector: NDArray[np.float32], threshold: float, count: int) -> list[int]:
        if not len(self._index):
            return []
        found = self._index.search(vector, count, threads=1)
        nodes: list[int] = found.keys[found.distances <= 1 - threshold + _ROUGHNESS].tolist()
        return nodes
