"""Where an exchange goes when an endpoint fails it: the rules of trying again, in one place.

Until the first output an attempt that failed is made again at another endpoint, within
``balance.max_attempts`` and the retry budget; never at the same one while others are left. The
only one there is gets a second chance after a connection that failed or broke, never after an
answer. When a model is out of endpoints, the models of ``fallbacks`` are tried, each with attempts
of its own. What every failure says about its endpoint is told to the breakers.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterable, Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Any, Final, Protocol

from router.balance.averages import RetryBudget
from router.balance.capability import Abilities, length_param, needs
from router.balance.inference import inferred_abilities
from router.balance.pauses import asked_pause
from router.core.exchange import AnswerKind, Exchange
from router.dialects.input_files import any_files
from router.endpoints.deployment import Deployment
from router.endpoints.loads import Loads
from router.endpoints.plan import LACKS_CONTEXT, LACKS_FEATURE, Fallbacks, Plan
from router.endpoints.registry import Registry
from router.endpoints.selector import Selector, SlotReservation
from router.errors import (
    InvalidRequest,
    ModelLoadFailed,
    ModelNotFound,
    NoFileDescriptors,
    NotSupported,
    Overloaded,
    RouterError,
    UpstreamError,
    UpstreamLoading,
    UpstreamModelMissing,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamRouteMissing,
    UpstreamTooLong,
    UpstreamUnavailable,
)
from router.fetch.images import Images
from router.files.requests import RequestFiles
from router.pipeline.request_files import ContentNeeds, get_content
from router.settings.schema import Settings
from router.telemetry.log import get_logger
from router.telemetry.metrics import Metrics

__all__ = ["FALLBACK", "Failover", "Work", "has_files"]

FALLBACK: Final = "X-Pointsman-Fallback"
"""The header that names the model that answered instead of the one that was asked for."""

_log = get_logger("router.pipeline.failover")

_OF_ITEMS: Final = frozenset({AnswerKind.RESPONSE, AnswerKind.COMPACT, AnswerKind.COUNT})
"""Operations whose input is one of the Responses API."""

_LATELY: Final = 0.25
"""In what part, at its end, of a time that was too long an endpoint has to have been heard."""


class Work(Protocol):
    """What is tried."""

    @property
    def has_output(self) -> bool:
        """Whether output has reached the client: nothing can be taken back."""
        ...

    async def attempt(self, reservation: SlotReservation) -> None:
        """Have the exchange answered by this deployment; raises UpstreamError, or InvalidRequest or
        NotSupported where the deployment's dialect cannot carry it.
        """
        ...

    def rewind(self, model: str) -> None:
        """Forget what an attempt made; the next one is made with this model."""
        ...


class Failover:
    """Tries deployments until one of them answers."""

    def __init__(
        self,
        registry: Registry,
        selector: Selector,
        loads: Loads,
        images: Images,
        metrics: Metrics,
    ) -> None:
        self._registry = registry
        self._selector = selector
        self._loads = loads
        self._images = images
        self._metrics = metrics
        self._budget = RetryBudget(0.0, 0.0)
        self._max_attempts = 1
        self._fallbacks: Fallbacks | None = None
        self.files: RequestFiles | None = None
        """What gets the files of requests."""

    def configure(self, settings: Settings) -> None:
        """Go on with these rules."""
        balance = settings.balance
        self._max_attempts = balance.max_attempts
        self._fallbacks = Fallbacks(settings.fallbacks) if settings.fallbacks else None
        self._budget.ratio = balance.retry_budget.ratio
        self._budget.reserve = balance.retry_budget.reserve

    def retries_left(self, now: float) -> float:
        """How many requests the retry budget would let be sent again at this moment."""
        return self._budget.available(now)

    def run(self, exchange: Exchange, work: Work) -> Coroutine[Any, Any, None]:
        """Try until it is answered. Raises the RouterError that is left."""
        self._budget.deposit(time.monotonic())
        model = exchange.model or ""
        if self._fallbacks is not None:
            configured_by, others = self._fallbacks.of(model, exchange.context.key)
            if others:
                return self._with_fallbacks(model, configured_by, others, exchange, work)
        # No coroutine more than there has to be: each is kept for as long as a stream lasts.
        return self._with(model, exchange, work, desperate=True)

    async def _with_fallbacks(
        self,
        model: str,
        configured_by: str,
        others: Sequence[str],
        exchange: Exchange,
        work: Work,
    ) -> None:
        for fallback in others:
            try:
                await self._with(model, exchange, work, desperate=False)
                return
            except RouterError as error:
                if work.has_output or not _falls_back(exchange, error):
                    raise
                failure = error
                _log.warning(
                    "model replaced",
                    request_id=exchange.request.id,
                    model=model,
                    by=fallback,
                    error=error.logged,
                )
            self._metrics.fleet.fallbacks.labels(configured_by, fallback).inc()
            model = exchange.result.headers[FALLBACK] = exchange.result.served_model = fallback
            work.rewind(model)
        try:
            await self._with(model, exchange, work, desperate=True)
        except (ModelNotFound, InvalidRequest, NotSupported):
            # The last model is none for this request, which its client cannot know.
            del exchange.result.headers[FALLBACK]
            exchange.result.served_model = None
            raise failure from None

    async def _with(self, model: str, exchange: Exchange, work: Work, *, desperate: bool) -> None:
        """Try the endpoints that serve this model."""
        known = self._registry.known(model)
        group = known or await self._registry.group(model, exchange.context.key)
        plan = self._selector.plan(group, exchange)
        plan.desperate = desperate
        # No slot is held meanwhile.
        failure: RouterError | None = None
        if (needs := _needed_content(plan, exchange)) is not None:
            failure = await get_content(plan, exchange, needs, self._images, self.files)
        attempts = 0
        while True:
            reservation = self._selector.at_once(plan) or await self._reserve(plan, failure)
            if reservation.queue_seconds:
                exchange.result.queue_seconds += reservation.queue_seconds
                self._metrics.fleet.queue_waited(reservation.queue_seconds)
            try:
                if not reservation.deployment.loaded:
                    await self._load(reservation, exchange)
                attempts += 1
                await work.attempt(reservation)
                return
            except UpstreamError as error:
                failure = error
                if isinstance(error, UpstreamLoading) and self._waits(reservation):
                    attempts -= 1  # it was not tried yet
                else:
                    learned = self.judge(reservation, exchange, error)
                    if work.has_output or not await self._goes_on(
                        plan, exchange, error, attempts, learned
                    ):
                        raise
            except (InvalidRequest, NotSupported) as error:
                # Its dialect cannot carry the request: another one may. Nobody was asked.
                attempts -= 1
                failure = failure or error
                plan.drop(reservation.deployment)
                if not plan.left:
                    raise failure from None
            finally:
                self._selector.release(reservation)
            work.rewind(model)

    def _waits(self, reservation: SlotReservation) -> bool:
        """Whether a request waits for the model that its endpoint is loading already: at most for
        ``timeouts.load`` in all, should the endpoint begin again and again.
        """
        deployment, plan = reservation.deployment, reservation.plan
        now = time.monotonic()
        if plan.loaded_by is None:
            plan.loaded_by = now + deployment.endpoint.settings.timeouts.load
        self._loads.found_loading(deployment)
        return now < plan.loaded_by

    async def _load(self, reservation: SlotReservation, exchange: Exchange) -> None:
        began = time.monotonic()
        try:
            await self._loads.ensure(reservation.deployment)
        finally:
            exchange.result.queue_seconds += time.monotonic() - began
        self._selector.begin_again(reservation)

    async def _reserve(self, plan: Plan, failure: RouterError | None) -> SlotReservation:
        try:
            return await self._selector.reserve(plan)
        except (Overloaded, UpstreamRateLimited):
            if isinstance(failure, UpstreamError):
                # Nowhere else is room: why it had to go elsewhere says more.
                raise failure from None
            raise

    async def _goes_on(
        self, plan: Plan, exchange: Exchange, error: UpstreamError, attempts: int, learned: bool
    ) -> bool:
        """Whether another attempt is made; marks where none is to be made any more."""
        if not (error.elsewhere or learned):
            return False
        if not learned and attempts >= self._max_attempts:
            return False
        if not (plan.left or learned):
            await self._selector.follow(plan)  # a reload may have put others in their place
        if not plan.left and not (
            attempts == 1 and (error.again or _fits_now(plan, exchange, error))
        ):
            return False
        # A request that reached nobody has cost nobody anything.
        if _was_sent(error) and not self._budget.withdraw(time.monotonic()):
            self._metrics.fleet.retries_denied.inc()
            _log.warning("retry budget is spent", model=plan.group.model)
            return False
        if not plan.left:
            plan.tried.clear()
        return True

    def judge(self, reservation: SlotReservation, exchange: Exchange, error: UpstreamError) -> bool:
        """Tell the endpoint's health what happened; whether a refusal taught something."""
        if isinstance(error, NoFileDescriptors):
            return False  # nobody was asked
        deployment = reservation.deployment
        endpoint = deployment.endpoint
        error.message = endpoint.redacted(error.message)
        reservation.plan.tried.append(deployment)
        learned = False
        now = time.monotonic()
        if isinstance(error, UpstreamRejected):
            learned = self._learn(reservation, exchange, error)
        elif isinstance(error, ModelLoadFailed):
            pass  # it has been left alone by whoever loads
        elif isinstance(error, UpstreamLoading):
            self._loads.found_loading(deployment)
        elif isinstance(error, UpstreamTooLong) and _is_well(reservation, error, now):
            error.elsewhere = not error.begun  # else it may have been lost here
        elif isinstance(error, UpstreamRateLimited):
            pause = asked_pause(error.headers, datetime.now(UTC))
            deployment.cool_down(pause, now)
            # The client is told what will be done, however the endpoint put it.
            error.headers["Retry-After"] = str(ceil(pause))
        elif not _connected(error):
            endpoint.unreachable(now)
        elif (
            isinstance(error, UpstreamModelMissing)
            and exchange.request.operation.kind is AnswerKind.COMPACT
        ):
            self._selector.refused(reservation)  # it lacks the route, not the model
        else:
            self._selector.failed(reservation)
            if isinstance(error, UpstreamModelMissing):
                endpoint.not_found(route=isinstance(error, UpstreamRouteMissing))
        self._metrics.fleet.attempts[endpoint.name, error.code or "error"].inc()
        _log.warning(
            "attempt failed",
            request_id=exchange.request.id,
            endpoint=endpoint.name,
            model=deployment.model,
            attempt=exchange.result.attempts,
            error=error.logged,
        )
        return learned

    def _learn(
        self, reservation: SlotReservation, exchange: Exchange, error: UpstreamRejected
    ) -> bool:
        """A refusal is an answer; it may say what the model cannot do at this endpoint."""
        self._selector.refused(reservation)
        if error.code == LACKS_CONTEXT and error.param is None:
            error.param = exchange.named(length_param(exchange.responses_body))
        taught = _inferred(exchange, error)
        if taught is None:
            return False
        deployment = reservation.deployment
        context = deployment.context
        deployment.learn(taught, time.monotonic())
        reservation.plan.corrected = deployment.context != context
        self._registry.catalogue_changed()
        _log.info(
            "learned what a model cannot do",
            endpoint=deployment.endpoint.name,
            model=deployment.model,
            lacks=str(taught.lacks.name),
            context=taught.context,
        )
        return True


def _needed_content(plan: Plan, exchange: Exchange) -> ContentNeeds | None:
    """What has to be got before the request can be sent; None for nothing."""
    body = exchange.body
    if type(body.get("input")) is str and type(body.get("instructions")) is not list:
        return None
    images = [one for one in plan.deployments if not one.endpoint.adapter.takes_urls(exchange)]
    files = has_files(exchange, plan.deployments)
    return ContentNeeds(images, files) if images or files else None


def has_files(exchange: Exchange, deployments: Iterable[Deployment]) -> bool:
    """Whether there are files in the request, or images that were uploaded before; of a chat
    only where one of these candidates gets it translated.
    """
    kind = exchange.request.operation.kind
    if kind is AnswerKind.CHAT:
        for one in deployments:
            if one.endpoint.adapter.file_form(exchange, one.model) is not None:
                return any_files(exchange.responses_body)
        return False
    return kind in _OF_ITEMS and any_files(exchange.body)


def _is_well(reservation: SlotReservation, error: UpstreamTooLong, now: float) -> bool:
    """Whether the endpoint has answered not long ago, this request or another one."""
    lately = now - _LATELY * (now - reservation.since)
    return error.begun or reservation.deployment.heard > lately


def _inferred(exchange: Exchange, error: UpstreamRejected) -> Abilities | None:
    """What a refusal teaches, if the request needed what was refused."""
    taught = inferred_abilities(error.code, error.param, error.message)
    if taught is not None and taught.lacks and not needs(exchange.responses_body, taught.lacks):
        return None
    return taught


def _fits_now(plan: Plan, exchange: Exchange, error: UpstreamError) -> bool:
    """Whether a request that was too long is cut for the same endpoint the next time: its context
    has only now become known, and the oldest turns are to be left out. Native endpoints cut
    responses themselves, chats they do not.
    """
    if error.code != LACKS_CONTEXT or not (plan.corrected and exchange.truncates):
        return False
    native = plan.tried[-1].endpoint.settings.dialect == "responses"
    return exchange.request.operation.kind is AnswerKind.CHAT or not native


def _connected(error: UpstreamError) -> bool:
    """Whether there was a connection; an endpoint that answers 503 is there."""
    return not (isinstance(error, UpstreamUnavailable) and error.again)


def _was_sent(error: UpstreamError) -> bool:
    """Whether an endpoint had work with the request."""
    return _connected(error) and not isinstance(error, ModelLoadFailed)


def _falls_back(exchange: Exchange, error: RouterError) -> bool:
    """Whether another model may do better: it is not the request that is at fault."""
    if isinstance(error, NoFileDescriptors):
        return False
    if isinstance(error, UpstreamRejected):
        return error.code == LACKS_CONTEXT or _inferred(exchange, error) is not None
    if isinstance(error, UpstreamError | Overloaded | ModelNotFound | NotSupported):
        return True
    return isinstance(error, InvalidRequest) and error.code in (LACKS_FEATURE, LACKS_CONTEXT)
