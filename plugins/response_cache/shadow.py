"""The self-check: a share of the semantic hits is also sent upstream, and compared.

What comes of it is an estimate of how often the semantic tier is wrong; where it is wrong too
often it switches itself off (``cache.selfcheck``).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from cache.agreement import agrees
from cache.core import ResponseCache
from cache.embedder import EmbedderError
from cache.request import CachedAnswer
from plugins.response_cache.shared_call import SharedCall
from router.plugin import CacheMetrics, Exchange, PluginSet, Proceed, RouterError, Tasks, get_logger

if TYPE_CHECKING:
    from cache.semantic import SemanticTier

__all__ = ["Charge", "Shadow", "unpaid"]

_log = get_logger("plugins.response_cache")

_AT_ONCE: Final = 8
_WORDS: Final = 120
"""So much of an answer is compared: what an embedder takes, and what an answer begins with."""


Charge = Callable[[Exchange], Awaitable[None]]
"""Counts in the budgets what an exchange came to that nothing was held for."""


async def unpaid(_: Exchange) -> None:
    """Where there are no budgets."""


class Shadow:
    """Compares hits with what the model says, in tasks of its own. ``share`` of them. ``charge`` is
    told what that came to: the usage ledger has it, too.
    """

    def __init__(
        self,
        cache: ResponseCache,
        share: float,
        metrics: CacheMetrics,
        chance: Callable[[], float] = random.random,
        *,
        charge: Charge = unpaid,
    ) -> None:
        self._cache = cache
        self._share = share
        self._metrics = metrics
        self._chance = chance
        self._charge = charge
        self._tasks = Tasks()

    def check(
        self,
        namespace: str,
        told: CachedAnswer,
        shared_call: SharedCall,
        proceed: Proceed,
        plugin_set: PluginSet,
    ) -> None:
        """Perhaps compare ``told``, the answer that was given, with the one that ``shared_call``
        brings, which is begun for that, with the plugins of ``plugin_set``.
        """
        semantic = self._cache.semantic
        if semantic is None or len(self._tasks) >= _AT_ONCE or self._chance() >= self._share:
            return
        work = self._compare(semantic, namespace, told, shared_call, proceed)
        plugin_set.enter()
        task = self._tasks.spawn(work, f"{shared_call.carrier.request.id} compared")
        task.add_done_callback(lambda _: plugin_set.leave())

    async def stop(self) -> None:
        """Compare nothing more."""
        await self._tasks.close()

    async def _compare(
        self,
        semantic: SemanticTier,
        namespace: str,
        told: CachedAnswer,
        shared_call: SharedCall,
        proceed: Proceed,
    ) -> None:
        try:
            try:
                await proceed(shared_call.carrier, shared_call)
            finally:
                await self._charge(shared_call.carrier)
            fresh = shared_call.answer()
            if fresh is None:
                return
            similarity = await _similarity(semantic, told.text, fresh.text)
        except (RouterError, EmbedderError) as error:
            _log.info(
                "hit not compared", request_id=shared_call.carrier.request.id, error=_logged(error)
            )
            return
        agreed = not fresh.calls and agrees(told.text, fresh.text, similarity)
        self._metrics.compared(agreed)
        if semantic.check.record(namespace, agreed):
            _log.warning(
                "semantic tier switched off: too many of its hits were wrong", namespace=namespace
            )


async def _similarity(semantic: SemanticTier, one: str, other: str) -> float | None:
    """How similar the beginnings of two answers are; None where that cannot be said."""
    texts = [" ".join(text.split()[:_WORDS]) for text in (one, other)]
    if any(not text or semantic.embedder.refuses(text) for text in texts):
        return None
    one_vector, other_vector = [await semantic.embedded(text) for text in texts]
    return float(one_vector @ other_vector)


def _logged(error: RouterError | EmbedderError) -> str:
    return error.logged if isinstance(error, RouterError) else str(error)
