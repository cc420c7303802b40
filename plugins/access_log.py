"""One line per request. No prompt, answer or key is in it."""

from __future__ import annotations

from router.accounts.row import NANO
from router.exchange import Exchange
from router.plugin import Observer
from router.telemetry.log import get_logger

__all__ = ["AccessLog"]

_log = get_logger("access")


class AccessLog(Observer):
    """Writes the access line when an exchange is over."""

    name = "access_log"

    def __init__(self) -> None:
        self._log = _log

    async def start(self) -> None:
        """See ``Plugin.start``."""
        # Bound once: unbound, it would be made anew for every line.
        self._log = _log.bind()

    def ended(self, exchange: Exchange) -> None:
        """See ``Observer.ended``. Durations are in milliseconds; tokens and cost are those of all
        attempts, cost only where the price of each is known.
        """
        finished = exchange.finished or exchange.started
        fields: dict[str, object] = {
            "request_id": exchange.id,
            "caller": exchange.caller,
            "method": exchange.method,
            "route": exchange.route,
            "status": exchange.status,
            "outcome": exchange.outcome.value if exchange.outcome else None,
            "ms": round((finished - exchange.started) * 1000, 1),
        }
        if exchange.model is not None:
            fields["model"] = exchange.model[:200]
            fields["endpoint"] = exchange.endpoint
            fields["attempts"] = exchange.attempts
            fields["stream"] = exchange.stream
        if exchange.cache is not None:
            fields["cache"] = exchange.cache
        if exchange.first_output is not None:
            fields["first_output_ms"] = round((exchange.first_output - exchange.started) * 1000, 1)
        if (spent := exchange.spent) is not None:
            tokens = spent.tokens
            fields["input_tokens"], fields["cached_tokens"] = tokens.input, tokens.cached
            fields["output_tokens"], fields["reasoning_tokens"] = tokens.output, tokens.reasoning
            if not spent.unpriced:
                fields["cost_usd"] = spent.cost / NANO
        if exchange.error_code is not None:
            fields["error"] = exchange.error_code
        if exchange.limit is not None:
            fields["limit"] = exchange.limit
        self._log.info("request", **fields)
