"""All rows of the index: namespaces by name, rows by key, and their bound in bytes.

What may take long is a generator that does a little at each step; in between everything is whole,
and others may search and change it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from cache.entry import CacheEntry, InvalidationRule
from cache.index_matrix import Shelf

if TYPE_CHECKING:
    from cache.index_matrix import Vector

__all__ = ["MISTAKE", "Shelves"]

MISTAKE: Final = "mistake"
"""The kind of an entry that warns: its vector is that of a text that was answered wrongly."""

_MISTAKES: Final = 256
"""Mistakes kept for one namespace."""

_AT_ONCE: Final = 64
"""Rows evicted or swept at one step."""

_EVICTED_SHARE: Final = 256
"""One part in this many of the bound is freed when it is reached: finding what is oldest costs."""

_LARGEST_SHARE: Final = 8
"""A row must not take more than one part in this many of the bound."""

_LETTER: Final = 4
"""Bytes of a letter in memory, at most."""

_DICTS: Final = 64
_SLOT_BITS: Final = 32
_OFF_LENGTH: Final = 0.01


class RowIndex:
    """Where the row of a key is: the number of its shelf and its slot, as one integer.

    Many small dicts, not one: a dict that grows is copied at once.
    """

    def __init__(self) -> None:
        self._dicts: tuple[dict[str, int], ...] = tuple({} for _ in range(_DICTS))

    def get(self, key: str) -> tuple[int, int] | None:
        place = self._dicts[hash(key) % _DICTS].get(key)
        return None if place is None else divmod(place, 1 << _SLOT_BITS)

    def set(self, key: str, number: int, slot: int) -> None:
        self._dicts[hash(key) % _DICTS][key] = (number << _SLOT_BITS) + slot

    def forget(self, key: str, number: int) -> None:
        """Forget the key if its row is in this shelf."""
        keys = self._dicts[hash(key) % _DICTS]
        place = keys.get(key)
        if place is not None and place >> _SLOT_BITS == number:
            del keys[key]


class Shelves:
    """Namespaces in the order of their last use, and the mistakes of each apart."""

    def __init__(
        self, *, max_bytes: int, embedder: str, clock: Callable[[], float], big: int
    ) -> None:
        self.max_bytes = max_bytes
        self.dimensions = 0
        self.evicted = 0
        self.entries = 0
        self.mistakes = 0
        self._embedder = embedder
        self._clock = clock
        self._big = big
        self._bytes = 0
        self._last_number = 0
        self._keys = RowIndex()
        self._named: OrderedDict[str, Shelf] = OrderedDict()
        self._wrong: dict[str, Shelf] = {}
        self._numbered: dict[int, Shelf] = {}
        self._large: dict[int, Shelf] = {}
        self._unswept: list[int] = []

    def __len__(self) -> int:
        return len(self._named)

    @property
    def bytes(self) -> int:
        """What counts against the bound."""
        graphs = (shelf.graph.bytes for shelf in self._large.values() if shelf.graph is not None)
        return self._bytes + sum(graphs)

    # -- finding

    def find(self, key: str) -> tuple[Shelf, int] | None:
        """The shelf and slot of a key's row."""
        place = self._keys.get(key)
        shelf = None if place is None else self._numbered.get(place[0])
        return None if place is None or shelf is None else (shelf, place[1])

    def use(self, name: str) -> Shelf | None:
        """A namespace, which counts as used; some of what expired in it is removed."""
        shelf = self._named.get(name)
        if shelf is None:
            return None
        self._named.move_to_end(name)
        self._expire(shelf)
        return shelf if shelf.count else None

    def wrong(self, name: str) -> Shelf | None:
        """The mistakes of a namespace."""
        return self._wrong.get(name)

    def is_wrong(self, shelf: Shelf) -> bool:
        return self._wrong.get(shelf.name) is shelf

    def large(self) -> list[Shelf]:
        """Namespaces that have a graph, or are to have one."""
        return list(self._large.values())

    def ungraph(self, shelf: Shelf) -> None:
        """Do without its graph."""
        self._large.pop(shelf.number, None)
        shelf.ungraph()

    def fit(self, dimensions: int) -> bool:
        """Whether there are rows of this length. It is the length of the first that was seen,
        unless the embedder itself says something else: then what there is is worthless.
        """
        if self.dimensions and self.dimensions != dimensions:
            for _ in self.clear():
                pass
        self.dimensions = dimensions
        return bool(self._numbered)

    # -- changing

    def add(self, entry: CacheEntry) -> Iterator[None]:
        """Put an entry in, in the place of one with the same key; then evict."""
        self.remove(entry.key)
        vector = self._vector(entry)
        if vector is None or entry.expires <= self._clock():
            return
        wrong = entry.kind == MISTAKE
        shelf = (self._wrong if wrong else self._named).get(entry.namespace)
        if shelf is None:
            shelf = self._new(entry.namespace, wrong)
        elif not wrong:
            self._named.move_to_end(entry.namespace)
        elif shelf.count >= _MISTAKES:
            self.remove(shelf.oldest(1)[0])
        before = shelf.bytes
        slot = shelf.append(entry, vector)
        self._bytes += shelf.bytes - before
        self._keys.set(entry.key, shelf.number, slot)
        self._count(wrong, 1)
        if shelf.count > self._big and not wrong:
            self._large[shelf.number] = shelf
        if self._bytes > self.max_bytes or (self._large and self.bytes > self.max_bytes):
            yield from self._evict()

    def remove(self, key: str) -> bool:
        """Remove a row; False where there is none."""
        found = self.find(key)
        if found is None:
            return False
        shelf, slot = found
        self._keys.forget(key, shelf.number)
        before = shelf.bytes
        moved = shelf.remove(slot)
        self._bytes += shelf.bytes - before
        self._count(self.is_wrong(shelf), -1)
        if moved is not None:
            self._keys.set(moved[0], shelf.number, slot)
        if not shelf.count:
            self._unlink(shelf)
        elif shelf.number in self._large and shelf.count < self._big // 2:
            self.ungraph(shelf)
        return True

    def invalidate(self, rule: InvalidationRule) -> Iterator[None]:
        """Remove what a rule is about."""
        match rule.kind:
            case "all":
                yield from self.clear()
            case "entry":
                self.remove(rule.value)
            case "namespace":
                for shelf in (self._named.get(rule.value), self._wrong.get(rule.value)):
                    if shelf is not None:
                        yield from self._drop(shelf)
            case "model" | "tag":
                for number in list(self._numbered):
                    if (shelf := self._numbered.get(number)) is not None:
                        yield from self._weed(shelf, rule)

    def clear(self) -> Iterator[None]:
        """Remove everything that is there now."""
        for number in list(self._numbered):
            if (shelf := self._numbered.get(number)) is not None:
                yield from self._drop(shelf)

    def sweep(self, count: int) -> None:
        """Remove what expired in the next ``count`` namespaces, 64 rows in each at most."""
        if not self._unswept:
            self._unswept = list(self._numbered)
        for _ in range(min(count, len(self._unswept))):
            if (shelf := self._numbered.get(self._unswept.pop())) is not None:
                self._expire(shelf)

    def sweep_all(self) -> Iterator[None]:
        """Remove everything that expired."""
        for number in list(self._numbered):
            while (shelf := self._numbered.get(number)) is not None and self._expire(shelf):
                yield
            yield

    # -- inside

    def _vector(self, entry: CacheEntry) -> Vector | None:
        """The entry's vector, unless it is of no use here."""
        if entry.embedder != self._embedder or not entry.vector or len(entry.vector) % 4:
            return None
        if len(entry.vector) + _LETTER * len(entry.text) > self.max_bytes // _LARGEST_SHARE:
            return None
        vector = np.frombuffer(entry.vector, "<f4")
        # Not true of NaN either. A longer vector would be near to everything.
        if not abs(float(vector @ vector) - 1.0) < _OFF_LENGTH:
            return None
        self.dimensions = self.dimensions or len(vector)
        return vector if len(vector) == self.dimensions else None

    def _new(self, name: str, wrong: bool) -> Shelf:
        self._last_number += 1
        shelf = Shelf(name, self._last_number, self.dimensions)
        (self._wrong if wrong else self._named)[name] = shelf
        self._numbered[shelf.number] = shelf
        self._bytes += shelf.bytes
        return shelf

    def _unlink(self, shelf: Shelf) -> None:
        """Forget an empty shelf, or one that is on its way out."""
        del (self._wrong if self.is_wrong(shelf) else self._named)[shelf.name]
        del self._numbered[shelf.number]
        self._large.pop(shelf.number, None)
        self._bytes -= shelf.bytes

    def _drop(self, shelf: Shelf) -> Iterator[None]:
        """Remove a namespace: nobody finds it from now on, its memory follows in steps."""
        self._count(self.is_wrong(shelf), -shelf.count)
        self._unlink(shelf)
        shelf.count = 0
        while shelf.blocks:
            for place in shelf.blocks.pop().places:
                self._keys.forget(place[0], shelf.number)
            yield

    def _weed(self, shelf: Shelf, rule: InvalidationRule) -> Iterator[None]:
        """Remove the rows with this model or tag, from the last to the first: what takes a
        removed row's place has been looked at.
        """
        for number in reversed(range(len(shelf.blocks))):
            if number < len(shelf.blocks):
                places = shelf.blocks[number].places
                for key in [place[0] for place in reversed(places) if _about(place, rule)]:
                    self.remove(key)
                    yield
            yield

    def _expire(self, shelf: Shelf) -> int:
        """Remove some of what expired; returns how many rows."""
        now, count = self._clock(), 0
        for number in reversed(range(len(shelf.blocks))):
            block = shelf.blocks[number]
            if block.soonest > now:
                continue
            rows = block.expired(now)[: _AT_ONCE - count]
            for key in [block.places[row][0] for row in rows]:
                self.remove(key)
            block.look_again()
            count += len(rows)
            if count >= _AT_ONCE:
                break
        return count

    def _evict(self) -> Iterator[None]:
        """Stay within the bound: the least recently used namespace's oldest rows go first."""
        enough = self.max_bytes - self.max_bytes // _EVICTED_SHARE
        while self.bytes > enough:
            shelves = self._named or self._wrong
            if not shelves:
                return
            for key in next(iter(shelves.values())).oldest(_AT_ONCE):
                self.remove(key)
                self.evicted += 1
                if self.bytes <= enough:
                    return
            yield

    def _count(self, wrong: bool, change: int) -> None:
        if wrong:
            self.mistakes += change
        else:
            self.entries += change


def _about(place: tuple[str, str, str, tuple[str, ...]], rule: InvalidationRule) -> bool:
    _, _, model, tags = place
    return model == rule.value if rule.kind == "model" else rule.value in tags
