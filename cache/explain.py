"""What a request would be answered with, and why: for people who look into the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cache.core import ResponseCache
from cache.request import CacheKeys, CacheRequest

if TYPE_CHECKING:
    from cache.semantic import Considered

__all__ = ["explain"]


async def explain(
    cache: ResponseCache, request: CacheRequest, keys: CacheKeys, threshold: float
) -> dict[str, Any]:
    """Look it up without any effect but on metrics. Raises StoreError.

    ``tier`` is the one that has an answer, None for none; ``entry`` is the Entry or None;
    ``semantic`` is why the semantic tier did not judge (``skipped``), and the stored questions
    near this one with their similarity and why each was vetoed (null: it was not).
    """
    found = await cache.store.get(keys.key)
    tier = "exact" if found.entry is not None else None
    entry = found.entry
    semantic: dict[str, Any] = {"skipped": None, "considered": []}
    if cache.semantic is None:
        semantic["skipped"] = "off"
    elif request.text is None or request.exact_only is not None:
        semantic["skipped"] = request.exact_only or "no_user_text"
    else:
        judgement = await cache.semantic.judge(
            keys.namespace, request.text, threshold, thoroughly=True
        )
        semantic["skipped"] = judgement.skipped
        semantic["considered"] = [_told(one) for one in judgement.considered]
        for candidate in judgement.matches:
            if entry is None and (other := (await cache.store.get(candidate.key)).entry):
                tier, entry = "semantic", other
    return {"tier": tier, "entry": entry, "semantic": semantic}


def _told(one: Considered) -> dict[str, Any]:
    return {
        "key": one.candidate.key,
        "question": one.candidate.text,
        "similarity": round(one.candidate.similarity, 4),
        "veto": one.reason,
        "detail": one.detail or None,
    }
