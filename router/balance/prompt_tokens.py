"""How many tokens a model makes of a prompt, learned from what it reports. Pure.

Two things differ from model to model: how much text makes a token, and what the template adds to
every prompt, such as a system prompt of its own. So the estimate is ``slope × known share +
fixed``, and both are corrected by each report (normalised least mean squares: Widrow and Hoff): a
short prompt says more of the fixed part, a long one of the slope.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PromptTokens"]

_SLOPES: Final = (0.5, 4.0)
_FIXED: Final = (0.0, 2048.0)
"""Bounds: a report that is nonsense does no lasting harm."""

_OPENING: Final = 4.0
"""What a template adds at least: the beginning of the prompt and of the answer."""

_EVEN: Final = 64.0
"""The share, in tokens, at which a report says as much of the one as of the other."""

_STEP: Final = 0.5
_FIRST: Final = 16
_EVERY: Final = 8


class PromptTokens:
    """What one model at one endpoint has reported. ``reports`` counts those that were learned."""

    __slots__ = ("_fixed", "_skipped", "_slope", "reports")

    def __init__(self) -> None:
        self._slope = 1.0
        self._fixed = _OPENING
        self._skipped = 0
        self.reports = 0

    def estimate(self, share: int) -> int:
        """The tokens of a prompt that by the general rule is ``share`` tokens, without what every
        prompt has.
        """
        return max(1, round(self._slope * share + self._fixed))

    def due(self) -> bool:
        """Whether the next report is worth learning: the first ones, then one in so many."""
        if self.reports < _FIRST:
            return True
        self._skipped = (self._skipped + 1) % _EVERY
        return not self._skipped

    def learn(self, share: int, reported: int) -> None:
        """The model made ``reported`` tokens of such a prompt."""
        error = reported - (self._slope * share + self._fixed)
        error *= 1.0 if self.reports == 0 else _STEP
        weight = share * share + _EVEN * _EVEN
        self._slope = _within(_SLOPES, self._slope + error * share / weight)
        self._fixed = _within(_FIXED, self._fixed + error * _EVEN * _EVEN / weight)
        self.reports += 1


def _within(bounds: tuple[float, float], value: float) -> float:
    return min(max(value, bounds[0]), bounds[1])
