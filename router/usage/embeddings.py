"""Accounts for the embeddings that the router has a model of the fleet make for a vector store.

They count in the budgets of the store's owner as requests of its own do, not in its limits by the
minute: what they may come to is held before an endpoint is asked, and what they used is recorded
(kind ``index``).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from router.core.key import ANYBODY, NO_LIMITS, Key
from router.core.usage_record import NO_TOKENS, Provenance, Tokens
from router.endpoints.embedder import EmbeddingFailed, EndpointEmbedder
from router.response.tokens import estimate_tokens
from router.usage.rate_limiter import Demand, RateLimiter
from router.usage.recorder import Cost, UsageRecorder

if TYPE_CHECKING:
    from cache.embedder import Vectors

__all__ = ["EmbeddingAccounts", "EmbeddingFor"]

_OPERATION: Final = "vector_stores"
_MOST_KEYS: Final = 1000

_Place = tuple[str, str, str]
"""An endpoint, its URL, and its own name for the model."""


@dataclass(frozen=True, slots=True)
class EmbeddingFor:
    """Whose embeddings these are, and for what: ``request`` is the id of a request or of a file.

    ``holds``: they have to fit into what is left of a budget. What is done within a request that
    was let pass does not: it is only counted.
    """

    owner: str
    request: str
    holds: bool = True


class EmbeddingAccounts:
    """Asks for embeddings, and books them. ``named`` finds the key of a name."""

    def __init__(
        self,
        recorder: UsageRecorder,
        limiter: RateLimiter,
        cost: Cost,
        named: Callable[[str], Awaitable[Key | None]],
    ) -> None:
        self._recorder = recorder
        self._limiter = limiter
        self._cost = cost
        self._named = named
        self._budgeted: dict[str, tuple[Key, Key]] = {}

    async def embed(
        self, embedder: EndpointEmbedder, texts: Sequence[str], whose: EmbeddingFor
    ) -> Vectors:
        """The vectors of these texts.

        Raises EmbedderError; RateLimitExceeded and QuotaExceeded where a budget has no room for
        them, and LimitsUnavailable, before the endpoint is asked; StateUnavailable.
        """
        endpoint = embedder.endpoint()
        place = endpoint.name, endpoint.settings.url, embedder.model
        key = await self._named(whose.owner)
        limited = None if key is None else self._without_limits(key)
        estimate = Tokens(input=sum(max(1, estimate_tokens(len(text))) for text in texts))
        hold = None
        if limited is not None and whose.holds:
            cost = self._cost(*place, estimate, time.time(), 0)
            hold = await self._limiter.reserve(
                Demand(whose.request, limited, embedder.model, estimate.total, cost)
            )
        began, used, provenance = time.monotonic(), estimate, Provenance.ESTIMATED
        ending: tuple[str, str | None] = "cancelled", None
        try:
            vectors, reported = await embedder.ask(endpoint, texts)
            ending = "ok", None
            if reported is not None:
                used, provenance = Tokens(input=reported), Provenance.REPORTED
            return vectors
        except EmbeddingFailed as error:
            ending = "failed", error.code
            used = estimate if error.worked else NO_TOKENS
            raise
        finally:
            tags = (key or ANYBODY).tags
            record = self._recorder.index(
                (whose.request, whose.owner, tags, _OPERATION), place, used, provenance, began,
                ending,
            )  # fmt: skip
            spent = record.cost or 0
            if hold is not None:
                await self._limiter.settle(hold, used, spent)
            elif limited is not None:
                await self._limiter.charge(limited, used, spent)

    def _without_limits(self, key: Key) -> Key:
        """The key with its budgets only: the same object for the same key, by which limits are
        remembered.
        """
        known = self._budgeted.get(key.name)
        if known is None or known[0] is not key:
            if len(self._budgeted) >= _MOST_KEYS:
                self._budgeted.clear()
            known = self._budgeted[key.name] = key, replace(key, limits=NO_LIMITS, model_limits=())
        return known[1]
