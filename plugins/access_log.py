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
        finished = exchange.finished or exchange.started
        fields: dict[str, object] = {
            "request_id": exchange.id,
            **_who(exchange),
            "method": exchange.method,
            "route": exchange.route,
            "status": exchange.status,
            "outcome": exchange.outcome.value if exchange.outcome else None,
            "ms": round((finished - exchange.started) * 1000, 1),
        }
        if exchange.path is not None:
            fields["path"] = exchange.path
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


def _who(exchange: Exchange) -> dict[str, object]:
    """Who asked: the caller, or of a key that was refused a fingerprint, with which those who know
    the key can find it: the beginning of its SHA-256. The address is the connection's own.
    """
    who: dict[str, object] = {"client": exchange.remote}
    agent = _PRODUCT.match(exchange.headers.get("User-Agent", ""))
    if agent is not None:
        who["agent"] = agent[0]
    if exchange.status != 401 or exchange.key is not None or exchange.attempts:
        return {"caller": exchange.caller, **who}
    if (key := presented_key(exchange.headers)) is not None:
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape"))
        who["refused_key"] = digest.hexdigest()[:_FINGERPRINT]
    return who
