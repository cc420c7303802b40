"""What a request says of a container: to make one, and in a tool ``code_interpreter``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from router.dialects.parameters import (
    array,
    bad_value,
    bounded_string,
    integer,
    missing,
    object_,
    one_of,
    string,
)
from router.errors import InvalidRequest

__all__ = ["NewContainer", "parse_container", "parse_tool_container"]

_MEMORY: Final = ("1g", "4g", "16g", "64g")
_MOST_FILES: Final = 50
_MOST_MINUTES: Final = 20
_MOST_NAME: Final = 256

_check_memory = one_of(*_MEMORY)
_check_anchor = one_of("last_active_at")
_check_minutes = integer(1, _MOST_MINUTES)
_check_name = bounded_string(_MOST_NAME)


@dataclass(frozen=True, slots=True)
class NewContainer:
    """A container that is to be made; None stands for what the router has for it."""

    name: str = ""
    memory: str | None = None
    minutes: int | None = None
    file_ids: tuple[str, ...] = ()


def parse_container(body: Mapping[str, Any]) -> NewContainer:
    """The body of a request for a new container; raises InvalidRequest."""
    name = body.get("name")
    if name is None:
        raise missing("name")
    _check_name(name, "name")
    if not name.isprintable():
        raise InvalidRequest(
            "Invalid 'name': it has control characters.", code="invalid_value", param="name"
        )
    minutes = None
    if (expiry := body.get("expires_after")) is not None:
        object_(expiry, "expires_after")
        for field, check in (("anchor", _check_anchor), ("minutes", _check_minutes)):
            if expiry.get(field) is None:
                raise missing(f"expires_after.{field}")
            check(expiry[field], f"expires_after.{field}")
        minutes = expiry["minutes"]
    return NewContainer(name, minutes=minutes, **_common(body, ""))


def parse_tool_container(tool: Mapping[str, Any], where: str) -> str | NewContainer:
    """The ``container`` of a tool that stands at ``where``: the id of one, or one to be made.
    Raises InvalidRequest.
    """
    given = tool.get("container")
    if given is None:
        raise missing(f"{where}.container")
    if isinstance(given, str):
        return given
    if not isinstance(given, dict):
        raise InvalidRequest(
            f"Invalid type for '{where}.container': expected the id of a container, or an object.",
            code="invalid_type",
            param=f"{where}.container",
        )
    if given.get("type") != "auto":
        kind = given.get("type")
        if kind is None:
            raise missing(f"{where}.container.type")
        string(kind, f"{where}.container.type")
        raise bad_value(f"{where}.container.type", kind, ("auto",))
    return NewContainer("auto", **_common(given, f"{where}.container."))


def _common(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    memory = fields.get("memory_limit")
    if memory is not None:
        _check_memory(memory, f"{where}memory_limit")
    idents = fields.get("file_ids")
    if idents is not None:
        array(idents, f"{where}file_ids")
        for index, ident in enumerate(idents):
            string(ident, f"{where}file_ids[{index}]")
        if len(idents) > _MOST_FILES:
            raise InvalidRequest(
                f"Invalid '{where}file_ids': expected {_MOST_FILES} at most.",
                code="array_above_max_length",
                param=f"{where}file_ids",
            )
    policy = fields.get("network_policy")
    if policy is not None:
        object_(policy, f"{where}network_policy")
        if policy.get("type") != "disabled":
            raise _unsupported(f"{where}network_policy", "containers have no network here")
    if fields.get("skills"):
        raise _unsupported(f"{where}skills", "containers take no skills here")
    return {"memory": memory, "file_ids": tuple(idents or ())}


def _unsupported(param: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"Unsupported '{param}': {why}.", code="unsupported_value", param=param)
