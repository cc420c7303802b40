"""Why a request goes where it goes: ``POST /admin/explain``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, Final, TypedDict

import orjson

from router.balance.capability import Feature, needs
from router.balance.deployment_state import COOLING, DRAINED, FULL, GRADES, OPEN
from router.balance.policies import QUEUE
from router.core.exchange import Exchange
from router.dialects.dropped import dropped_header
from router.endpoints.deployment import Deployment
from router.endpoints.dry_run import DryRun, PlannedAttempt, simulate_attempts
from router.endpoints.endpoint import Endpoint
from router.endpoints.plan import LACKS_FEATURE, able
from router.endpoints.registry import Group, Registry
from router.endpoints.report import QueueReport, lacking, queue_report, rounded
from router.endpoints.selector import Selector
from router.errors import InvalidRequest, RouterError

__all__ = [
    "ExplainedChoice",
    "ExplainedEndpoint",
    "Explainer",
    "Explanation",
    "LeftOut",
    "ModelPlan",
    "Sent",
]


_CHANCE: Final = "Among equals chance decides: the same request may go elsewhere the next time."


class LeftOut(TypedDict):
    """Why an endpoint is not asked: ``code`` for machines, ``message`` for people.

    The codes are ``not_served``, ``unsupported_feature``, ``context_length_exceeded``,
    ``unsupported_dialect``, and the grades ``full``, ``open``, ``cooling`` and ``drained``.
    """

    code: str
    message: str


class ExplainedEndpoint(TypedDict):
    """One endpoint, and how it compares for this request.

    ``model`` is the endpoint's own name for the model, null where it does not serve it; everything
    below ``left_out`` is null then too. ``left_out`` is null where it can be chosen, or would be
    all the same because nothing better is left. ``score`` is the policy's: lower is better, null
    is the worst. ``wait`` are the seconds until a slot is expected to be free and the model to be
    in memory, null where that is not known. ``preferred``: its prompt cache may know what came
    before, or it encrypted the reasoning that the request brings back.
    """

    endpoint: str
    model: str | None
    left_out: LeftOut | None
    grade: str | None
    score: float | None
    load: float | None
    in_flight: int | None
    limit: int | None
    wait: float | None
    preferred: bool | None


class ExplainedChoice(TypedDict):
    """An endpoint that would be asked, and why it."""

    endpoint: str
    model: str
    why: str


class ModelPlan(TypedDict):
    """What would become of the request with one model.

    ``attempts`` are the endpoints that would be asked, each if those before it fail; ``why`` says
    why there is none, or no further one. ``waits``: the request would stand in the queue.
    ``error`` is the router's answer, in its envelope, where nobody can serve the request.
    """

    model: str
    candidates: list[ExplainedEndpoint]
    attempts: list[ExplainedChoice]
    waits: bool
    why: str
    error: dict[str, str | None] | None


class Sent(TypedDict):
    """What would go to the endpoint that is chosen: a POST to ``path``, relative to its URL.

    ``answer_headers`` are what the client would be told of what the translation leaves out.
    """

    endpoint: str
    path: str
    body: Any
    answer_headers: dict[str, str]


class Explanation(TypedDict):
    """The answer to ``POST /admin/explain``.

    ``plans`` are those of the model that is asked for and of its fallbacks, in their order, each
    for when the one before it fails. ``chosen`` and ``request`` are null where the request would
    wait, or be refused. ``notes`` are what is not looked at, and what is left to chance.
    """

    operation: str
    model: str
    stream: bool
    policy: str
    queue: QueueReport
    chosen: ExplainedChoice | None
    request: Sent | None
    plans: list[ModelPlan]
    notes: list[str]


class Explainer:
    """Explains the choices of a selector. ``clock`` is in monotonic seconds."""

    def __init__(self, registry: Registry, selector: Selector, clock: Callable[[], float]) -> None:
        self._registry = registry
        self._selector = selector
        self._clock = clock

    async def explain(
        self,
        exchange: Exchange,
        fallbacks: Sequence[str],
        attempts: int,
        notes: Sequence[str],
        *,
        strict: bool = False,
    ) -> Explanation:
        """What would become of a validated request, with ``attempts`` attempts at each model;
        ``strict`` is that of ``server.unsupported``.

        ``exchange`` is one of the Responses API or of Chat Completions. Raises RouterError like
        the request itself where nobody is known to serve its model and there are no fallbacks.
        """
        models = [exchange.model or "", *fallbacks]
        plans: list[ModelPlan] = []
        chosen: PlannedAttempt | None = None
        for place, model in enumerate(models):
            try:
                group = await self._registry.group(model)
            except RouterError as error:
                if not fallbacks:
                    raise
                plans.append(self._described(Group(model, ()), DryRun(error=error), exchange))
                continue
            last = place == len(fallbacks)
            dry_run = self._dry_run(group, exchange, attempts, last=last, strict=strict)
            if dry_run.attempts and not chosen and not any(plan["waits"] for plan in plans):
                chosen = dry_run.attempts[0]
            plans.append(self._described(group, dry_run, exchange))
        policy = self._selector.selection.policy.name
        by_chance = policy != "round-robin" and any(map(_has_a_choice, plans))
        return {
            "operation": exchange.request.operation.value,
            "model": models[0],
            "stream": exchange.stream,
            "policy": policy,
            "queue": queue_report(self._selector),
            "chosen": _choice(chosen) if chosen else None,
            "request": _sent(chosen, exchange.dropped) if chosen else None,
            "plans": plans,
            "notes": [*notes, _CHANCE] if by_chance else list(notes),
        }

    def _dry_run(
        self, group: Group, exchange: Exchange, attempts: int, *, last: bool, strict: bool
    ) -> DryRun:
        now = self._clock()
        for deployment in group.deployments:
            deployment.endpoint.host.refresh(now)  # time may have changed its grade
        try:
            plan = self._selector.plan(group, exchange)
        except InvalidRequest as error:
            return DryRun(error=error)
        plan.desperate = last
        return simulate_attempts(self._selector, plan, exchange, attempts, strict=strict)

    def _described(self, group: Group, dry_run: DryRun, exchange: Exchange) -> ModelPlan:
        error = dry_run.error
        serving = {deployment.endpoint: deployment for deployment in group.deployments}
        return {
            "model": group.model,
            "candidates": [
                self._candidate(serving[endpoint], group, dry_run, exchange)
                if endpoint in serving
                else _not_serving(endpoint)
                for endpoint in self._registry.endpoints
            ],
            "attempts": [_choice(attempt) for attempt in dry_run.attempts],
            "waits": not dry_run.attempts and dry_run.why == QUEUE,
            "why": error.message if error is not None else dry_run.why,
            "error": error.envelope()["error"] if error is not None else None,
        }

    def _candidate(
        self, deployment: Deployment, group: Group, dry_run: DryRun, exchange: Exchange
    ) -> ExplainedEndpoint:
        now = self._clock()
        return {
            "endpoint": deployment.endpoint.name,
            "model": deployment.model,
            "left_out": _left_out(deployment, group, dry_run, exchange, now),
            "grade": GRADES[deployment.grade],
            "score": rounded(self._selector.selection.policy.score(deployment, now)),
            "load": rounded(deployment.load),
            "in_flight": deployment.in_flight,
            "limit": deployment.limit,
            "wait": rounded(deployment.predicted_wait(len(self._selector.queue), now)),
            "preferred": deployment in dry_run.preferred,
        }


def _has_a_choice(plan: ModelPlan) -> bool:
    return sum(candidate["left_out"] is None for candidate in plan["candidates"]) > 1


def _not_serving(endpoint: Endpoint) -> ExplainedEndpoint:
    return {
        "endpoint": endpoint.name,
        "model": None,
        "left_out": {"code": "not_served", "message": "It does not serve the model."},
        "grade": None,
        "score": None,
        "load": None,
        "in_flight": None,
        "limit": None,
        "wait": None,
        "preferred": None,
    }


def _left_out(
    deployment: Deployment, group: Group, dry_run: DryRun, exchange: Exchange, now: float
) -> LeftOut | None:
    if any(attempt.deployment is deployment for attempt in dry_run.attempts):
        return None
    if (error := dry_run.cannot.get(deployment)) is not None:
        return {"code": "unsupported_dialect", "message": error.message}
    return _unable(deployment, group, exchange) or _unwell(deployment, now)


def _unable(deployment: Deployment, group: Group, exchange: Exchange) -> LeftOut | None:
    """What the request needs and the model does not have here."""
    try:
        able(Group(group.model, (deployment,)), exchange, truncates=False)
    except InvalidRequest as error:
        if error.code == LACKS_FEATURE:
            needed = needs(exchange.responses_body, Feature(deployment.lacks))
            missing = lacking(deployment.lacks & needed)
            return {"code": LACKS_FEATURE, "message": f"It has no {', no '.join(missing)}."}
        if exchange.truncates and deployment in able(group, exchange, truncates=True):
            return None  # it fits nowhere, and is cut
        message = f"The request does not fit into its context of {deployment.context} tokens."
        return {"code": str(error.code), "message": message}
    return None


def _unwell(deployment: Deployment, now: float) -> LeftOut | None:
    """Why nothing can be sent there now."""
    host = deployment.endpoint.host
    if deployment.grade == FULL:
        message = f"Its slots are taken, {deployment.in_flight} of {deployment.limit}."
    elif deployment.grade == DRAINED:
        message = "An operator has taken it out."
    elif deployment.grade == COOLING:
        limits = deployment.rate_limited(now)
        why = "It limits the rate" if limits else "It could not load the model"
        message = f"{why}, and is left alone for {ceil(deployment.rests_until - now)} s more."
    elif deployment.grade == OPEN and not host.up:
        message = "It cannot be reached."
    elif deployment.grade == OPEN:
        left = max(0, ceil(deployment.breaker.opens_until - now))
        message = f"It has failed too often, and is left alone for {left} s more."
    else:
        return None
    return {"code": GRADES[deployment.grade], "message": message}


def _choice(attempt: PlannedAttempt) -> ExplainedChoice:
    return {
        "endpoint": attempt.deployment.endpoint.name,
        "model": attempt.deployment.model,
        "why": attempt.why,
    }


def _sent(attempt: PlannedAttempt, dropped: Sequence[str]) -> Sent:
    """``dropped``: the fields that no endpoint is sent."""
    request = attempt.call.request
    return {
        "endpoint": attempt.deployment.endpoint.name,
        "path": request.path,
        "body": orjson.Fragment(request.body),
        "answer_headers": {
            **attempt.call.response_headers,
            **dropped_header([*dropped, *attempt.call.dropped]),
        },
    }
