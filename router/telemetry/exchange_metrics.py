"""What is told of requests: how many, how they ended, how long they took.

``fault_of`` says whose fault it is when an exchange does not end well:

caller      the request itself: malformed, unknown names, a wrong key
policy      what the configuration allows: budgets, limits, closed routes
upstream    an endpoint failed, or could not be reached
router      here: a bug, no free slot, the database, shutting down
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry

from router.core.exchange import Exchange, Operation, Outcome
from router.core.plugin_hooks import Observer
from router.errors import (
    Forbidden,
    InternalError,
    LimitsUnavailable,
    NoFileDescriptors,
    NotCached,
    NotSupported,
    Overloaded,
    QuotaExceeded,
    RateLimitExceeded,
    RouterError,
    ShuttingDown,
    StateUnavailable,
    UpstreamError,
)
from router.telemetry.meters import CountMeter, CountValue, Spread, SpreadMeter
from router.telemetry.series import OTHER, Cap, Series

__all__ = [
    "CALLER",
    "POLICY",
    "ROUTER",
    "SECONDS",
    "UPSTREAM",
    "ExchangeMetrics",
    "code_of",
    "fault_of",
]

CALLER: Final = "caller"
POLICY: Final = "policy"
UPSTREAM: Final = "upstream"
ROUTER: Final = "router"

_SERVER_ERROR: Final = "server_error"
"""What an endpoint's own answer says when it failed midway."""


def _codes(*kinds: type[RouterError]) -> frozenset[str]:
    return frozenset(code for kind in kinds if (code := kind.default_code) is not None)


def _tree(kind: type[RouterError]) -> Iterator[type[RouterError]]:
    yield kind
    for derived in kind.__subclasses__():
        yield from _tree(derived)


_POLICY: Final = _codes(Forbidden, QuotaExceeded, RateLimitExceeded)
_ROUTER: Final = _codes(
    InternalError,
    LimitsUnavailable,
    NoFileDescriptors,
    Overloaded,
    ShuttingDown,
    StateUnavailable,
)
_UPSTREAM: Final = _codes(*_tree(UpstreamError)) | {_SERVER_ERROR}
_CALLER: Final = _codes(NotCached, NotSupported)
_CODES: Final = _codes(*_tree(RouterError)) | {_SERVER_ERROR}


def fault_of(exchange: Exchange) -> str | None:
    """Whose fault it is; None where nobody's: it went well, or its client left.

    Some codes are used for two things: what was sent to an endpoint was refused by the endpoint.
    """
    if exchange.result.outcome not in (Outcome.REFUSED, Outcome.FAILED):
        return None
    code = exchange.result.error_code
    if code in _ROUTER:
        return ROUTER
    if code in _CALLER:
        return CALLER
    if code in _UPSTREAM and (exchange.result.attempts or not _also_ours(code)):
        return UPSTREAM
    if code in _POLICY:
        return POLICY
    if exchange.result.status >= 500:
        return ROUTER
    return CALLER


def code_of(exchange: Exchange) -> str:
    """The error's code as a label; those that an endpoint made up are ``other``."""
    code = exchange.result.error_code
    return code if code in _CODES else OTHER


def _also_ours(code: str | None) -> bool:
    """Whether the router refuses with this code too, before it asks anybody."""
    return code in _POLICY or code in _NOT_FOUND


_NOT_FOUND: Final = frozenset({"model_not_found"})


SECONDS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800,
)  # fmt: skip
"""Bounds of what takes as long as an answer."""

_TOKEN_SECONDS: Final = (
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5,
)  # fmt: skip
_OVERHEAD_SECONDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 10,
)  # fmt: skip
_MAX_LABEL_SETS: Final = 10_000
_MAX_TOKENS: Final = 10**9
_EXEMPLAR_SECONDS: Final = 1.0
"""A label set gets one exemplar in so many seconds: nobody looks at more."""

_OK: Final = Outcome.OK
_FAILED: Final = Outcome.FAILED
_WHERE: Final = ("operation", "endpoint", "model")
_FOLD: Final = ("endpoint", "model")


class ExchangeMetrics(Observer):
    """The metrics of requests, whatever becomes of them; the plugin ``request_metrics`` has them
    hear of every exchange.

    ``known_model`` says whether a name may be a label; until it is set, every name may.
    """

    name = "request_metrics"

    def __init__(self, registry: CollectorRegistry, cap: Cap) -> None:
        def count(name: str, help: str, *labels: str) -> Series[CountValue]:
            return Series(CountMeter(name, help, labels, registry), cap, fold=_FOLD)

        def spread(name: str, help: str, bounds: Sequence[float], *labels: str) -> Series[Spread]:
            meter = SpreadMeter(name, help, labels, registry, bounds=bounds)
            return Series(meter, cap, fold=_FOLD)

        self.requests = count(
            "pointsman_requests",
            "Requests answered, by outcome (ok, refused, failed, cancelled) and HTTP status.",
            *_WHERE, "outcome", "status",
        )  # fmt: skip
        self.errors = count(
            "pointsman_errors",
            "Requests that were refused or failed, by whose fault it is (caller, policy, "
            "upstream, router) and the error's code.",
            "operation", "endpoint", "fault", "code",
        )  # fmt: skip
        self.disconnects = CountMeter(
            "pointsman_client_disconnects",
            "Requests whose client left, by phase: request (while it was sent, or something was "
            "looked up for it), waiting (before the first output), streaming.",
            ("operation", "phase"),
            registry,
        )
        self.duration = spread(
            "pointsman_request_duration_seconds",
            "From a request's head to its last byte.",
            SECONDS, *_WHERE,
        )  # fmt: skip
        self.first_token = spread(
            "pointsman_time_to_first_token_seconds",
            "From a streaming request's head to its first output event.",
            SECONDS, *_WHERE,
        )  # fmt: skip
        self.between_tokens = spread(
            "pointsman_time_between_tokens_seconds",
            "The time between two output tokens of a stream, on average over the stream: from "
            "its first output to its end.",
            _TOKEN_SECONDS, "endpoint", "model",
        )  # fmt: skip
        self.overhead = spread(
            "pointsman_overhead_seconds",
            "What of a request's time was spent here: waiting neither for a slot, nor for a "
            "model to be loaded, nor for an endpoint. Of requests that an endpoint was asked "
            "for.",
            _OVERHEAD_SECONDS, "operation",
        )  # fmt: skip
        self.known_model: Callable[[str], bool] = lambda model: True
        self._places: dict[tuple[str, str, str], _Counted] = {}

    def ended(self, exchange: Exchange) -> None:
        """Count a finished exchange."""
        request, result, model = exchange.request, exchange.result, exchange.model
        if model is None:
            model = ""
        elif not self.known_model(model):
            model = OTHER
        where = (request.operation.value, result.endpoint or "", model)
        place = self._places.get(where) or self._found(where)
        outcome = result.outcome or _FAILED
        ending = (outcome._value_, result.status)
        try:
            place.requests[ending].value += 1
        except KeyError:
            count = self.requests[*where, outcome._value_, str(result.status)]
            place.requests[ending] = count
            count.value += 1
        first, finished, example = result.first_output, result.finished, None
        if finished is not None:
            took = finished - request.started
            if finished >= place.next_example:
                place.next_example = finished + _EXEMPLAR_SECONDS
                example = request.id
            place.duration.observe(took, example)
            if result.spent is not None:
                waited = result.spent.seconds + result.queue_seconds
                self.overhead[where[:1]].observe(took - waited if took > waited else 0.0)
        if first is not None:
            self.first_token[where].observe(first - request.started, example)
            # An answer from the cache comes as fast as it likes, which says nothing.
            if finished is not None and result.endpoint is not None and outcome is _OK:
                tokens = result.usage.get("output_tokens") if result.usage is not None else None
                if type(tokens) is int and 1 < tokens <= _MAX_TOKENS:
                    self.between_tokens[where[1:]].observe((finished - first) / (tokens - 1))
        if outcome is not _OK:
            self._went_wrong(exchange)

    def _found(self, where: tuple[str, str, str]) -> _Counted:
        if len(self._places) >= _MAX_LABEL_SETS:
            self._places.clear()
        place = self._places[where] = _Counted(self.duration[where])
        return place

    def _went_wrong(self, exchange: Exchange) -> None:
        operation = exchange.request.operation.value
        if (fault := fault_of(exchange)) is not None:
            endpoint = exchange.result.endpoint or ""
            self.errors[operation, endpoint, fault, code_of(exchange)].inc()
        elif (
            exchange.result.outcome is Outcome.CANCELLED
            and exchange.request.operation is not Operation.RUN
        ):
            self.disconnects.labels(operation, _phase(exchange)).inc()


class _Counted:
    """What is counted of an operation, an endpoint and a model, found once: ``requests`` are by
    outcome and status. ``next_example`` is when a request may be shown as an example again
    (monotonic).
    """

    __slots__ = ("duration", "next_example", "requests")

    def __init__(self, duration: Spread) -> None:
        self.requests: dict[tuple[str, int], CountValue] = {}
        self.duration = duration
        self.next_example = 0.0


def _phase(exchange: Exchange) -> str:
    if not exchange.running:
        return "request"
    return "waiting" if exchange.result.first_output is None else "streaming"
