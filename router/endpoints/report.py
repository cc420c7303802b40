"""How the endpoints are, for the people who run them: ``GET /admin/endpoints``.

Everything here is made of what routing keeps anyway; nothing is measured or asked for it. Times are
of one router: another one in front of the same endpoints has its own breakers and averages.
"""

from __future__ import annotations

from math import isfinite
from typing import Final, TypedDict

from cache.breaker import Breaker
from router.balance.capability import Feature
from router.balance.deployment_state import GRADES
from router.endpoints.deployment import Deployment
from router.endpoints.endpoint import Endpoint
from router.endpoints.selector import Selector

__all__ = [
    "BreakerReport",
    "EndpointReport",
    "ModelReport",
    "QueueReport",
    "Unasked",
    "endpoint_report",
    "lacking",
    "queue_report",
    "rounded",
]

_DIGITS: Final = 3


class BreakerReport(TypedDict):
    """A circuit breaker.

    ``state`` is ``closed``, ``open`` or ``half-open``. ``half_open_in`` are the seconds until an
    open one lets a request try, else null. ``failure_ratio`` is the share of recent requests that
    failed.
    """

    state: str
    half_open_in: float | None
    failure_ratio: float


class ModelReport(TypedDict):
    """One model at one endpoint, under the name that it has there.

    ``grade`` is what a choice goes by (see ``router.balance.deployment_state.GRADES``). ``load`` is
    the share of its weighted capacity in use. ``cooling_for`` are the seconds for which it is left
    alone, null where it is not; ``rate_limited`` whether a rate limit is why. ``loaded`` is whether
    it is in memory, null where the endpoint does not tell; ``loading_for`` how long the router's
    load of it has taken so far. ``first_token`` is the moving average of the seconds to a stream's
    first output, ``first_token_p95`` their 95th percentile, ``held`` the average of how long a slot
    is held; each is null until it is known. ``lacks`` are the features that it is known not to
    have, ``context`` its length in tokens where that is known.
    """

    model: str
    grade: str
    in_flight: int
    limit: int
    load: float
    breaker: BreakerReport
    cooling_for: float | None
    rate_limited: bool
    loaded: bool | None
    loading_for: float | None
    first_token: float | None
    first_token_p95: float | None
    held: float | None
    lacks: list[str]
    context: int | None


class Unasked(TypedDict):
    """A model that an endpoint serves and nobody has asked for; ``loaded`` as in ModelReport."""

    model: str
    loaded: bool | None


class EndpointReport(TypedDict):
    """One endpoint.

    ``state`` is ``up``, ``down`` (it cannot be reached, or refuses its api_key), ``drained`` (by an
    operator), or ``unknown`` before the first probe. ``connection`` is the breaker of its
    connections; its failure ratio is always 0, since one failure opens it. ``problem`` is what the
    last probe found wrong, such as a key that is refused; null where it found nothing.
    """

    name: str
    url: str
    dialect: str
    priority: int
    weight: float
    state: str
    problem: str | None
    connection: BreakerReport
    in_flight: int
    models: list[ModelReport]
    unasked: list[Unasked]


class QueueReport(TypedDict):
    """How many requests wait for a slot, and how many may."""

    waiting: int
    size: int


def endpoint_report(endpoint: Endpoint, now: float) -> EndpointReport:
    """One endpoint as of ``now``, in monotonic seconds. Its grades are brought up to date."""
    endpoint.host.refresh(now)
    settings = endpoint.settings
    return {
        "name": endpoint.name,
        "url": settings.url,
        "dialect": settings.dialect,
        "priority": settings.priority,
        "weight": settings.weight,
        "state": _state(endpoint),
        "problem": endpoint.problem,
        "connection": _breaker(endpoint.host.breaker, now),
        "in_flight": endpoint.in_flight,
        "models": [
            _model(deployment, now)
            for deployment in endpoint.deployments.values()
            if _is_there(deployment)
        ],
        "unasked": _unasked(endpoint),
    }


def queue_report(selector: Selector) -> QueueReport:
    """The queue in front of the slots."""
    return {"waiting": len(selector.queue), "size": selector.queue.size}


def lacking(lacks: int) -> list[str]:
    """The names of features, as the configuration has them."""
    return [str(feature.name).lower() for feature in Feature if feature & lacks]


def rounded(value: float | None) -> float | None:
    """A number for people to read; None where it is not known, or infinite."""
    return round(value, _DIGITS) if value is not None and isfinite(value) else None


def _state(endpoint: Endpoint) -> str:
    if endpoint.host.drained:
        return "drained"
    if not endpoint.host.up:
        return "down"
    return "up" if endpoint.probed.is_set() else "unknown"


def _breaker(breaker: Breaker, now: float) -> BreakerReport:
    left = breaker.opens_until - now
    return {
        "state": breaker.state(now).value,
        "half_open_in": rounded(left) if left > 0 else None,
        "failure_ratio": round(breaker.failure_ratio(now), _DIGITS),
    }


def _model(deployment: Deployment, now: float) -> ModelReport:
    began = deployment.load_began
    cooling = deployment.rests_until > now
    return {
        "model": deployment.model,
        "grade": GRADES[deployment.grade],
        "in_flight": deployment.in_flight,
        "limit": deployment.limit,
        "load": round(deployment.load, _DIGITS),
        "breaker": _breaker(deployment.breaker, now),
        "cooling_for": rounded(deployment.rests_until - now) if cooling else None,
        "rate_limited": cooling and deployment.rate_limited(now),
        "loaded": _loaded(deployment),
        "loading_for": rounded(now - began) if began is not None else None,
        "first_token": rounded(deployment.first_token.latest)
        if deployment.first_token.known
        else None,
        "first_token_p95": rounded(deployment.late.value),
        "held": rounded(deployment.service.value),
        "lacks": lacking(deployment.lacks),
        "context": deployment.context,
    }


def _is_there(deployment: Deployment) -> bool:
    """Whether it is served still, or at least worked on: endpoints drop models."""
    if deployment.in_flight:
        return True
    catalogue = deployment.endpoint.catalogue
    return (
        deployment.model in catalogue.known_names()
        or catalogue.resolve(deployment.model) is not None
    )


def _loaded(deployment: Deployment) -> bool | None:
    """Whether it is in memory: what is not known to be elsewhere counts as there in a choice."""
    told = deployment.endpoint.catalogue.in_memory(deployment.model)
    return None if told is None and deployment.loaded else deployment.loaded


def _unasked(endpoint: Endpoint) -> list[Unasked]:
    catalogue = endpoint.catalogue
    names = dict.fromkeys(filter(None, map(catalogue.resolve, catalogue.public_names())))
    return [
        {"model": name, "loaded": catalogue.in_memory(name)}
        for name in names
        if name not in endpoint.deployments
    ]
