"""One line per request. No prompt, answer or key is in it."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from router.plugin import NANO, Exchange, Observer, PluginContext, get_logger, presented_key

__all__ = ["AccessLog"]

_log = get_logger("access")
_PRODUCT: Final = re.compile(
    r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}(/[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64})?"
)
_FINGERPRINT: Final = 8


class AccessLog(Observer):
    """Writes the access line when an exchange is over."""

    name = "access_log"

    def __init__(self, context: PluginContext | None = None) -> None:
        self._log = _log

    async def start(self) -> None:
        """See ``Plugin.start``."""
        # Bound once: unbound, it would be made anew for every line.
        self._log = _log.bind()

    def ended(self, exchange: Exchange) -> None:
        """See ``Observer.ended``. Durations are in milliseconds; tokens and cost are those of all
        attempts, cost only where the price of each is known.
        """
        finished = exchange.result.finished or exchange.request.started
        fields: dict[str, object] = {
            "request_id": exchange.request.id,
            **_who(exchange),
            "method": exchange.request.method,
            "route": exchange.request.route,
            "status": exchange.result.status,
            "outcome": exchange.result.outcome.value if exchange.result.outcome else None,
            "ms": round((finished - exchange.request.started) * 1000, 1),
        }
        if exchange.request.path is not None:
            fields["path"] = exchange.request.path
        if exchange.model is not None:
            fields["model"] = exchange.model[:200]
            fields["endpoint"] = exchange.result.endpoint
            fields["attempts"] = exchange.result.attempts
            fields["stream"] = exchange.stream
        if exchange.result.cache is not None:
            fields["cache"] = exchange.result.cache
        if exchange.result.first_output is not None:
            fields["first_output_ms"] = round(
                (exchange.result.first_output - exchange.request.started) * 1000, 1
            )
        if (spent := exchange.result.spent) is not None:
            tokens = spent.tokens
            fields["input_tokens"], fields["cached_tokens"] = tokens.input, tokens.cached
            fields["output_tokens"], fields["reasoning_tokens"] = tokens.output, tokens.reasoning
            if not spent.unpriced:
                fields["cost_usd"] = spent.cost / NANO
        if exchange.result.error_code is not None:
            fields["error"] = exchange.result.error_code
        if exchange.result.limit is not None:
            fields["limit"] = exchange.result.limit
        self._log.info("request", **fields)


def _who(exchange: Exchange) -> dict[str, object]:
    """Who asked: the caller, or of a key that was refused a fingerprint, with which those who know
    the key can find it: the beginning of its SHA-256. The address is the connection's own.
    """
    who: dict[str, object] = {"client": exchange.request.remote}
    agent = _PRODUCT.match(exchange.request.headers.get("User-Agent", ""))
    if agent is not None:
        who["agent"] = agent[0]
    if (
        exchange.result.status != 401
        or exchange.context.key is not None
        or exchange.result.attempts
    ):
        return {"caller": exchange.context.caller, **who}
    if (key := presented_key(exchange.request.headers)) is not None:
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape"))
        who["refused_key"] = digest.hexdigest()[:_FINGERPRINT]
    return who
