"""The description says what is served, and nothing else; and it is a sound OpenAPI document."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from http import HTTPMethod
from itertools import pairwise
from typing import Any, Final

import orjson
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from router.app import create_app
from router.dialects.responses import input_items, tools
from router.errors import RouterError
from router.http.description.document import BASE, document
from router.http.description.families.items import SCHEMAS as ITEMS
from router.http.description.parts import Key
from router.http.websocket import UpgradeResource
from tests.support.router import settings_for

DOCUMENT: Final = document(version="1.2.3", metrics_opened_by="none")
URI: Final = "urn:description"
REGISTRY: Final[Registry[Any]] = Registry().with_resource(
    URI, DRAFT202012.create_resource(DOCUMENT)
)
ENDPOINT: Final = {"name": "one", "url": "http://127.0.0.1:9/v1", "dialect": "chat"}
WELL: Final = {200, 201, 304}


def served(**sections: Any) -> set[tuple[str, str]]:
    """Every method and path in the route table, but for what answers all the others, and for
    WebSockets, which OpenAPI knows nothing of.
    """
    found = set()
    for route in create_app(settings_for(ENDPOINT, **sections)).router.routes():
        assert route.resource is not None
        if route.method != "*" and not isinstance(route.resource, UpgradeResource):
            found.add((route.method, route.resource.canonical))
    return found


def operations(described: dict[str, Any] = DOCUMENT) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, item in described["paths"].items()
        for method, operation in item.items()
    }


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in the document."""
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from nodes(each)
    elif isinstance(value, list):
        for each in value:
            yield from nodes(each)


def resolved(value: dict[str, Any]) -> dict[str, Any]:
    """What a reference refers to; KeyError where there is no such thing."""
    while "$ref" in value:
        at: Any = DOCUMENT
        for step in value["$ref"].removeprefix("#/").split("/"):
            at = at[step]
        value = at
    return value


def faults(schema: dict[str, Any], value: Any) -> list[str]:
    """What is wrong with a value, by a schema of the document."""
    whole = {"$ref": URI + schema["$ref"]} if set(schema) == {"$ref"} else rooted(schema)
    validator = Draft202012Validator(whole, registry=REGISTRY)
    return [error.message for error in validator.iter_errors(value)]


def rooted(value: Any) -> Any:
    """A schema whose references are to the document, wherever it is itself."""
    if isinstance(value, list):
        return [rooted(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: URI + each if name == "$ref" and isinstance(each, str) else rooted(each)
        for name, each in value.items()
    }


@pytest.mark.parametrize(
    ("opened_by", "metrics"),
    [("none", {}), ("client", {"require_key": True}), ("metrics", {"key": "sk-scraper"})],
)
def test_what_is_served_is_described_and_nothing_else(
    opened_by: Key, metrics: dict[str, Any]
) -> None:
    described = document(version="1", metrics_opened_by=opened_by)
    assert set(operations(described)) == served(metrics=metrics)


def test_the_document_is_valid() -> None:
    errors = [error.message for error in OpenAPIV31SpecValidator(DOCUMENT).iter_errors()]
    assert errors == []


def test_every_reference_resolves_and_every_component_is_used() -> None:
    used = set()
    for node in nodes(DOCUMENT):
        reference = node.get("$ref")
        if isinstance(reference, str):
            resolved(node)
            used.add(tuple(reference.removeprefix("#/components/").split("/")))
    made = {
        (kind, name)
        for kind, parts in DOCUMENT["components"].items()
        for name in parts
        if kind != "securitySchemes"
    }
    assert made - used == set()


def test_every_schema_is_one() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_every_example_is_what_its_schema_says() -> None:
    count = 0
    for (method, path), operation in operations().items():
        said = [operation.get("requestBody", {})]
        said += [resolved(answer) for answer in operation["responses"].values()]
        for content in [each.get("content", {}) for each in said]:
            for media in content.values():
                if "example" in media:
                    count += 1
                    assert faults(media["schema"], media["example"]) == [], (method, path)
    assert count > len(operations())


def test_every_body_and_every_answer_in_json_has_an_example() -> None:
    for (method, path), operation in operations().items():
        bodies = [operation["requestBody"]] if "requestBody" in operation else []
        for place in [*bodies, *map(resolved, operation["responses"].values())]:
            media = place.get("content", {}).get("application/json")
            if media is not None and path != "/openapi.json":
                assert "example" in media, (method, path)


def errors_of(kind: type[RouterError]) -> Iterator[type[RouterError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from errors_of(below)


def test_every_status_is_one_that_the_code_can_give() -> None:
    given = {error.status for error in errors_of(RouterError)} | WELL
    for (method, path), operation in operations().items():
        statuses = {int(status) for status in operation["responses"]}
        assert statuses <= given, (method, path)
        assert statuses & WELL, (method, path)


def test_what_asks_for_a_key_says_so() -> None:
    for (method, path), operation in operations().items():
        statuses = set(operation["responses"])
        assert bool(operation["security"]) == ("401" in statuses), (method, path)
        if path.startswith("/admin/"):
            assert operation["security"] == [{"adminKey": []}]
            assert "403" in statuses


def test_parameters_of_a_path_are_those_in_it() -> None:
    for (method, path), operation in operations().items():
        given = [resolved(one) for one in operation["parameters"]]
        names = {one["name"] for one in given if one["in"] == "path"}
        assert names == {part[1:-1] for part in path.split("/") if part[:1] == "{"}, (method, path)


def test_an_operation_is_named_once() -> None:
    names = [operation["operationId"] for operation in operations().values()]
    assert len(set(names)) == len(names)
    tags = {tag["name"] for tag in DOCUMENT["tags"]}
    assert {tag for operation in operations().values() for tag in operation["tags"]} == tags
    for operation in operations().values():
        first = operation.get("x-alias-of")
        assert first is None or first in DOCUMENT["paths"]


def test_examples_for_the_command_line_are_the_request() -> None:
    for (method, path), operation in operations().items():
        if operation.get("x-head"):
            continue
        words = shlex.split(operation["x-codeSamples"][0]["source"])
        assert words[0] == "curl"
        assert words[1].startswith(BASE + path.split("{")[0])
        assert "{" not in words[1]
        sent = words[words.index("-d") + 1] if "-d" in words else None
        content = operation.get("requestBody", {}).get("content", {})
        if "multipart/form-data" in content:
            example = content["multipart/form-data"]["example"]
            fields = [after for before, after in pairwise(words) if before == "-F"]
            assert dict(field.split("=", 1) for field in fields) == example
            sent = ""
        elif content:
            assert sent is not None
            assert orjson.loads(sent) == content["application/json"]["example"]
        said = words[words.index("-X") + 1] if "-X" in words else "GET" if sent is None else "POST"
        assert ("HEAD" if "--head" in words else said) == method, (method, path)
        assert method in HTTPMethod.__members__


def test_kinds_are_those_of_the_code() -> None:
    kinds = [*ITEMS["OtherItem"]["properties"]["type"]["enum"]]
    for name in ITEMS:
        properties = ITEMS[name].get("properties", {})
        if name in [one["$ref"].split("/")[-1] for one in ITEMS["InputItem"]["anyOf"]]:
            kinds += [one["const"] for one in nodes(properties["type"]) if "const" in one]
    assert sorted(kinds) == sorted(input_items._ITEM_TYPES)
    hosted = ITEMS["NamedTool"]["anyOf"][1]["properties"]["type"]["enum"]
    assert {*hosted, "function", "custom"} == set(tools._TOOL_TYPES)


def test_it_is_the_same_whatever_is_configured() -> None:
    text = orjson.dumps(document(version="1.2.3", metrics_opened_by="none"))
    assert text == orjson.dumps(DOCUMENT)
    for word in (b"sim-", b"gpt-", b"claude", b"127.0.0.1", b"localhost"):
        assert word not in text
