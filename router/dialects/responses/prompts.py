"""Stored prompts: defaults for create requests, with ``{{variables}}`` in their texts.

A prompt has a name and the fields of a create request that it gives a value to. In its
``instructions`` and in the texts of the messages in its ``input`` every ``{{name}}`` stands for a
variable of the request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from router.dialects.parameters import (
    Check,
    bounded_string,
    missing,
)
from router.dialects.responses.echo import without_secrets
from router.dialects.responses.fields import PER_REQUEST
from router.dialects.responses.input_items import TEXT_PARTS, item_type
from router.dialects.responses.schema import check_fields
from router.errors import InvalidRequest

__all__ = ["apply_prompt", "changed", "parse_changes", "parse_prompt", "prompt_object"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLE: Final = re.compile(r"\{\{\s*+([\w.-]++)\s*+\}\}")

_MAX_INSERTED: Final = 16 * 1024 * 1024
"""Characters that the variables of one request may add: a template may repeat a long one."""

_SHOWN: Final = 64

_OWN: Final = frozenset({"id", "object", "version", "created_at", "updated_at"})
"""Fields of a prompt object that the router makes. A client may send back what it was shown."""

_LABELS: Final = frozenset({*_OWN, "name", "display_name", "description"})
"""Fields of a prompt object that say what it is, and do not go into a request."""

_TEXTS: Final[Mapping[str, Check]] = {
    "name": bounded_string(64),
    "display_name": bounded_string(256),
    "description": bounded_string(4096),
}
_REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(PER_REQUEST, "It is for each request to say."),
    "prompt": "A prompt cannot build on another one.",
    "messages": "Send the messages as 'input'.",
}


def parse_prompt(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a new prompt; raise InvalidRequest.

    Fields that are not known are kept: they become fields of the requests.
    """
    if body.get("name") is None:
        raise missing("name")
    return {name: value for name, value in parse_changes(body).items() if value is not None}


def parse_changes(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields to change in a prompt, null to remove one; raise InvalidRequest."""
    fields = {name: value for name, value in body.items() if name not in _OWN}
    if "name" in fields:
        _check_name(fields["name"])
    for name, value in fields.items():
        if value is None:
            continue
        if name in _REFUSED:
            raise InvalidRequest(
                f"Unsupported parameter: '{name}' is no field of a prompt. {_REFUSED[name]}",
                code="unsupported_parameter",
                param=name,
            )
        if name in _TEXTS:
            _TEXTS[name](value, name)
    check_fields(fields)
    return fields


def changed(fields: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a prompt after ``changes``."""
    merged = {**fields, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def prompt_object(
    ident: str, version: int, created_at: int, updated_at: int, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """The prompt object of one version, as it is shown: without the credentials of its tools.

    ``created_at`` is the prompt's, ``updated_at`` the version's, in unix seconds.
    """
    shown = {
        "id": ident,
        "object": "prompt",
        "name": fields["name"],
        "display_name": None,
        "description": None,
        "version": str(version),
        "created_at": created_at,
        "updated_at": updated_at,
        **fields,
    }
    if "tools" in fields:
        shown["tools"] = [without_secrets(tool) for tool in fields["tools"]]
    return shown


def apply_prompt(
    body: Mapping[str, Any],
    fields: Mapping[str, Any],
    variables: Mapping[str, Any],
    *,
    ident: str,
    version: int,
) -> dict[str, Any]:
    """The body of a create request with what ``fields`` of the prompt ``ident`` add to it.

    What the request says wins, field by field, but its input follows the prompt's. A value in
    ``variables`` is a string or an input part. A text that is nothing but a variable becomes the
    part; elsewhere only texts can be put in. Values are put in as they are: what looks like a
    variable in them is text. Variables that the prompt does not have are disregarded.
    ``prompt`` then says which version it was, whatever the request left open.
    Raises InvalidRequest for a variable without a value. There may be no model in it.
    """
    filler = _Filler(variables)
    merged = {k: v for k, v in fields.items() if k not in _LABELS}
    given = {k: v for k, v in body.items() if v is not None}
    template = merged.pop("input", None)
    if "instructions" in given:
        merged.pop("instructions", None)
    elif "instructions" in merged:
        merged["instructions"] = filler.instructions(merged["instructions"])
    merged.update(given)
    merged["prompt"] = {"id": ident, "variables": dict(variables), "version": str(version)}
    if template:
        merged["input"] = [*filler.items(_items(template)), *_items(given.get("input") or [])]
    return merged


def _check_name(name: Any) -> None:
    if name is None:
        raise missing("name")
    _TEXTS["name"](name, "name")
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            "Invalid 'name': expected letters, digits, '.', '_' and '-', with a letter or a "
            "digit first.",
            code="invalid_value",
            param="name",
        )


def _items(given: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return given


class _Filler:
    """Puts the variables of one request into texts."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables
        self._inserted = 0

    def instructions(self, given: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        return self.text(given) if isinstance(given, str) else self.items(given)

    def items(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [self._message(item) if item_type(item) == "message" else item for item in items]

    def text(self, text: str) -> str:
        return _VARIABLE.sub(self._insert, text)

    def _message(self, item: dict[str, Any]) -> dict[str, Any]:
        content = item["content"]
        if isinstance(content, list):
            return {**item, "content": [self._part(part) for part in content]}
        whole = self._whole(content)
        if whole is not None and item["role"] != "assistant":
            return {**item, "content": [whole]}
        return {**item, "content": self.text(content)}

    def _part(self, part: dict[str, Any]) -> dict[str, Any]:
        field = TEXT_PARTS.get(part["type"])
        if field is None:
            return part
        whole = self._whole(part[field])
        if whole is not None and part["type"] in ("input_text", "text"):
            return whole
        return {**part, field: self.text(part[field])}

    def _whole(self, text: str) -> dict[str, Any] | None:
        """The image or file that ``text`` stands for as a whole."""
        found = _VARIABLE.fullmatch(text.strip())
        value = self._value(found[1]) if found else None
        if isinstance(value, dict) and value["type"] != "input_text":
            return value
        return None

    def _insert(self, found: re.Match[str]) -> str:
        name = found[1]
        value = self._value(name)
        if isinstance(value, dict):
            if value["type"] != "input_text":
                raise InvalidRequest(
                    f"Invalid value: the variable '{name[:_SHOWN]}' is an {value['type']}, but the "
                    "prompt has it in the midst of a text.",
                    code="invalid_value",
                    param=_param(name),
                )
            value = value["text"]
        self._inserted += len(value)
        if self._inserted > _MAX_INSERTED:
            raise InvalidRequest(
                "Invalid 'prompt.variables': the prompt repeats them to more than "
                f"{_MAX_INSERTED} characters.",
                code="string_above_max_length",
                param="prompt.variables",
            )
        text: str = value
        return text

    def _value(self, name: str) -> Any:
        value = self._variables.get(name)
        if value is None:
            raise missing(_param(name))
        return value


def _param(name: str) -> str:
    return f"prompt.variables.{name[:_SHOWN]}"
