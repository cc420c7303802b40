"""``python -m tests.reference`` writes the table of all settings into docs/reference.md, from their
declarations.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, SecretStr

from router.settings.changes import FIXED
from router.settings.schema import Settings
from router.settings.section import Section

__all__ = ["PAGE", "written"]

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference.md"
_BEGIN: Final = "<!-- settings, made by python -m tests.reference -->"
_END: Final = "<!-- end of settings -->"
_HEAD: Final = "| setting | values | default | |\n|---|---|---|---|\n"
_TYPES: Final = {
    "array": "list",
    "boolean": "`true`, `false`",
    "integer": "integer",
    "number": "number",
    "object": "mapping",
    "string": "text",
}


def written() -> str:
    """The page as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{_HEAD}{''.join(_rows())}{_END}{after}"


def _rows() -> Iterator[str]:
    schema = Settings.model_json_schema()
    sections = schema.pop("$defs")
    for path, field, default in _fields("", schema, sections, Settings):
        restart = " A change needs a restart." if f"{path}.".startswith(FIXED) else ""
        meaning = " ".join(field["description"].split())
        yield f"| `{path}` | {_values(field)} | {default} | {meaning}{restart} |\n"


def _fields(
    path: str, schema: dict[str, Any], sections: dict[str, Any], model: type[BaseModel]
) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Every field below a section that is no section itself: its path, its schema, its default."""
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        at = f"{path}.{name}".lstrip(".")
        if "description" in field:
            default = "required" if name in required else _shown(model.model_fields[name].default)
            yield at, field, default
        for inner, end in ((field, ""), (field.get("items", {}), "[]"), (_values_of(field), ".*")):
            if (section := _section_of(inner)) is not None:
                below = sections[section]
                yield from _fields(f"{at}{end}", below, sections, _model(section))


def _section_of(field: dict[str, Any]) -> str | None:
    """The section that a field's schema refers to."""
    for one in (field, *field.get("anyOf", ()), *field.get("allOf", ())):
        if "$ref" in one:
            return str(one["$ref"]).rpartition("/")[2]
    return None


def _values_of(field: dict[str, Any]) -> dict[str, Any]:
    """The schema of a mapping's values."""
    values = field.get("additionalProperties")
    return values if isinstance(values, dict) else {}


def _model(name: str) -> type[BaseModel]:
    found: list[type[BaseModel]] = [Section]
    while found:
        one = found.pop()
        if one.__name__ == name:
            return one
        found += one.__subclasses__()
    raise LookupError(name)


def _values(field: dict[str, Any]) -> str:
    kinds = []
    for one in field.get("anyOf", (field,)):
        if "enum" in one or "const" in one:
            kinds += [f"`{value}`" for value in one.get("enum", (one.get("const"),))]
        elif (kind := one.get("type")) not in (None, "null"):
            kinds.append(_TYPES[kind])
        elif "$ref" in one:
            kinds.append("mapping")
    return ", ".join(dict.fromkeys(kinds))


def _shown(default: object) -> str:
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if isinstance(default, bool):
        default = str(default).lower()
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    empty = default is None or isinstance(default, tuple | dict) or "Undefined" in repr(default)
    return "" if empty else f"`{default}`"


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
    sys.stdout.write(f"{PAGE} is written\n")
