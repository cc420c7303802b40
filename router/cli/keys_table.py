"""``pointsman keys list``: the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from router.cli.terminal import aligned, printable

__all__ = ["table"]

_HEAD: Final = (
    "name", "source", "state", "secret", "expires", "models", "tags", "limits", "budgets",
)  # fmt: skip
_WIDEST: Final = 40
_LIMITS: Final = {
    "requests_per_minute": "/min", "tokens_per_minute": " tok/min", "concurrent": " at once"
}  # fmt: skip
_UNITS: Final = ((10**9, "G"), (10**6, "M"), (10**3, "k"))


def table(keys: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each key, as ``router.usage.keys_json`` has them, below a head."""
    return aligned([_HEAD, *map(_row, keys)])


def _row(key: Mapping[str, Any]) -> tuple[str, ...]:
    limits = [_limits(key.get("limits") or {})]
    for pattern, within in (key.get("model_limits") or {}).items():
        limits.append(f"{pattern}: {_limits(within)}" if within else "")
    cells = (
        key["source"],
        key["state"],
        key.get("hint", "-"),
        (key.get("expires") or "never")[:16],
        _cut(",".join(key.get("models") or ("all",))),
        _cut(",".join(key.get("tags") or ("-",))),
        _cut("; ".join(filter(None, limits)) or "-"),
        _cut(" ".join(map(_budget, key.get("budgets") or ())) or "-"),
    )
    return tuple(map(printable, (key["name"], *cells)))


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."


def _limits(limits: Mapping[str, int]) -> str:
    """``60/min 100k tok/min 4 at once``."""
    return " ".join(f"{_short(limits[f])}{unit}" for f, unit in _LIMITS.items() if f in limits)


def _budget(budget: Mapping[str, Any]) -> str:
    """``$5/day`` or ``2M tok/month``."""
    if "usd" not in budget:
        return f"{_short(budget['tokens'])} tok/{budget['period']}"
    whole, _, decimals = f"{budget['usd']:.9f}".partition(".")
    decimals = decimals.rstrip("0")
    return f"${whole}{f'.{decimals:0<2}' if decimals else ''}/{budget['period']}"


def _short(number: int) -> str:
    """``100k`` for 100000; never rounded."""
    for size, unit in _UNITS:
        if number >= size and number % (size // 10) == 0:
            whole, tenths = divmod(number // (size // 10), 10)
            return f"{whole}{f'.{tenths}' if tenths else ''}{unit}"
    return str(number)
