"""The published API description, as a check of what the router writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from tests.support.reading import DATA

__all__ = ["faults", "faults_of_event"]

DOCUMENT = DATA / "openapi.reduced.json"
_URI = "urn:openapi"


def faults(name: str, value: Any) -> list[str]:
    """Where ``value`` does not fit the component schema ``name``; skips without the document."""
    return _check(_validators()[0](name), value)


def faults_of_event(event: dict[str, Any]) -> list[str]:
    """Where a stream event does not fit the schema of its type; skips without the document."""
    validator, names = _validators()
    if event["type"] not in names:
        return [f"unknown type {event['type']}"]
    return _check(validator(names[event["type"]]), event)


def _check(validator: Draft202012Validator, value: Any) -> list[str]:
    return [f"{list(e.absolute_path)}: {e.message}" for e in validator.iter_errors(_typed(value))]


def _typed(value: Any) -> Any:
    """``value`` without what OpenAI's own answers have, but its document does not allow: a null
    ``user``, the null ``usage`` of a response that goes on, the null ``description`` of a format.
    """
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("response"), dict):
        return {**value, "response": _typed(value["response"])}
    typed = {k: v for k, v in value.items() if v is not None or k not in ("user", "usage")}
    shape = typed.get("text", {}) if isinstance(typed.get("text"), dict) else {}
    if shape.get("format", {}).get("description", "") is None:
        bare = {k: v for k, v in shape["format"].items() if k != "description"}
        typed["text"] = {**shape, "format": bare}
    return typed


@cache
def _validators() -> tuple[Callable[[str], Draft202012Validator], dict[str, str]]:
    if not DOCUMENT.exists():
        pytest.skip(f"{DOCUMENT} is not there")
    document = json.loads(DOCUMENT.read_text())
    resource = DRAFT202012.create_resource(document)
    registry: Registry[Any] = Registry().with_resource(_URI, resource)

    @cache
    def validator(name: str) -> Draft202012Validator:
        reference = {"$ref": f"{_URI}#/components/schemas/{name}"}
        return Draft202012Validator(reference, registry=registry)

    schemas = document["components"]["schemas"]
    union = schemas["ResponseStreamEvent"]
    names = [ref["$ref"].rsplit("/", 1)[-1] for ref in union.get("anyOf") or union["oneOf"]]
    types = ((name, schemas[name]["properties"]["type"]) for name in names)
    return validator, {kind: name for name, t in types for kind in t.get("enum", [t.get("const")])}
