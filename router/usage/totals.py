"""What a group of rows of the ledger comes to, and how it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from router.core.usage_record import NANO, NO_TOKENS, Tokens

__all__ = ["UsageTotals"]


@dataclass(slots=True)
class UsageTotals:
    """The sums of a group of rows; ``group`` are its values by column, ``start`` is where its
    bucket of time begins (Unix time), None without buckets.

    ``requests`` are the groups' first attempts and ``hits``, its answers from the cache: a request
    is counted once, where it went first. ``attempts`` are all but hits. Tokens are apart by who
    says so; ``saved`` are those of hits. ``cost`` and ``saved_cost`` are in nano-USD; ``priced``
    attempts have a price, ``unpriced`` ones used tokens and have none.
    """

    group: Mapping[str, str] = field(default_factory=dict)
    start: int | None = None
    requests: int = 0
    attempts: int = 0
    hits: int = 0
    reported: Tokens = NO_TOKENS
    estimated: Tokens = NO_TOKENS
    saved: Tokens = NO_TOKENS
    cost: int = 0
    saved_cost: int = 0
    priced: int = 0
    unpriced: int = 0

    @property
    def tokens(self) -> Tokens:
        """What was used, whoever says so."""
        return _sum(self.reported, self.estimated)

    @property
    def cost_usd(self) -> float | None:
        """What it cost, in USD, as far as prices are known; None where none is."""
        return None if self.unpriced and not self.priced else self.cost / NANO

    @property
    def saved_usd(self) -> float:
        """What answers from the cache would have cost, in USD, as far as prices are known."""
        return self.saved_cost / NANO

    def add(self, other: UsageTotals) -> None:
        """Count what another group comes to as well."""
        self.requests += other.requests
        self.attempts += other.attempts
        self.hits += other.hits
        self.reported = _sum(self.reported, other.reported)
        self.estimated = _sum(self.estimated, other.estimated)
        self.saved = _sum(self.saved, other.saved)
        self.cost += other.cost
        self.saved_cost += other.saved_cost
        self.priced += other.priced
        self.unpriced += other.unpriced

    def shown(self) -> dict[str, Any]:
        """As a JSON object."""
        start = {} if self.start is None else {"start": self.start}
        return {
            **start,
            **self.group,
            "requests": self.requests,
            "attempts": self.attempts,
            "hits": self.hits,
            "tokens": {
                **self.tokens._asdict(),
                "reported": self.reported._asdict(),
                "estimated": self.estimated._asdict(),
            },
            "cost_usd": self.cost_usd,
            "unpriced": self.unpriced,
            "saved_tokens": self.saved._asdict(),
            "saved_usd": self.saved_usd,
        }


def _sum(one: Tokens, other: Tokens) -> Tokens:
    return Tokens(*[a + b for a, b in zip(one, other, strict=True)])
