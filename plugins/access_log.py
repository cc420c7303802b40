"""One line per request. No prompt, answer or key is in it."""

from __future__ import annotations

import hashlib
import re
from functools import partial
from typing import Final

from router.plugin import (
    NANO,
    ClientRequest,
    Exchange,
    ExchangeContext,
    ExchangeResult,
    LineLog,
    Observer,
    PluginContext,
    presented_key,
)

__all__ = ["AccessLog"]

_PRODUCT: Final = re.compile(
    r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}(/[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64})?"
)
_FINGERPRINT: Final = 8
_MOST_AGENTS: Final = 256
_LONGEST_AGENT: Final = 512
"""So many headers ``User-Agent``, of so many characters, are remembered with what is shown of them.
"""


class AccessLog(Observer):
    """Writes the access line when an exchange is over."""

    name = "access_log"

    def __init__(self, context: PluginContext | None = None) -> None:
        self._log = LineLog("access", "request")
        self._agents: dict[str, str | None] = {}

    async def start(self) -> None:
        """See ``Plugin.start``."""
        self._log = LineLog("access", "request")  # by now it is said where that goes

    async def stop(self) -> None:
        """See ``Plugin.stop``."""
        self._log.flush()

    def ended(self, exchange: Exchange) -> None:
        """See ``Observer.ended``."""
        request, context, result = exchange.request, exchange.context, exchange.result
        self._log.write(
            partial(self._fields, request, context, result, exchange.model, exchange.stream)
        )

    def _fields(
        self,
        request: ClientRequest,
        context: ExchangeContext,
        result: ExchangeResult,
        model: str | None,
        stream: bool,
    ) -> dict[str, object]:
        """Durations are in milliseconds; tokens and cost are those of all attempts, cost only where
        the price of each is known.
        """
        started, outcome = request.started, result.outcome
        fields: dict[str, object] = {"request_id": request.id}
        self._tell_who(request, context, result, fields)
        fields["method"] = request.method
        fields["route"] = request.route
        fields["status"] = result.status
        fields["outcome"] = None if outcome is None else outcome._value_
        fields["ms"] = round(((result.finished or started) - started) * 1000, 1)
        if request.path is not None:
            fields["path"] = request.path
        if model is not None:
            fields["model"] = model[:200]
            fields["endpoint"] = result.endpoint
            fields["attempts"] = result.attempts
            fields["stream"] = stream
        if result.cache is not None:
            fields["cache"] = result.cache
        if result.first_output is not None:
            fields["first_output_ms"] = round((result.first_output - started) * 1000, 1)
        if (spent := result.spent) is not None:
            tokens = spent.tokens
            fields["input_tokens"], fields["cached_tokens"] = tokens.input, tokens.cached
            fields["output_tokens"], fields["reasoning_tokens"] = tokens.output, tokens.reasoning
            if not spent.unpriced:
                fields["cost_usd"] = spent.cost / NANO
        if result.error_code is not None:
            fields["error"] = result.error_code
        if result.limit is not None:
            fields["limit"] = result.limit
        return fields

    def _tell_who(
        self,
        request: ClientRequest,
        context: ExchangeContext,
        result: ExchangeResult,
        fields: dict[str, object],
    ) -> None:
        """Who asked: the caller, or of a key that was refused a fingerprint, with which those who
        know the key can find it: the beginning of its SHA-256. The address is the connection's own.
        """
        refused = result.status == 401 and context.key is None and not result.attempts
        if not refused:
            fields["caller"] = context.caller
        fields["client"] = request.remote
        given = request.headers.get("User-Agent", "")
        agent = self._agents[given] if given in self._agents else self._agent(given)
        if agent is not None:
            fields["agent"] = agent
        if refused and (key := presented_key(request.headers)) is not None:
            digest = hashlib.sha256(key.encode("utf-8", "surrogateescape"))
            fields["refused_key"] = digest.hexdigest()[:_FINGERPRINT]

    def _agent(self, given: str) -> str | None:
        """What is shown of this header, remembered."""
        found = _PRODUCT.match(given)
        agent = None if found is None else found[0]
        if len(self._agents) >= _MOST_AGENTS:
            self._agents.clear()
        if len(given) <= _LONGEST_AGENT:
            self._agents[given] = agent
        return agent
