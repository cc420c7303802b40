"""Requests that were answered without an endpoint before, by the bytes of their bodies.

What is asked again in the very same bytes need not be read, checked and understood again. A handler
whose requests say everything in their bodies reads them by ``recalled``; the interceptor that
answers them (the response cache) has them remembered, with what it knows of each. Whether a request
may be answered, and by what, is looked at each time all the same: only what follows from the bytes,
the key and the configuration is remembered. Every plugin chain has its own, so that nothing
outlives the configuration under which it was worked out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from router.core.key import Key

if TYPE_CHECKING:
    from router.core.exchange import Exchange

__all__ = ["KnownRequest", "KnownRequests", "recalled"]

_LONGEST: Final = 16 * 1024
"""Bytes of a body; what is longer takes long to compare, and seldom comes again."""

_MAX_BYTES: Final = 32 * 1024 * 1024
_READ: Final = 8
"""What was read of a body takes about so many times its bytes."""

Place = tuple[str, str, bytes]


@dataclass(slots=True, eq=False, repr=False)
class KnownRequest:
    """One request by its ``place``: route, caller and body.

    ``key`` is the caller's. ``notes`` are what the interceptor keeps that had it remembered,
    ``body`` and ``dropped`` what was read of it, of which nothing may be changed; None where it is
    not remembered.
    """

    place: Place
    key: Key | None
    notes: object = None
    body: dict[str, Any] | None = None
    dropped: tuple[str, ...] = ()
    size: int = 0


class KnownRequests:
    """The requests that are remembered, the least recently asked first. They take up ``max_bytes``
    at most, about.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self.bytes = 0
        self._max_bytes = max_bytes
        self._known: OrderedDict[Place, KnownRequest] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, place: Place, key: Key | None) -> KnownRequest:
        """What is remembered of a request; else what it would be remembered by."""
        known = self._known.get(place)
        if known is None or (known.key is not key and known.key != key):
            return KnownRequest(place, key)
        self._known.move_to_end(place)
        return known

    def keep(self, exchange: Exchange, notes: object, size: int) -> None:
        """Remember the request of an exchange, where it can be. ``size``: bytes in ``notes``."""
        asked = exchange.known
        if asked is None:
            return
        size += _READ * len(asked.place[2])
        if size > self._max_bytes:
            return
        self.forget(asked.place)
        self._known[asked.place] = KnownRequest(
            asked.place, asked.key, notes, exchange.body, exchange.dropped, size
        )
        self.bytes += size
        while self.bytes > self._max_bytes:
            self.forget(next(iter(self._known)))

    def forget(self, place: Place) -> None:
        """Remember it no longer."""
        known = self._known.pop(place, None)
        if known is not None:
            self.bytes -= known.size


def recalled(
    exchange: Exchange, decode: Callable[[bytes], dict[str, Any]], raw: bytes
) -> dict[str, Any]:
    """The body that ``raw`` is, as it was read before or else by ``decode``."""
    requests = exchange.context.plugin_set.chain.known
    if requests is None or len(raw) > _LONGEST:
        return decode(raw)
    context = exchange.context
    known = requests.find((exchange.request.route, context.caller, raw), context.key)
    exchange.known = known
    return decode(raw) if known.body is None else known.body
