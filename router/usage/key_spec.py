"""What a virtual key may do: from JSON, into the database, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from pydantic import ValidationError

from router.core.key import Key, budgets_of, limits_of, model_limits_of
from router.core.usage_record import NANO
from router.errors import InvalidRequest
from router.settings.accounts import KeySpec, repeated_in, unknown_endpoints
from router.settings.words import in_words
from router.usage.key_fields import check_fields, path_of, unknown

__all__ = [
    "changed_spec", "key_from", "load_spec", "merged", "parse_spec", "shown_spec", "stored_spec",
]  # fmt: skip

_MOST_BYTES: Final = 8 * 1024
_MOST: Final = 2**53
"""Up to here numbers are the same in JSON, Redis and databases; as nano-USD it is 9 million USD."""

_DEPTH: Final = 3
_SHOWN: Final = 200


def parse_spec(fields: Mapping[str, Any], endpoints: Sequence[str] | None = None) -> KeySpec:
    """The spec with these fields, as they are in JSON; raises InvalidRequest with the field.

    ``endpoints`` are the names of those that there are; None where they are not known.
    """
    return changed_spec(KeySpec(), fields, endpoints)


def changed_spec(
    spec: KeySpec, changes: Mapping[str, Any], endpoints: Sequence[str] | None = None
) -> KeySpec:
    """The spec with these fields changed, as ``merged``; raises InvalidRequest with the field.

    Endpoints that the spec has already need not be there any more.
    """
    check_fields(changes)
    try:
        new = KeySpec.model_validate(merged(spec, changes))
    except ValidationError as exc:
        fault = exc.errors(include_input=False, include_url=False)[0]
        param = path_of([step for step in fault["loc"] if step != "[key]"])
        if fault["type"] == "extra_forbidden":
            raise unknown(param) from None
        raise _invalid(param, in_words(fault)) from None
    faults = [*repeated_in(new)]
    if endpoints is not None and "endpoints" in changes:
        faults += unknown_endpoints(new.endpoints or (), endpoints)
    for place, message in faults:
        raise _invalid(path_of(place), message)
    _check_size(new)
    return new


def _invalid(param: str, what: str) -> InvalidRequest:
    return InvalidRequest(
        f"Invalid '{param}': {what}.", code="invalid_value", param=param[:_SHOWN] or None
    )


def _check_size(spec: KeySpec) -> None:
    numbers: dict[str, float] = {"priority": spec.priority}
    for index, budget in enumerate(spec.budgets):
        numbers[f"budgets[{index}]"] = (budget.usd or 0.0) * NANO + (budget.tokens or 0)
    numbers |= {f"limits.{field}": number or 0 for field, number in spec.limits}
    for pattern, limits in spec.model_limits.items():
        numbers |= {f"model_limits.{pattern}.{field}": number or 0 for field, number in limits}
    for param, number in numbers.items():
        if number > _MOST:
            raise _too_large(param)
    data = stored_spec(spec)
    if len(data) > _MOST_BYTES:
        raise InvalidRequest(
            f"The key's fields take more than {_MOST_BYTES // 1024} KiB; use patterns.",
            code="invalid_value",
        )
    if load_spec(data, _seconds(spec)) is None:
        raise _too_large("expires")


def _too_large(param: str) -> InvalidRequest:
    return _invalid(param[:_SHOWN], "is too large")


def _seconds(spec: KeySpec) -> float | None:
    return spec.expires.timestamp() if spec.expires is not None else None


def stored_spec(spec: KeySpec) -> bytes:
    """JSON of what is not the default, without ``expires``, which has a column of its own."""
    fields = spec.model_dump(mode="json", exclude={"expires"}, exclude_defaults=True)
    return orjson.dumps(fields)


def load_spec(data: bytes, expires: float | None) -> KeySpec | None:
    """What ``stored_spec`` made; None where another version made what this one cannot read."""
    try:
        fields = orjson.loads(data)
        if expires is not None:
            fields["expires"] = datetime.fromtimestamp(expires, UTC)
        return KeySpec.model_validate(fields)
    except (ValidationError, ValueError, TypeError, OverflowError, OSError):
        return None


def shown_spec(spec: KeySpec) -> dict[str, Any]:
    """The fields as they are given in JSON, all but those that are not set within a limit."""
    fields = set(KeySpec.model_fields)
    return spec.model_dump(mode="json", include=fields, exclude_none=True) | {
        "models": spec.models,
        "endpoints": spec.endpoints,
        "tools": spec.tools,
        "default_model": spec.default_model,
        "expires": spec.expires.isoformat() if spec.expires is not None else None,
    }


def merged(spec: KeySpec, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ``spec`` with these changes (RFC 7396: objects are merged, null removes)."""
    return _merged(spec.model_dump(exclude_defaults=True), changes, _DEPTH)


def _merged(old: Mapping[str, Any], changes: Mapping[str, Any], depth: int) -> dict[str, Any]:
    new = dict(old)
    for name, value in changes.items():
        if value is None:
            new.pop(name, None)
        elif type(value) is dict and depth > 1:
            before = new.get(name)
            new[name] = _merged(before if type(before) is dict else {}, value, depth - 1)
        else:
            new[name] = value
    return new


def key_from(name: str, spec: KeySpec) -> Key:
    """The key of this name that may do this; a virtual one."""
    return Key(
        name=name,
        models=spec.models,
        endpoints=spec.endpoints,
        expires=_seconds(spec),
        tags=spec.tags,
        priority=spec.priority,
        budgets=budgets_of(spec.budgets),
        limits=limits_of(spec.limits),
        model_limits=model_limits_of(spec.model_limits),
        virtual=True,
        tools=spec.tools,
        default_model=spec.default_model,
    )
