"""What one worker finds out about the health of endpoints, told to the others.

That a breaker has opened, that an endpoint wants a pause or has nothing left of its rate limit:
this counts for all at once. That one cannot be reached each sees for itself, and looks as soon as
another tells. How a model comes back each finds out by itself, too, at about the same time;
averages are of its own requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from cache.breaker import BreakerState
from router.balance.deployment_state import DeploymentState
from router.endpoints.deployment import Deployment, Slot
from router.endpoints.registry import Registry
from router.endpoints.selector import Selector
from router.workers.link import Handler

__all__ = ["SharedHealth"]

_MOST_TOLD: Final = 10_000


class SharedHealth:
    """Listens to ``selector``; ``tell`` sends a message of this name to the other workers."""

    def __init__(
        self, registry: Registry, selector: Selector, tell: Callable[[str, Any], None]
    ) -> None:
        self._registry = registry
        self._now = selector.now
        self._tell = tell
        self._open: dict[Slot, float] = {}
        self._cooling: dict[Slot, float] = {}
        self._spent: dict[Slot, float] = {}
        self._down: set[str] = set()
        selector.noticed = self._changed

    def handlers(self) -> dict[str, Handler]:
        """What is done when another worker tells."""
        return {
            "endpoint down": self._look,
            "breaker open": lambda slot: self._trip(*slot),
            "cooling": self._cool,
            "spent": self._spend,
        }

    def _changed(self, state: DeploymentState) -> None:
        assert isinstance(state, Deployment)
        if len(self._open) + len(self._cooling) + len(self._spent) > _MOST_TOLD:
            self._open.clear()
            self._cooling.clear()
            self._spent.clear()
        now, slot, endpoint = self._now(), state.slot, state.endpoint
        if endpoint.host.up:
            self._down.discard(endpoint.name)
        elif endpoint.name not in self._down:
            self._down.add(endpoint.name)
            self._tell("endpoint down", endpoint.name)
        opens = state.breaker.opens_until
        if opens > now and opens != self._open.get(slot):
            self._open[slot] = opens
            self._tell("breaker open", slot)
        if state.cool_until > now and state.cool_until != self._cooling.get(slot):
            self._cooling[slot] = state.cool_until
            self._tell("cooling", [*slot, state.cool_until - now, state.limited])
        if state.spent_until > now and state.spent_until != self._spent.get(slot):
            self._spent[slot] = state.spent_until
            self._tell("spent", [*slot, state.spent_until - now])

    def _found(self, endpoint: str, model: str) -> Deployment | None:
        """Nothing of what was never asked for here: there would be no end of names."""
        known = self._registry.named(endpoint)
        return known.deployments.get(model) if known is not None else None

    def _look(self, name: str) -> None:
        endpoint = self._registry.named(name)
        if endpoint is not None and endpoint.host.up:
            self._down.add(name)  # not told again
            endpoint.probe_now.set()

    def _trip(self, endpoint: str, model: str) -> None:
        deployment, now = self._found(endpoint, model), self._now()
        if deployment is None or deployment.breaker.state(now) is BreakerState.OPEN:
            return
        deployment.breaker.trip(now)
        self._open[deployment.slot] = deployment.breaker.opens_until
        deployment.refresh(now)

    def _cool(self, told: Sequence[Any]) -> None:
        endpoint, model, seconds, limited = told
        deployment, now = self._found(endpoint, model), self._now()
        if deployment is None or now + seconds <= deployment.cool_until:
            return
        self._cooling[deployment.slot] = now + seconds
        if limited:
            deployment.cool_down(seconds, now)
        else:
            deployment.cool(now + seconds, now)

    def _spend(self, told: Sequence[Any]) -> None:
        endpoint, model, seconds = told
        deployment, now = self._found(endpoint, model), self._now()
        if deployment is None or now + seconds <= deployment.spent_until:
            return
        self._spent[deployment.slot] = now + seconds
        deployment.spent(now + seconds, now)
