"""How often the semantic tier is wrong, estimated from answers that were also asked for anew.

The tier is switched off for a namespace by evidence, not by suspicion: as soon as even the lower
end of the 95 % interval of its rate of wrong hits is above the limit, so that one unlucky
comparison does not do it (the first one alone would give a lower end of 21 %: hence the minimum).
With a limit of 3 % it takes 3 of the first 20, or 11 of 200.

An interval that is looked at again after every comparison is crossed by chance more often than
one looked at once. The error is on the safe side: a good namespace is switched off now and then.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

__all__ = ["WINDOW", "Rate", "SelfCheck", "SelfCheckReport", "wilson"]

WINDOW: Final = 200
"""So many comparisons of a namespace count: the last ones."""

_Z: Final = 1.959964
"""Standard deviations of a two-sided interval of 95 %."""


@dataclass(frozen=True, slots=True)
class Rate:
    """An estimated share of wrong hits and its 95 % interval; without comparisons 0, and all of
    0 to 1.
    """

    compared: int
    wrong: int
    rate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class SelfCheckReport:
    """``overall`` counts every comparison since the start. ``namespaces`` are those that are
    known, ``off`` those for which the tier is off.
    """

    overall: Rate
    namespaces: dict[str, Rate]
    off: tuple[str, ...]


class _Comparisons:
    """The last comparisons of one namespace, a bit each: 1 is a wrong hit."""

    __slots__ = ("bits", "compared", "off")

    def __init__(self) -> None:
        self.bits = 0
        self.compared = 0
        self.off = False

    def record(self, agreed: bool) -> None:
        self.bits = (self.bits << 1 | (not agreed)) & ((1 << WINDOW) - 1)
        self.compared = min(self.compared + 1, WINDOW)

    def rate(self) -> Rate:
        return wilson(self.bits.bit_count(), self.compared)


class SelfCheck:
    """Pure: it is told of comparisons and says where the tier is off. ``limit`` is the share of
    wrong hits that is tolerated, ``minimum`` how many comparisons a verdict takes.
    """

    def __init__(self, *, limit: float, minimum: int = 20, max_namespaces: int = 1000) -> None:
        self.limit = limit
        self._minimum = minimum
        self._max_namespaces = max_namespaces
        self._ledgers: OrderedDict[str, _Comparisons] = OrderedDict()
        self._compared = 0
        self._wrong = 0

    def record(self, namespace: str, agreed: bool) -> bool:
        """Note a comparison; True when it switches the tier off for this namespace.

        Comparisons may go on while it is off. After a whole window of them it is on again if no
        more of them were wrong than the limit allows.
        """
        self._compared += 1
        self._wrong += not agreed
        ledger = self._ledgers.get(namespace)
        if ledger is None:
            ledger = self._ledgers[namespace] = _Comparisons()
            self._forget(namespace)
        self._ledgers.move_to_end(namespace)
        ledger.record(agreed)
        rate = ledger.rate()
        if ledger.off:
            ledger.off = rate.compared < WINDOW or rate.rate > self.limit
        elif rate.compared >= self._minimum and rate.low > self.limit:
            self._ledgers[namespace] = ledger = _Comparisons()
            ledger.off = True
            return True
        return False

    def is_off(self, namespace: str) -> bool:
        """Whether the tier is off for this namespace."""
        ledger = self._ledgers.get(namespace)
        return ledger is not None and ledger.off

    def forgive(self, namespace: str) -> bool:
        """Forget what was found out about a namespace; True if the tier was off for it."""
        ledger = self._ledgers.pop(namespace, None)
        return ledger is not None and ledger.off

    def rate(self, namespace: str) -> Rate:
        """What is known of one namespace; of one that is off, since it was switched off."""
        ledger = self._ledgers.get(namespace)
        return wilson(0, 0) if ledger is None else ledger.rate()

    def report(self) -> SelfCheckReport:
        """All there is to tell."""
        return SelfCheckReport(
            overall=wilson(self._wrong, self._compared),
            namespaces={name: ledger.rate() for name, ledger in self._ledgers.items()},
            off=tuple(name for name, ledger in self._ledgers.items() if ledger.off),
        )

    def _forget(self, newcomer: str) -> None:
        """Stay within the bound: the longest unheard of goes, one that is off only if all are."""
        if len(self._ledgers) <= self._max_namespaces:
            return
        others = [name for name in self._ledgers if name != newcomer]
        on = (name for name in others if not self._ledgers[name].off)
        del self._ledgers[next(on, others[0])]


def wilson(wrong: int, compared: int) -> Rate:
    """The share of ``wrong`` among ``compared``, with Wilson's interval."""
    if not compared:
        return Rate(0, 0, 0.0, 0.0, 1.0)
    rate, square = wrong / compared, _Z * _Z
    middle = (rate + square / (2 * compared)) / (1 + square / compared)
    spread = rate * (1 - rate) / compared + square / (4 * compared * compared)
    half = _Z * math.sqrt(spread) / (1 + square / compared)
    return Rate(compared, wrong, rate, max(0.0, middle - half), min(1.0, middle + half))
