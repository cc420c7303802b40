"""How a request names a stored prompt: ``{id | name, version?, variables?}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from router.dialects.parameters import (
    missing,
    object_,
    one_of,
    string,
    wrong_type,
)
from router.dialects.responses.input_items import check_part
from router.errors import InvalidRequest

__all__ = ["PromptReference", "check_prompt", "prompt_reference", "version_number"]

_VERSION: Final = re.compile(r"[1-9][0-9]{0,8}")
_VARIABLE_TYPES: Final = ("input_text", "input_image", "input_file")

_check_variable_type = one_of(*_VARIABLE_TYPES)


@dataclass(frozen=True, slots=True)
class PromptReference:
    """``key`` is the prompt's id or its name; without a ``version`` the latest is meant."""

    key: str
    version: int | None
    variables: Mapping[str, Any]


def prompt_reference(value: Mapping[str, Any]) -> PromptReference:
    """The reference in a ``prompt`` field that passed ``check_prompt``."""
    version = value.get("version")
    variables = value.get("variables") or {}
    return PromptReference(
        key=value.get("id") or value["name"],
        version=None if version is None else version_number(version, "prompt.version"),
        variables={name: entry for name, entry in variables.items() if entry is not None},
    )


def check_prompt(value: Any, param: str) -> None:
    """A ``prompt`` field; ``id`` may be the prompt's name, and comes before ``name``."""
    object_(value, param)
    if not value.get("id") and not value.get("name"):
        raise missing(f"{param}.id")
    for name in ("id", "name"):
        if value.get(name) is not None:
            string(value[name], f"{param}.{name}")
    if value.get("version") is not None:
        version_number(value["version"], f"{param}.version")
    variables = value.get("variables")
    if variables is not None:
        object_(variables, f"{param}.variables")
        for name, entry in variables.items():
            if entry is not None and type(entry) is not str:
                _check_variable(entry, f"{param}.variables.{name}")


def version_number(value: Any, param: str) -> int:
    """A version as a number, counted from 1; clients write it as a string or as an integer."""
    if type(value) is not str and type(value) is not int:
        raise wrong_type(param, "a string", value)
    if not _VERSION.fullmatch(str(value)):
        raise InvalidRequest(
            f"Invalid '{param}': expected the number of a version, like '1'.",
            code="invalid_value",
            param=param,
        )
    return int(value)


def _check_variable(value: Any, param: str) -> None:
    if type(value) is not dict:
        raise wrong_type(param, "a string or an input part", value)
    kind = value.get("type")
    if kind is None:
        raise missing(f"{param}.type")
    _check_variable_type(kind, f"{param}.type")
    check_part(value, param)
