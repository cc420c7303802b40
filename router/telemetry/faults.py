"""Whose fault it is when an exchange does not end well: pure.

caller      the request itself: malformed, unknown names, a wrong key
policy      what the configuration allows: budgets, limits, closed routes
upstream    an endpoint failed, or could not be reached
router      here: a bug, no free slot, the database, shutting down
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from router.core.exchange import Exchange, Outcome
from router.errors import (
    Forbidden,
    InternalError,
    LimitsUnavailable,
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
from router.telemetry.series import OTHER

__all__ = ["CALLER", "POLICY", "ROUTER", "UPSTREAM", "code_of", "fault_of"]

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
    InternalError, LimitsUnavailable, Overloaded, ShuttingDown, StateUnavailable
)
_UPSTREAM: Final = _codes(*_tree(UpstreamError)) | {_SERVER_ERROR}
_CALLER: Final = _codes(NotCached, NotSupported)
_CODES: Final = _codes(*_tree(RouterError)) | {_SERVER_ERROR}


def fault_of(exchange: Exchange) -> str | None:
    """Whose fault it is; None where nobody's: it went well, or its client left.

    Some codes are used for two things: what was sent to an endpoint was refused by the endpoint.
    """
    if exchange.outcome not in (Outcome.REFUSED, Outcome.FAILED):
        return None
    code = exchange.error_code
    if code in _ROUTER:
        return ROUTER
    if code in _CALLER:
        return CALLER
    if code in _UPSTREAM and (exchange.attempts or not _also_ours(code)):
        return UPSTREAM
    if code in _POLICY:
        return POLICY
    if exchange.status >= 500:
        return ROUTER
    return CALLER


def code_of(exchange: Exchange) -> str:
    """The error's code as a label; those that an endpoint made up are ``other``."""
    code = exchange.error_code
    return code if code in _CODES else OTHER


def _also_ours(code: str | None) -> bool:
    """Whether the router refuses with this code too, before it asks anybody."""
    return code in _POLICY or code in _NOT_FOUND


_NOT_FOUND: Final = frozenset({"model_not_found"})
