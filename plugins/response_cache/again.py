"""Hits that come again and again: the answer as it was told, with places for what has to be new.

A request that was answered from the exact tier is remembered (``Exchange.known``) as a
``KnownHit``: its key in the cache, and a ``Template`` of what its client was sent. When it comes
again, in the same bytes, the entry is looked for by that key; while it is the same entry, the
template is filled in with new ids and the time, and told with one write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from cache.controls import Controls
from cache.request import CacheKeys
from plugins.response_cache.surfaces import Rendering
from router.plugin import REASONING_DROPPED, Exchange, Frame, Sink, Tokens, client_headers

__all__ = ["Hit", "KnownHit", "Template", "known_hit"]

_LARGEST: Final = 64 * 1024
"""Bytes of an answer that is kept as it was told."""

_MOST_EVENTS: Final = 256
_MOST_IDS: Final = 200
_MARK: Final = b"\0"
"""Stands before the number of a place; JSON cannot have it."""


class _WholeStream(Frame):
    """All events of a stream at once: ``data`` is how they stand on the wire."""

    __slots__ = ()

    def __init__(self, data: bytes) -> None:
        super().__init__("", data)

    def encode(self) -> bytes:
        """See ``Frame.encode``."""
        return self.data


class Template:
    """What a client was told, with places for the ids and the time of another answer."""

    __slots__ = ("_form", "_of_places", "_renew")

    def __init__(
        self,
        form: bytes,
        of_places: Callable[[list[bytes]], tuple[bytes, ...]],
        renew: Callable[[], list[str]],
    ) -> None:
        self._form = form
        self._of_places = of_places
        self._renew = renew

    @classmethod
    def of(cls, told: bytes | list[Frame], rendering: Rendering) -> Template | None:
        """That of what this rendering has told; None where it cannot be told again like this."""
        ids = rendering.ids
        if isinstance(told, list):
            if len(told) > _MOST_EVENTS:
                return None
            told = b"".join([frame.encode() for frame in told])
        if len(told) > _LARGEST or len(ids) > _MOST_IDS or _MARK in told:
            return None
        changes = [(ident.encode(), b"\0%c" % place) for place, ident in enumerate(ids, 1)]
        for name, at in rendering.times.items():
            field = b'"%b":' % name.encode()
            changes.append((b"%b%d" % (field, at), b"%b\0%c" % (field, len(ids) + 1)))
        text = told.replace(b"%", b"%%")
        for known, mark in changes:
            if known not in text:
                return None
            text = text.replace(known, mark)
        first, *others = text.split(_MARK)
        form = first + b"".join([b"%b" + part[1:] for part in others])
        return cls(form, itemgetter(*[part[0] - 1 for part in others]), rendering.renew())

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self._form)

    def fill(self) -> tuple[bytes, str]:
        """Another answer like it, and its id."""
        ids = self._renew()
        values = [ident.encode() for ident in ids]
        values.append(b"%d" % time.time())
        return self._form % self._of_places(values), ids[0]


@dataclass(frozen=True, slots=True)
class Hit:
    """What a hit came to. ``created`` says which entry it was (Unix time), ``model`` and ``tokens``
    are its answer's; ``headers`` are those of every answer with it, without the age.
    """

    tier: str
    headers: Mapping[str, str]
    created: float
    model: str
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class KnownHit:
    """A request that was a ``hit``. ``cache_control`` is its header, which its ``controls`` are of.
    ``nameless``: its answer is no Response, whose id the ledger has.
    """

    cache_control: str | None
    controls: Controls
    keys: CacheKeys
    hit: Hit
    template: Template
    nameless: bool

    def tell(self, exchange: Exchange, sink: Sink, told: bytes) -> None:
        """Send what ``template`` was filled in to."""
        headers = client_headers(exchange, {})
        if not exchange.stream:
            sink.finish(200, told, headers)
            return
        sink.open(headers)
        exchange.context.plugin_set.chain.first_output(exchange)
        sink.feed((_WholeStream(told),))
        sink.end()


def known_hit(exchange: Exchange) -> KnownHit | None:
    """What is known of the request of an exchange; None where that does not hold for it."""
    known = exchange.known
    if known is None or not isinstance(known.notes, KnownHit) or exchange.record is not None:
        return None
    hit = known.notes
    if exchange.request.headers.get("Cache-Control") != hit.cache_control:
        return None
    return None if REASONING_DROPPED in exchange.result.headers else hit
