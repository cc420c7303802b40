"""The settings of the code interpreter."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from router.settings.code_interpreter import CodeInterpreterSettings

URL = "http://127.0.0.1:8888"
OTHER = "http://127.0.0.1:8889"


def gateways(*given: dict[str, Any]) -> dict[str, Any]:
    return {"jupyter": {"gateways": list(given)}}


@pytest.mark.parametrize(
    "given",
    [
        {"local": {}},
        gateways({"url": URL, "keys": ["a"]}, {"url": OTHER, "keys": ["b"]}),
        gateways({"url": URL, "shared": True}),
        gateways({"url": URL, "keys": ["a", "b"], "shared": True}, {"url": OTHER, "keys": ["c"]}),
    ],
)
def test_what_can_be(given: dict[str, Any]) -> None:
    CodeInterpreterSettings.model_validate(given)


@pytest.mark.parametrize(
    ("given", "place", "why"),
    [
        ({}, ("local",), "is required"),
        ({"local": {}, **gateways({"url": URL, "keys": ["a"]})}, ("local",), "excludes"),
        ({"local": {}, "memory": "4g"}, ("memory",), "more than max_memory"),
        (gateways({"url": URL}), ("jupyter", "gateways", 0, "keys"), "must be one key"),
        (gateways({"url": URL, "keys": ["a", "b"]}), ("jupyter", "gateways", 0, "keys"), "one key"),
        (
            gateways({"url": URL, "keys": ["a"]}, {"url": URL, "keys": ["b"]}),
            ("jupyter", "gateways", 1, "url"),
            "another gateway",
        ),
        (
            gateways({"url": URL, "keys": ["a"]}, {"url": OTHER, "keys": ["a"]}),
            ("jupyter", "gateways", 1, "keys"),
            "has a gateway",
        ),
    ],
)
def test_what_cannot_be(given: dict[str, Any], place: tuple[Any, ...], why: str) -> None:
    with pytest.raises(ValidationError) as caught:
        CodeInterpreterSettings.model_validate(given)
    [error] = caught.value.errors()
    assert error["loc"] == place
    assert why in error["msg"]
