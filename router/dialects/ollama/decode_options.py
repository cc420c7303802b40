"""Ollama's ``options``: those of the sampler are passed on, those of the runner are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.dialects.checks import Check, decimal, object_, strings, wrong_type
from router.dialects.ollama.schema import OPTIONS, WHOLE_OPTIONS

__all__ = ["read_options"]

_LARGEST: Final = 2**63 - 1


def _number(value: Any, param: str) -> None:
    if type(value) is not int and type(value) is not float:
        raise wrong_type(param, "a number", value)


def _stop(value: Any, param: str) -> None:
    if type(value) is not str:
        strings(value, param)


_CHECKS: Final[Mapping[str, Check]] = {
    **dict.fromkeys(OPTIONS, _number),
    "temperature": decimal(0, 2),
    "top_p": decimal(0, 1),
    "stop": _stop,
}


def read_options(options: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of a Responses request for them, and the names of those that are left out.

    Options of the runner (``num_ctx``, ``num_gpu`` …) load the model anew for everybody: they are
    the configuration's. Raises InvalidRequest.
    """
    if options is None:
        return {}, ()
    object_(options, "options")
    fields: dict[str, Any] = {}
    unsent = []
    for name, value in options.items():
        param = f"options.{name}"
        if value is None:
            continue
        if name in WHOLE_OPTIONS:
            fields[name] = _integer(value, param)
        elif (check := _CHECKS.get(name)) is not None:
            check(value, param)
            fields[name] = value
        else:
            unsent.append(param)
    limit = fields.pop("num_predict", None)
    if limit is not None and limit > 0:  # else as much as the model wants, or its context holds
        fields["max_output_tokens"] = limit
    if type(fields.get("stop")) is str:
        fields["stop"] = [fields["stop"]]
    if not fields.get("stop"):
        fields.pop("stop", None)
    return fields, tuple(unsent)


def _integer(value: Any, param: str) -> int:
    """A whole number; as with Ollama it may be written as 40.0."""
    if type(value) is float and value.is_integer() and abs(value) <= _LARGEST:
        return int(value)
    if type(value) is not int:
        raise wrong_type(param, "an integer", value)
    return value
