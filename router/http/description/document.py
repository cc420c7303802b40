"""Puts the families together into one OpenAPI document."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from router.http.description.errors import ENVELOPES, EXAMPLES, HEADERS_OF, MEANINGS
from router.http.description.families import (
    admin,
    admin_cache,
    admin_keys,
    chat,
    containers,
    conversations,
    files,
    messages,
    models,
    ollama,
    ollama_manage,
    plain,
    prompts,
    responses,
    service,
    usage,
    vector_stores,
)
from router.http.description.headers import HEADERS, REQUEST_ID
from router.http.description.parts import FORM, JSON, Family, Key, Op, SuccessResponse

__all__ = ["BASE", "document"]

BASE: Final = "$POINTSMAN"
"""Stands for the router's address in examples for the command line."""

_ABOUT: Final = """\
Everything that this router serves. What a request may say is checked as it is described here; of \
unknown fields, and of values that only a model can judge, an endpoint is the judge.

A path that is not served is a 404, and one that is, with another method, a 405 that names those \
it takes. Every answer has an `X-Request-Id`.
"""
_KEYS: Final[Mapping[Key, list[dict[str, list[str]]]]] = {
    "client": [{"key": []}, {"xApiKey": []}, {}],
    "admin": [{"adminKey": []}],
    "metrics": [{"metricsKey": []}],
    "client or admin": [{"key": []}, {"xApiKey": []}, {"adminKey": []}, {}],
    "none": [],
}
_SCHEMES: Final = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key of `auth.keys`, or a virtual one. Where there is none of the former, "
        "nobody is asked for one.",
    },
    "xApiKey": {
        "type": "apiKey",
        "in": "header",
        "name": "x-api-key",
        "description": "The same keys, as clients of Anthropic's API send them.",
    },
    "adminKey": {"type": "http", "scheme": "bearer", "description": "`admin.key`."},
    "metricsKey": {"type": "http", "scheme": "bearer", "description": "`metrics.key`."},
}
_VARIABLES: Final[Mapping[Key, str]] = {"admin": "ADMIN_KEY", "metrics": "METRICS_KEY"}
_CREATED: Final = 201
_PLATFORM: Final = "/api/v1"


def document(*, version: str, metrics_opened_by: Key) -> dict[str, Any]:
    """The description; ``version`` is the router's own."""
    families = _families(metrics_opened_by=metrics_opened_by)
    paths: dict[str, dict[str, Any]] = {}
    for family in families:
        for prefix in family.prefixes:
            for op in family.ops:
                place = paths.setdefault(prefix + op.path, {})
                place[op.method.lower()] = _operation(family, op, prefix)
                if op.head:
                    place["head"] = _without_body(place["get"])
    tags = {family.tag: family.description for family in reversed(families)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pointsman",
            "version": version,
            "summary": "An LLM router: many APIs in front of many backends.",
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": ".", "description": "Where this document is."}],
        "tags": [{"name": tag, "description": tags[tag]} for tag in reversed(tags)],
        "paths": paths,
        "components": _components(families),
    }


def _families(*, metrics_opened_by: Key) -> list[Family]:
    return [
        responses.FAMILY,
        containers.FAMILY,
        conversations.FAMILY,
        prompts.FAMILY,
        files.FAMILY,
        vector_stores.FAMILY,
        chat.FAMILY,
        messages.FAMILY,
        plain.FAMILY,
        plain.ELSEWHERE,
        models.FAMILY,
        ollama.FAMILY,
        ollama_manage.FAMILY,
        usage.OWN,
        usage.EVERYBODY,
        admin.FAMILY,
        admin_keys.FAMILY,
        admin_cache.FAMILY,
        service.OPEN,
        service.metrics(opened_by=metrics_opened_by),
    ]


def _components(families: Sequence[Family]) -> dict[str, Any]:
    schemas = dict(ENVELOPES)
    keys = {op.key for family in families for op in family.ops}
    schemes = {name for key in keys for choice in _KEYS[key] for name in choice}
    failures: dict[str, Any] = {}
    for family in families:
        schemas |= family.schemas
        for op in family.ops:
            for status in op.errors:
                failures[f"{family.error}{status}"] = _failure(family.error, status)
    return {
        "schemas": schemas,
        "responses": failures,
        "parameters": {"RequestId": REQUEST_ID},
        "headers": dict(HEADERS),
        "securitySchemes": {name: _SCHEMES[name] for name in _SCHEMES if name in schemes},
    }


def _failure(envelope: str, status: int) -> dict[str, Any]:
    content = {
        "schema": {"$ref": f"#/components/schemas/{envelope}"},
        "example": EXAMPLES[envelope],
    }
    return {
        "description": MEANINGS[status],
        "headers": _headers(("X-Request-Id", *HEADERS_OF.get(status, ()))),
        "content": {JSON: content},
    }


def _operation(family: Family, op: Op, prefix: str) -> dict[str, Any]:
    first = family.prefixes[0]
    asks = op.key != "none"
    alias = {} if prefix == first else {"x-alias-of": first + op.path}
    suffix = "" if prefix == first else "OnPlatform"
    operation: dict[str, Any] = {
        "operationId": op.id + suffix,
        "summary": op.summary,
        "tags": [family.tag],
        **alias,
        "parameters": [
            *op.parameters,
            *([{"$ref": "#/components/parameters/RequestId"}] if asks else ()),
        ],
        "security": _KEYS[op.key],
        "responses": _answers(family, op, prefix),
        "x-codeSamples": [{"lang": "Shell", "label": "curl", "source": _curl(op, prefix)}],
    }
    if op.description:
        operation["description"] = op.description
    if op.body is not None:
        content = {"schema": op.body.schema, "example": op.body.example}
        operation["requestBody"] = {
            "required": op.body.required,
            "content": {op.body.kind: content},
        }
    return operation


def _answers(family: Family, op: Op, prefix: str) -> dict[str, Any]:
    well = _CREATED if op.created and prefix == _PLATFORM else 200
    if op.id == "createKey":
        well = _CREATED
    named = ("X-Request-Id",) if op.key != "none" else ()
    answers = {well: op.answer, **op.others}
    told: dict[str, Any] = {
        str(status): _answer(answer, named) for status, answer in sorted(answers.items())
    }
    for status in sorted(set(op.errors)):
        told[str(status)] = {"$ref": f"#/components/responses/{family.error}{status}"}
    return told


def _answer(answer: SuccessResponse, named: tuple[str, ...]) -> dict[str, Any]:
    told: dict[str, Any] = {"description": answer.description}
    if headers := _headers((*named, *answer.headers)):
        told["headers"] = headers
    content = {kind: {"schema": schema} for kind, schema in answer.content.items()}
    if answer.example is not None:
        next(iter(content.values()))["example"] = answer.example
    if content:
        told["content"] = content
    return told


def _headers(names: Iterable[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _without_body(operation: Mapping[str, Any]) -> dict[str, Any]:
    """The same for HEAD."""
    answers = {
        status: {name: value for name, value in answer.items() if name != "content"}
        for status, answer in operation["responses"].items()
        if "$ref" not in answer
    }
    return {
        **{n: v for n, v in operation.items() if n != "x-codeSamples"},
        "operationId": operation["operationId"] + "Head",
        "x-head": True,
        "responses": answers,
    }


def _curl(op: Op, prefix: str) -> str:
    """How to ask it on the command line; what a shell should put in stands in double quotes."""
    path = prefix + op.path
    for parameter in op.parameters:
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", parameter["example"])
    words = [f'curl "{BASE}{path}"']
    if op.method == "HEAD":
        words.append("--head")
    elif op.method != ("POST" if op.body else "GET"):
        words.append(f"-X {op.method}")
    if op.key != "none":
        variable = _VARIABLES.get(op.key, "API_KEY")
        words.append(f'-H "Authorization: Bearer ${variable}"')
    if op.body is not None and op.body.kind == FORM:
        for name, value in op.body.example.items():
            words.append(f"-F {shlex.quote(f'{name}={value}')}")
    elif op.body is not None:
        words.append("-H 'Content-Type: application/json'")
        words.append(f"-d {shlex.quote(orjson.dumps(op.body.example).decode())}")
    return " \\\n  ".join(words)
