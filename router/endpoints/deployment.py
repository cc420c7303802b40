"""A model at an endpoint, under the name it has there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import TYPE_CHECKING, Final

from cache.breaker import BreakerRules
from router.balance.averages import PromptTokens
from router.balance.capability import Abilities
from router.balance.deployment_state import DeploymentState, Share

if TYPE_CHECKING:
    from router.endpoints.endpoint import Endpoint

__all__ = ["LEARNED_FOR", "Deployment", "Slot", "best_reported"]

Slot = tuple[str, str]
"""An endpoint's name and a model as it calls it."""

LEARNED_FOR: Final = 3600.0
"""What a refusal taught is forgotten after so many seconds: endpoints are upgraded."""


class Deployment(DeploymentState):
    """What one attempt is sent to; ``slot`` is what is counted in metrics.

    ``kept`` says that somebody holds on to it, ``limited`` that it cools down because of a rate
    limit and not because its model could not be loaded. ``prompts`` is what it makes of prompts,
    in tokens.
    """

    __slots__ = (
        "_learned", "_learned_until", "endpoint", "kept", "limited", "model", "prompts", "slot",
    )  # fmt: skip

    def __init__(
        self, endpoint: Endpoint, model: str, share: Share, rules: BreakerRules,
        random: Callable[[], float],
    ) -> None:  # fmt: skip
        super().__init__(endpoint.host, share, rules, random)
        self.endpoint = endpoint
        self.model = model
        self.slot: Slot = (endpoint.name, model)
        self.kept = False
        self.limited = False
        self.prompts = PromptTokens()
        self._learned = Abilities()
        self._learned_until = inf

    def learn(self, inferred: Abilities, now: float) -> None:
        """A refusal taught what the model cannot do, or how long its context is."""
        self._learned = self._learned.after(inferred)
        self._learned_until = now + LEARNED_FOR
        self.reassess(now)

    def forget(self, now: float) -> None:
        """Forget what refusals have taught."""
        self._learned_until = -inf
        self.reassess(now)

    def reassess(self, now: float) -> None:
        """Take over its abilities, without what was learned too long ago."""
        if now > self._learned_until:
            self._learned, self._learned_until = Abilities(), inf
        self.able(self.abilities)

    @property
    def abilities(self) -> Abilities:
        """What is configured, told and learned about the model."""
        return self.endpoint.abilities(self.model).after(self._learned)

    def cool(self, until: float, now: float) -> None:
        """Leave it alone until then; not because of a rate limit."""
        if until > self.cool_until:
            self.limited = False
        super().cool(until, now)

    def cool_down(self, seconds: float, now: float) -> None:
        """The endpoint limits the rate of this model."""
        self.limited = True
        super().cool(now + seconds, now)

    def rate_limited(self, now: float) -> bool:
        """Whether it is left alone because of a rate limit."""
        return self.limited if self.cool_until > now else self.spent_until > now


def best_reported(deployments: Iterable[Deployment]) -> PromptTokens | None:
    """What is known of a model's prompts where most was reported; None without deployments."""
    known = (deployment.prompts for deployment in deployments)
    return max(known, key=lambda prompts: prompts.reports, default=None)
