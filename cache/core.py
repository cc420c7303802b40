"""The cache as a whole: look up, keep, take back, explain.

    lookup      the exact tier, then, where it is allowed, the semantic one
    put         keep an answer that was asked for after a look-up
    invalidate  by entry, tag, model, namespace, or everything
    reproach    an answer was wrong for its question: it goes, and its neighbourhood is judged
                more strictly from then on

Nothing here raises for a store that does not answer: a look-up finds nothing then, and nothing is
kept. Only what somebody asks of the cache itself (``invalidate``, ``explain`` …) says so.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cache.canonical_completions import COMPLETION
from cache.canonical_embeddings import VECTORS
from cache.controls import Controls
from cache.embedder import EmbedderError
from cache.entry import CacheEntry, InvalidationRule
from cache.listener import Listener
from cache.request import CachedAnswer, CacheKeys, CacheRequest
from cache.store import Change, Store, StoreError, StoreStats
from cache.vectors import VectorAnswer

if TYPE_CHECKING:
    from cache.semantic import SemanticTier  # which needs numpy

__all__ = ["Lookup", "ResponseCache"]

_JITTER: Final = 0.1
"""By so much of its TTL an entry may expire early, so that not all do in the same moment."""

_REMEMBERED: Final = 4096
_MAX_READ: Final = 256
_MAX_READ_BYTES: Final = 16 * 1024
"""So many answers of at most such a size are kept ready."""

_AS_SENT: Final = frozenset({VECTORS, COMPLETION})
"""Kinds of answers that are kept as they were sent."""

_EMBEDDED_AT_ONCE: Final = 2
_MAX_WAITING: Final = 10_000
"""So many entries wait to be embedded; more than that can be found exactly only."""

_MISTAKE_SECONDS: Final = 30 * 86_400.0
_MARGIN: Final = 0.02
_STRICTEST: Final = 0.995
_POLL_SECONDS: Final = 5.0


@dataclass(slots=True)
class Lookup:
    """What a look-up found. ``tier`` is ``exact`` or ``semantic`` where it is a hit.

    ``epoch`` is None where the store did not answer: what is asked for now must not be kept.
    ``vector`` is the question's embedding, where it was made; ``unfit``: it never will be.
    """

    entry: CacheEntry | None = None
    tier: str = ""
    similarity: float | None = None
    epoch: int | None = None
    vector: bytes = b""
    unfit: bool = False


class ResponseCache:
    """Answers by request, in one store. ``clock`` is in Unix seconds.

    It is used between ``open`` and ``close``.
    """

    def __init__(
        self,
        store: Store,
        *,
        semantic: SemanticTier | None = None,
        listener: Listener | None = None,
        clock: Callable[[], float] = time.time,
        note: Callable[[str], None] = lambda message: None,
    ) -> None:
        self.store = store
        self.semantic = semantic
        self.stats: StoreStats | None = None
        self._listener = listener or Listener()
        self._clock = clock
        self._note = note
        self._opened = False
        self._opening = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._similar: OrderedDict[str, float] = OrderedDict()
        self._embedding = asyncio.Semaphore(_EMBEDDED_AT_ONCE)
        self._embeddings: set[asyncio.Task[None]] = set()
        self._read: OrderedDict[str, tuple[float, CachedAnswer]] = OrderedDict()

    async def open(self) -> None:
        """Open it; further calls do nothing. What cannot be used is told of: nothing is raised."""
        async with self._opening:
            if not self._opened:
                self._opened = True
                await self._open()

    async def _open(self) -> None:
        try:
            await self.store.start()
        except StoreError as error:
            self._note(f"the cache's store cannot be used: {error}")
        self._tasks = [asyncio.create_task(self._watch(), name="watch the cache's store")]
        if self.semantic is None:
            return
        try:
            await self.semantic.start()
        except EmbedderError as error:
            self._note(f"the semantic tier is off: {error}")
            await self.semantic.close()
            self.semantic = None
            return
        follow = self.semantic.index.follow(self.store)
        self._tasks.append(asyncio.create_task(follow, name="follow the cache's store"))

    async def close(self) -> None:
        """Let go of everything, for good; does nothing where it was never opened."""
        if not self._opened:
            return
        tasks = [*self._tasks, *self._embeddings]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks = []
        if self.semantic is not None:
            await self.semantic.close()
        try:
            await self.store.close()
        except StoreError as error:
            self._note(f"the cache's store did not close properly: {error}")

    async def _watch(self) -> None:
        while True:
            try:
                self.stats = await self.store.stats()
            except StoreError:
                self.stats = None
            await asyncio.sleep(_POLL_SECONDS)

    async def lookup(self, request: CacheRequest, keys: CacheKeys, controls: Controls) -> Lookup:
        """Look for an answer, within what the controls allow."""
        lookup = await self.exact(keys, controls)
        if lookup.entry is None:
            await self.similar(lookup, request, keys, controls)
        return lookup

    async def exact(self, keys: CacheKeys, controls: Controls) -> Lookup:
        """Look in the exact tier; where nothing may be looked up, for the store's epoch only."""
        started = time.perf_counter()
        lookup, result = Lookup(), "miss"
        try:
            if not controls.lookup:
                return Lookup(epoch=await self.store.epoch())
            found = await self.store.get(keys.key)
        except StoreError:
            result = "error"
        else:
            lookup.epoch, entry = found.epoch, found.entry
            if entry is not None and (controls.max_age is None or self._fresh(entry, controls)):
                lookup.entry, lookup.tier, result = entry, "exact", "hit"
        self._listener.lookups["exact", result].inc()
        self._listener.lookup_seconds["exact",].observe(time.perf_counter() - started)
        return lookup

    def at_once(self, keys: CacheKeys, controls: Controls) -> Lookup | None:
        """``exact`` without waiting; None where there is no hit, or only ``exact`` can tell."""
        started = time.perf_counter()
        entry = self.store.at_once(keys.key)
        if entry is None or not self._fresh(entry, controls):
            return None
        self._listener.lookups["exact", "hit"].inc()
        self._listener.lookup_seconds["exact",].observe(time.perf_counter() - started)
        return Lookup(entry, "exact")

    async def similar(
        self, lookup: Lookup, request: CacheRequest, keys: CacheKeys, controls: Controls
    ) -> None:
        """Look in the semantic tier, where it is allowed, after ``exact`` has found nothing.

        What has been kept in the meantime is found as if ``exact`` had.
        """
        if lookup.epoch is None or not controls.lookup or not self._may_judge(request, controls):
            return
        if request.exact_only is not None:
            self._listener.skipped(request.exact_only)
            return
        await self._find_similar(lookup, request, keys, controls)

    def _fresh(self, entry: CacheEntry, controls: Controls) -> bool:
        return controls.max_age is None or self._clock() - entry.created <= controls.max_age

    def _may_judge(self, request: CacheRequest, controls: Controls) -> bool:
        """Whether the semantic tier is there for a request, if it is fit for it."""
        return self.semantic is not None and controls.semantic and request.text is not None

    async def _find_similar(
        self, lookup: Lookup, request: CacheRequest, keys: CacheKeys, controls: Controls
    ) -> None:
        assert self.semantic is not None
        assert request.text is not None
        started = time.perf_counter()
        judgement = await self.semantic.judge(keys.namespace, request.text, controls.threshold)
        lookup.vector, lookup.unfit = judgement.vector, judgement.unfit
        result = "miss"
        for candidate in judgement.matches:
            try:
                found = await self.store.get(candidate.key)
            except StoreError:
                result = "error"
                break
            if found.entry is None:
                self.semantic.index.apply([Change(removed=candidate.key)])
            elif self._fresh(found.entry, controls):
                lookup.entry, lookup.tier = found.entry, "semantic"
                lookup.similarity = candidate.similarity
                self._remember(candidate.key, candidate.similarity)
                self._listener.matched(candidate.similarity)
                result = "hit"
                break
        self._listener.lookups["semantic", result].inc()
        self._listener.lookup_seconds["semantic",].observe(time.perf_counter() - started)
        if result == "miss" and (judgement.vector or judgement.skipped is not None):
            await self._find_kept_meanwhile(lookup, keys, controls)

    async def _find_kept_meanwhile(
        self, lookup: Lookup, keys: CacheKeys, controls: Controls
    ) -> None:
        """Look again for the very same request: the embedder may have taken longer than a model."""
        started = time.perf_counter()
        try:
            found = await self.store.get(keys.key)
        except StoreError:
            lookup.epoch = None
            return
        lookup.epoch = found.epoch
        if found.entry is not None and self._fresh(found.entry, controls):
            lookup.entry, lookup.tier = found.entry, "exact"
            self._listener.lookups["exact", "hit"].inc()
            self._listener.lookup_seconds["exact",].observe(time.perf_counter() - started)

    def _remember(self, key: str, similarity: float) -> None:
        """How far away a question was that got this answer, in case it is called wrong."""
        self._similar[key] = max(similarity, self._similar.pop(key, 0.0))
        if len(self._similar) > _REMEMBERED:
            self._similar.popitem(last=False)

    def answer(self, entry: CacheEntry) -> CachedAnswer:
        """The answer in an entry; raises ValueError. What is asked for again and again is read
        once. Nothing in it may be changed.
        """
        known = self._read.get(entry.key)
        if known is not None and known[0] == entry.created:
            self._read.move_to_end(entry.key)
            return known[1]
        answer = (VectorAnswer if entry.kind in _AS_SENT else CachedAnswer).decode(entry.body)
        if len(entry.body) <= _MAX_READ_BYTES:
            self._read[entry.key] = (entry.created, answer)
            if len(self._read) > _MAX_READ:
                self._read.popitem(last=False)
        return answer

    async def put(
        self,
        request: CacheRequest,
        keys: CacheKeys,
        answer: CachedAnswer,
        lookup: Lookup,
        controls: Controls,
        *,
        model: str | None = None,
    ) -> bool:
        """Keep an answer to a request that was looked up before it was asked for. Returns whether
        it is kept. Where another model answered than the one that was asked for it is ``model``,
        and ``keys`` are those under it.
        """
        if lookup.epoch is None or not controls.store:
            return False
        try:
            body = answer.encode()
        except ValueError:
            return False
        now = self._clock()
        entry = CacheEntry(
            key=keys.key,
            namespace=keys.namespace,
            kind=request.kind,
            model=model or request.model,
            created=now,
            expires=now + controls.ttl * (1 - _JITTER * random.random()),
            epoch=lookup.epoch,
            body=body,
            tags=controls.tags,
        )
        text = ""
        if self.semantic is not None and request.exact_only is None and not lookup.unfit:
            text = request.text or "" if controls.semantic and not answer.calls else ""
        if lookup.vector and text:
            entry = self._findable(entry, text, lookup.vector)
        try:
            kept = await self.store.put(entry)
        except StoreError:
            return False
        self._listener.puts["kept" if kept else "refused",].inc()
        if kept and text and not entry.vector:
            self._make_findable(entry, text)
        return kept

    def _findable(self, entry: CacheEntry, text: str, vector: bytes) -> CacheEntry:
        """The entry with what it takes to be found by similar questions."""
        assert self.semantic is not None
        return replace(entry, text=text, embedder=self.semantic.embedder.name, vector=vector)

    def _make_findable(self, entry: CacheEntry, text: str) -> None:
        """Have an entry that is kept embedded when there is time for it: nobody waits for that."""
        assert self.semantic is not None
        if len(self._embeddings) >= _MAX_WAITING:
            self._listener.skipped("busy")
        elif self.semantic.refuses(entry.namespace, text) is None:
            task = asyncio.create_task(self._embed(entry, text), name="embed for the cache")
            self._embeddings.add(task)
            task.add_done_callback(self._embeddings.discard)

    async def _embed(self, entry: CacheEntry, text: str) -> None:
        try:
            async with self._embedding:
                assert self.semantic is not None
                vector = (await self.semantic.embedded(text)).tobytes()
                now = (await self.store.get(entry.key)).entry
                if now is not None and now.created == entry.created:  # and not a newer answer
                    await self.store.put(self._findable(entry, text, vector))
        except (EmbedderError, StoreError):
            self._listener.skipped("embedder")

    async def invalidate(self, rule: InvalidationRule) -> int:
        """See ``Store.invalidate``; raises StoreError."""
        return await self.store.invalidate(rule)

    async def reproach(self, key: str) -> float | None:
        """The entry with this key was a wrong answer: it goes. Raises StoreError.

        Returns the similarity that questions near its own have to have from now on; None where
        the entry cannot be found by similar ones, and KeyError where there is none.
        """
        entry = (await self.store.get(key)).entry
        if entry is None:
            raise KeyError(key)
        await self.invalidate(InvalidationRule("entry", key))
        similarity = self._similar.pop(key, None)
        if not entry.vector or similarity is None:
            return None
        required = min(_STRICTEST, similarity + _MARGIN)
        now = self._clock()
        mistake = replace(
            entry,
            key=os.urandom(16).hex(),
            kind="mistake",
            created=now,
            expires=now + _MISTAKE_SECONDS,
            epoch=await self.store.epoch(),
            body=b"{}",
            tags=(f"requires:{required:.4f}",),
        )
        await self.store.put(mistake)
        return required
