"""Makes a usage record of every attempt, and of every answer from the cache, with its price.

An attempt is recorded once: before the end of its answer leaves, so that a client that has its
answer has a record, or else when the attempt is closed. What an endpoint reports is taken as it is.
Where it reports nothing, because it never does or because the answer broke off, the record is an
estimate (``estimated_prompt``), at most what the model's context and the request allow. What models
report of their prompts corrects the estimates of prompts to come.

``Prices`` says what tokens cost: as it is configured, else by the list prices of those who sell
them.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Protocol

from router.balance.averages import PromptTokens
from router.core.exchange import AnswerKind, Exchange
from router.core.key import ANYBODY
from router.core.usage_record import (
    NO_TOKENS,
    Kind,
    Provenance,
    Spent,
    Tokens,
    UsageRecord,
    session_of,
    tokens_of,
)
from router.endpoints.selector import SlotReservation
from router.errors import UpstreamError, UpstreamRejected, UpstreamTimeout
from router.response.builder import ResponseBuilder
from router.response.decoder import StreamDecoder
from router.response.tokens import (
    answers,
    estimate_tokens,
    estimated_prompt,
    is_text,
    prompt_size,
    prompts,
)
from router.settings.accounts import AccountsSettings, PriceSettings
from router.settings.model_names import fits
from router.telemetry.account_metrics import AccountMetrics
from router.telemetry.trace import AttemptTrace
from router.usage import list_prices
from router.usage.rates import FREE, PriceStep, Rates

__all__ = ["AttemptFacts", "Book", "Cost", "Price", "Prices", "UsageRecorder"]

Cost = Callable[[str, str, str, Tokens, float, int], int | None]
"""What tokens cost in nano-USD: (endpoint, its URL, its own name for the model, tokens, Unix time,
tokens written to a cache); None where no price is known.
"""

Book = Callable[[UsageRecord], None]
"""Keeps a row: quick, synchronous, and raises nothing."""


class AttemptFacts(Protocol):
    """What is known of an attempt; see ``router.pipeline.attempt.Attempt``."""

    reservation: SlotReservation
    builder: ResponseBuilder | None
    sent: float
    kind: Kind
    error: UpstreamError | None
    answered: bool
    complete: bool
    trace: AttemptTrace | None

    @property
    def decoder(self) -> StreamDecoder | None:
        """What read its answer."""
        ...


_REPORTED: Final = Provenance.REPORTED
_ESTIMATED: Final = Provenance.ESTIMATED
_MOST_PRICED: Final = 4096
_MOST_COUNTED: Final = 0xFFFFFF
_MANIFOLD: Final = frozenset({AnswerKind.CHAT, AnswerKind.COMPLETIONS})
_LIMITS: Final = ("max_output_tokens", "max_completion_tokens", "max_tokens")


class UsageRecorder:
    """Books attempts: every row goes to each of ``books``, and what it counts to ``metrics``."""

    def __init__(self, price: Cost, metrics: AccountMetrics) -> None:
        self.books: list[Book] = []
        self._price = price
        self._metrics = metrics
        self._priced: dict[str, tuple[str, str, str]] = {}
        # Random for every process, counted within it: cheaper than random for every row.
        self._mark = os.urandom(6).hex()
        self._number = itertools.count(int.from_bytes(os.urandom(3), "big"))

    def over(self, exchange: Exchange, attempt: AttemptFacts) -> None:
        """An attempt is over, or as good as: what it came to will not change any more."""
        request, context, result = exchange.request, exchange.context, exchange.result
        decoder, builder, sent = attempt.decoder, attempt.builder, attempt.sent
        deployment = attempt.reservation.deployment
        usage = decoder.usage if decoder is not None else None
        tokens, provenance, written = _used(exchange, attempt, usage)
        if provenance is _REPORTED and attempt.complete:
            _learn(exchange, deployment.prompts, tokens.input)
        endpoint, model, first = deployment.endpoint, exchange.model or "", result.first_output
        served = result.served_model or model
        place = endpoint.name, endpoint.settings.url, deployment.model
        if self._priced.get(served) != place:
            self._remember(served, place)
        outcome, error = _ending(attempt, decoder)
        ident, at, took = self._moment(sent)
        record = UsageRecord(
            ident,
            at,
            request.id,
            context.caller,
            () if context.key is None else context.key.tags,
            request.operation.value,
            attempt.kind,
            model,
            served,
            endpoint.name,
            tokens,
            self._price(*place, tokens, at, written),
            took,
            first - sent if first and first >= sent else None,
            outcome,
            error,
            provenance,
            None if builder is None else builder.id,
            exchange.stream,
            session_of(request.headers, exchange.body),
        )
        if result.spent is None:
            result.spent = Spent()
        result.spent.add(record)
        for book in self.books:
            book(record)
        self._metrics.recorded(record)
        if attempt.trace is not None:
            attempt.trace.over(record)

    def cached(self, exchange: Exchange, served: str, tokens: Tokens, response: str | None) -> None:
        """An exchange was answered from the cache: these tokens were saved."""
        ident, at, took = self._moment(exchange.request.started)
        known = self._priced.get(served)
        cost = self._price(*known, tokens, at, 0) if known is not None else None
        record = UsageRecord(
            ident, at, *_whose(exchange), Kind.CACHE, exchange.model or "", served, "", tokens,
            cost, took, None, "ok", None, Provenance.CACHED, response, exchange.stream,
            session_of(exchange.request.headers, exchange.body),
        )  # fmt: skip
        for book in self.books:
            book(record)
        if cost is not None:
            self._metrics.saved(served, cost)

    def tool(
        self, exchange: Exchange, name: str, began: float, error: str | None, cost: int
    ) -> None:
        """The router ran a tool: ``began`` as for ``time.monotonic``, ``cost`` in nano-USD."""
        ident, at, took = self._moment(began)
        outcome = "ok" if error is None else "failed"
        record = UsageRecord(
            ident, at, *_whose(exchange), Kind.TOOL, exchange.model or "", name, "", NO_TOKENS,
            cost, took, None, outcome, error, Provenance.REPORTED,
            exchange.builder.id if exchange.builder is not None else None, exchange.stream,
            session_of(exchange.request.headers, exchange.body),
        )  # fmt: skip
        if exchange.result.spent is not None:
            exchange.result.spent.add(record)
        for book in self.books:
            book(record)
        if cost:
            self._metrics.tool_paid(name, record.key, cost)

    def index(
        self, whose: tuple[str, str, tuple[str, ...], str], place: tuple[str, str, str],
        tokens: Tokens, provenance: Provenance, began: float, ending: tuple[str, str | None],
    ) -> UsageRecord:  # fmt: skip
        """A model made embeddings for a vector store: for which request or file, key, tags and
        operation; endpoint, its URL, its name for the model; ``ending`` is outcome and error.
        """
        ident, at, took = self._moment(began)
        record = UsageRecord(
            ident, at, *whose, Kind.INDEX, place[2], place[2], place[0], tokens,
            self._price(*place, tokens, at, 0), took, None, *ending, provenance, None, False,
        )  # fmt: skip
        for book in self.books:
            book(record)
        self._metrics.recorded(record)
        return record

    def _moment(self, began: float) -> tuple[str, float, float]:
        """For something that began then (monotonic) and is over now: an id for its row, when that
        was in Unix time, and the seconds that it took.
        """
        now, took = time.time(), time.monotonic() - began
        # It begins with the time: databases write ids in order quicker.
        number = next(self._number) & _MOST_COUNTED
        ident = "att_%012x%s%06x" % (int(now * 1000), self._mark, number)  # noqa: UP031 (quicker)
        return ident, now - took, took

    def _remember(self, served: str, place: tuple[str, str, str]) -> None:
        """Where a model was last asked for: what an answer from the cache would have cost."""
        self._priced.pop(served, None)
        self._priced[served] = place
        if len(self._priced) > _MOST_PRICED:
            del self._priced[next(iter(self._priced))]


def _whose(exchange: Exchange) -> tuple[str, str, tuple[str, ...], str]:
    """The fields of a record that say for which request it is, and whose."""
    request, context = exchange.request, exchange.context
    return request.id, context.caller, (context.key or ANYBODY).tags, request.operation.value


def _used(
    exchange: Exchange, attempt: AttemptFacts, usage: dict[str, Any] | None
) -> tuple[Tokens, Provenance, int]:
    """What the endpoint used for it, who says so, and how much of the prompt it put into its
    cache.
    """
    if usage is not None:
        details = usage.get("input_tokens_details")
        written = details.get("cache_write_tokens") if type(details) is dict else 0
        return (
            tokens_of(usage),
            _ESTIMATED if usage.get("estimated") else _REPORTED,
            written if type(written) is int and written > 0 else 0,
        )
    if not _worked(attempt):
        return NO_TOKENS, _ESTIMATED, 0
    deployment, decoder = attempt.reservation.deployment, attempt.decoder
    context = deployment.context
    inputs = estimated_prompt(
        exchange.body, deployment.prompts if exchange.request.operation.templated else None
    )
    output_chars = decoder.output_chars if decoder is not None else 0
    whole, each = context, _asked_for(exchange.body)
    if exchange.request.operation.kind in _MANIFOLD and (count := answers(exchange.body)) > 1:
        whole = context * count if context is not None else None
        each = each * count if each is not None else None
    output = _bounded(estimate_tokens(output_chars), each, whole)
    if context is not None:
        inputs = _bounded(inputs, context * prompts(exchange.body))
    return Tokens(input=inputs, output=output), _ESTIMATED, 0


def _learn(exchange: Exchange, prompts: PromptTokens, reported: int) -> None:
    """Correct the estimates for this model by what it reports of a request of text.

    None reported is no report: Ollama leaves out what it had in its prompt cache.
    """
    body = exchange.body
    if not reported or not exchange.request.operation.templated or not prompts.due():
        return
    if not exchange.result.partial and body.get("truncation") != "auto" and is_text(body):
        prompts.learn(prompt_size(body)[1], reported)


def _worked(attempt: AttemptFacts) -> bool:
    """Whether the endpoint had work with it: it answered, or did not say that it will not."""
    return attempt.answered or attempt.error is None or isinstance(attempt.error, UpstreamTimeout)


def _bounded(count: int, *bounds: int | None) -> int:
    return min((bound for bound in bounds if bound is not None and bound < count), default=count)


def _asked_for(body: dict[str, Any]) -> int | None:
    """The most that the answer may be long, in tokens."""
    given = (body.get(name) for name in _LIMITS)
    return next((most for most in given if type(most) is int and most > 0), None)


def _ending(attempt: AttemptFacts, decoder: StreamDecoder | None) -> tuple[str, str | None]:
    """Its outcome, and the code of the error that it ended with."""
    if attempt.error is not None:
        refused = isinstance(attempt.error, UpstreamRejected)
        return "refused" if refused else "failed", attempt.error.code
    if decoder is not None and decoder.failure is not None:
        return "failed", decoder.failure
    return "ok" if attempt.complete else "cancelled", None


_REMEMBERED: Final = 4096


class Price(Protocol):
    """Where a model's price is from. ``source`` is in words for people."""

    @property
    def source(self) -> str: ...

    def rates(self, at: float) -> Rates | None:
        """What holds at this time (Unix time)."""
        ...


@dataclass(frozen=True, slots=True)
class _Configured:
    source: str
    known: Rates

    def rates(self, at: float) -> Rates:
        return self.known


class Prices:
    """The price of every model at every endpoint; one that is not known is unknown, never zero."""

    def __init__(self, accounts: AccountsSettings) -> None:
        self.configure(accounts)

    def configure(self, accounts: AccountsSettings) -> None:
        """Go on with other settings."""
        # The last one that matches counts: the first that is found, when asked from the end.
        self._configured = [
            (pattern, _configured(pattern, settings))
            for pattern, settings in reversed(accounts.prices.items())
        ]
        self._listed = accounts.list_prices
        # A model at an endpoint is asked for with every attempt, and found by many patterns.
        self._known: dict[tuple[str, str, str], Price | None] = {}

    def cost(
        self, endpoint: str, url: str, model: str, tokens: Tokens, at: float, written: int = 0
    ) -> int | None:
        """What tokens cost in whole nano-USD, exact until it is rounded once, halves up; None
        where no price is known.

        ``url`` is the endpoint's, ``model`` its own name for the model, ``at`` in Unix time;
        ``written`` of the input was written to a cache.
        """
        price = self.price(endpoint, url, model)
        rates = None if price is None else price.rates(at)
        return None if rates is None else rates.cost(tokens, written)

    def price(self, endpoint: str, url: str, model: str) -> Price | None:
        """Where the price is from; None where none is known."""
        try:
            return self._known[endpoint, url, model]
        except KeyError:
            return self._look_up(endpoint, url, model)

    def explain(self, endpoint: str, url: str, model: str, at: float) -> str | None:
        """The price in words for people, and where it is from; None where none is known."""
        price = self._find(endpoint, url, model)
        rates = None if price is None else price.rates(at)
        if price is None or rates is None:
            return None
        return f"{rates.words()} ({price.source})"

    def _look_up(self, endpoint: str, url: str, model: str) -> Price | None:
        """``_find``, remembered."""
        if len(self._known) >= _REMEMBERED:
            del self._known[next(iter(self._known))]
        found = self._known[endpoint, url, model] = self._find(endpoint, url, model)
        return found

    def _find(self, endpoint: str, url: str, model: str) -> Price | None:
        there = f"{endpoint}/{model}"
        for pattern, price in self._configured:
            if pattern in {model, there} or fits(model, pattern) or fits(there, pattern):
                return price
        return list_prices.find(url, model) if self._listed else None


def _configured(pattern: str, settings: PriceSettings) -> _Configured:
    if settings.gpu_hour is not None:
        hour = f"{_exact(settings.gpu_hour):,.2f} USD per GPU hour"
        return _Configured(f"{hour}, configured as '{pattern}'", FREE)
    step = PriceStep(
        _usd(settings.input),
        _usd(settings.output),
        _usd(settings.cached),
        _usd(settings.reasoning),
        written=_usd(settings.cache_write),
    )
    return _Configured(f"configured as '{pattern}'", Rates([step]))


def _usd(price: float | None) -> Decimal | None:
    return None if price is None else _exact(price)


def _exact(price: float) -> Decimal:
    """The number as it was written: 0.1 is a tenth, not the float next to it."""
    return Decimal(repr(price))
