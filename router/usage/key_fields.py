"""What a key may do, as it is in JSON: no type is taken for another.

``KeySpec`` is lenient about types, since settings may come from environment variables, which are
text. What it says of values holds here, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from router.dialects.parameters import (
    Check,
    array,
    missing,
    object_,
    string,
    strings,
    wrong_type,
)
from router.errors import InvalidRequest

__all__ = ["check_fields", "path_of", "unknown"]

_SHOWN: Final = 200


def path_of(steps: Sequence[int | str]) -> str:
    """``("budgets", 0, "usd")`` as ``budgets[0].usd``, shortened."""
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path[:_SHOWN]


def unknown(param: str) -> InvalidRequest:
    """The error for a field that a key does not have."""
    shown = param[:_SHOWN]
    return InvalidRequest(f"Unknown parameter: '{shown}'.", code="unknown_parameter", param=shown)


def check_fields(fields: Mapping[str, Any]) -> None:
    """Raises InvalidRequest for an unknown field, and for a value of another JSON type.

    A null is a field that is left out, and in a change one that is taken back.
    """
    _check_members(_FIELDS, fields, "")


def _check_members(checks: Mapping[str, Check], members: Mapping[str, Any], above: str) -> None:
    for name, value in members.items():
        param = f"{above}{name}"[:_SHOWN]
        if name not in checks:
            raise unknown(param)
        if value is not None:
            checks[name](value, param)


def _count(value: Any, param: str) -> None:
    if type(value) is not int:
        raise wrong_type(param, "an integer", value)


def _money(value: Any, param: str) -> None:
    if type(value) is not int and type(value) is not float:
        raise wrong_type(param, "a number", value)


def _limits(value: Any, param: str) -> None:
    object_(value, param)
    _check_members(_LIMITS, value, f"{param}.")


def _model_limits(value: Any, param: str) -> None:
    object_(value, param)
    for pattern, limits in value.items():
        if limits is not None:
            _limits(limits, f"{param}.{pattern}"[:_SHOWN])


def _budgets(value: Any, param: str) -> None:
    array(value, param)
    for index, budget in enumerate(value):
        where = f"{param}[{index}]"
        object_(budget, where)
        _check_members(_BUDGET, budget, f"{where}.")
        if budget.get("period") is None:
            raise missing(f"{where}.period")


_LIMITS: Final[Mapping[str, Check]] = {
    "requests_per_minute": _count,
    "tokens_per_minute": _count,
    "concurrent": _count,
}
_BUDGET: Final[Mapping[str, Check]] = {"period": string, "usd": _money, "tokens": _count}
_FIELDS: Final[Mapping[str, Check]] = {
    "models": strings,
    "endpoints": strings,
    "tools": strings,
    "default_model": string,
    "expires": string,
    "tags": strings,
    "priority": _count,
    "budgets": _budgets,
    "limits": _limits,
    "model_limits": _model_limits,
}
