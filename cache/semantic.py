"""The semantic tier: the same question in other words.

    gate        is this a text that can be judged at all
    embedder    does it understand every token, in its window
    index       which stored questions of the same namespace are near
    guard       is one of them the same question

A stored answer is given only where all four agree; each has its reason where it does not.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cache.embedder import Embedder, EmbedderError
from cache.guard import gate, profile, veto, warm
from cache.index import NearEntry, VectorIndex
from cache.listener import Listener
from cache.offload import Busy, Offload
from cache.selfcheck import SelfCheck

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

__all__ = ["Considered", "Judgement", "SemanticTier"]

_EMBED_SECONDS: Final = 2.0
_CANDIDATES: Final = 8


@dataclass(frozen=True, slots=True)
class Considered:
    """A stored question that was near, and why its answer is not given; None: it may be."""

    candidate: NearEntry
    reason: str | None
    detail: str = ""


@dataclass(slots=True)
class Judgement:
    """What the tier thinks of a question.

    ``skipped`` is why it was not judged; ``unfit``: nor will it be another time. ``vector`` is the
    question's, as bytes of float32; empty where it was not embedded. ``considered`` are the stored
    questions near it, nearest first.
    """

    skipped: str | None = None
    vector: bytes = b""
    considered: list[Considered] = field(default_factory=list)
    unfit: bool = False

    @property
    def matches(self) -> list[NearEntry]:
        """The stored questions whose answer may be given, nearest first."""
        return [one.candidate for one in self.considered if one.reason is None]


class SemanticTier:
    """Finds stored questions that a question is the same as. ``offload`` is the index's, which
    ends with the tier.
    """

    def __init__(
        self,
        embedder: Embedder,
        index: VectorIndex,
        check: SelfCheck,
        listener: Listener,
        offload: Offload,
    ) -> None:
        self.embedder = embedder
        self.index = index
        self.check = check
        self._listener = listener
        self._offload = offload
        self._judging: dict[tuple[str, str, float], asyncio.Task[Judgement]] = {}

    def refuses(self, namespace: str, text: str) -> str | None:
        """Why this text is not judged; None where it is."""
        reason = gate(text) or self.embedder.refuses(text)
        if reason is None and self.check.is_off(namespace):
            reason = "self_check"
        return reason

    async def start(self) -> None:
        """Make ready; raises EmbedderError."""
        await asyncio.to_thread(warm)
        await self.embedder.start()

    async def close(self) -> None:
        """Let go of everything; called once, also when ``start`` failed."""
        judging = list(self._judging.values())
        for task in judging:
            task.cancel()
        await asyncio.gather(*judging, return_exceptions=True)
        await self.embedder.close()
        self._offload.close()

    async def embedded(self, text: str) -> Vector:
        """The text's embedding; raises EmbedderError."""
        try:
            async with asyncio.timeout(_EMBED_SECONDS):
                vectors = await self.embedder.embed([text])
        except TimeoutError:
            raise EmbedderError(f"no embedding within {_EMBED_SECONDS:g} s") from None
        vector: Vector = vectors[0]
        return vector

    async def _embedded_beside(self, text: str) -> Vector:
        """``embedded``; what the guard will need of the text is found out in the meantime."""
        embedding = asyncio.create_task(self.embedded(text), name="embedding")
        try:
            await asyncio.sleep(0)  # it begins
            profile(text)  # remembered
            return await embedding
        finally:
            embedding.cancel()

    async def judge(
        self, namespace: str, text: str, threshold: float, *, thoroughly: bool = False
    ) -> Judgement:
        """Judge a question. It ends at the first match but when it is to be done ``thoroughly``,
        where a namespace without entries is not skipped either.
        """
        judgement = Judgement(self.refuses(namespace, text))
        if judgement.skipped is not None:
            judgement.unfit = True
            self._listener.skipped(judgement.skipped)
            return judgement
        if thoroughly:
            return await self._judge(namespace, text, threshold, thoroughly=True)
        if not self.index.has(namespace):
            return judgement
        # Who asks the same at the same time is told the same: a full embedder would else send some
        # of them to the model, and let others find an answer.
        question = (namespace, text, threshold)
        task = self._judging.get(question)
        if task is None:
            task = asyncio.create_task(self._judge(*question), name="judge a question")
            self._judging[question] = task
            task.add_done_callback(lambda _: self._judging.pop(question))
        await asyncio.wait((task,))  # who leaves ends it for nobody
        return Judgement("embedder") if task.cancelled() else task.result()

    async def _judge(
        self, namespace: str, text: str, threshold: float, *, thoroughly: bool = False
    ) -> Judgement:
        judgement = Judgement()
        try:
            vector = await self._embedded_beside(text)
            judgement.vector = vector.tobytes()
            near = await self.index.search(
                namespace, vector, threshold=threshold, limit=_CANDIDATES
            )
        except EmbedderError:
            judgement.skipped = "embedder"
        except (Busy, TimeoutError):
            judgement.skipped = "busy"
        if judgement.skipped is not None:
            self._listener.skipped(judgement.skipped)
            return judgement
        for candidate in near:  # profiles are remembered
            why = veto(profile(text), profile(candidate.text), candidate.similarity)
            if why is None:
                judgement.considered.append(Considered(candidate, None))
                if not thoroughly:
                    break
            else:
                self._listener.vetoed(why.reason)
                judgement.considered.append(Considered(candidate, why.reason, why.detail))
        return judgement
