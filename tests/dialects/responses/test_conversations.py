"""What a request may say of a conversation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from router.dialects.responses.conversations import (
    conversation_object,
    parse_added,
    parse_metadata,
    parse_new,
)
from router.errors import InvalidRequest
from tests.support.schema import faults

MISSING = "missing_required_parameter"
ITEM: dict[str, Any] = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("body", "metadata", "items"),
    [
        ({}, {}, []),
        ({"metadata": None, "items": None}, {}, []),
        ({"metadata": {"a": "b"}, "items": []}, {"a": "b"}, []),
        ({"items": [ITEM] * 20, "something": "else"}, {}, [ITEM] * 20),
        ({"items": [{"id": "msg_1"}]}, {}, [{"id": "msg_1"}]),
    ],
)
def test_new_conversations(
    body: dict[str, Any], metadata: dict[str, str], items: list[dict[str, Any]]
) -> None:
    assert parse_new(body) == (metadata, items)


def test_metadata_replaces() -> None:
    assert parse_metadata({"metadata": {}, "items": 5}) == {}
    assert parse_metadata({"metadata": {"a": "b"}}) == {"a": "b"}


def test_added_items() -> None:
    assert parse_added({"items": [ITEM] * 20}) == [ITEM] * 20


Parser = Callable[[dict[str, Any]], object]
REFUSED: list[tuple[Parser, dict[str, Any], str, str]] = [
    (parse_new, {"metadata": []}, "invalid_type", "metadata"),
    (parse_new, {"metadata": {"a": 1}}, "invalid_type", "metadata.a"),
    (parse_new, {"items": {}}, "invalid_type", "items"),
    (parse_new, {"items": [ITEM] * 21}, "array_above_max_length", "items"),
    (parse_new, {"items": [ITEM, {"content": "hi"}]}, MISSING, "items[1].role"),
    (parse_metadata, {}, MISSING, "metadata"),
    (parse_metadata, {"metadata": None}, MISSING, "metadata"),
    (parse_metadata, {"metadata": {"a": None}}, "invalid_type", "metadata.a"),
    (parse_added, {}, MISSING, "items"),
    (parse_added, {"items": None}, MISSING, "items"),
    (parse_added, {"items": []}, "empty_array", "items"),
    (parse_added, {"items": "hi"}, "invalid_type", "items"),
    (parse_added, {"items": ["hi"]}, "invalid_type", "items[0]"),
    (parse_added, {"items": [5] * 21}, "array_above_max_length", "items"),
    (parse_added, {"items": [{"type": "message", "content": []}]}, MISSING, "items[0].role"),
    (parse_added, {"items": [{"type": "item_reference"}]}, MISSING, "items[0].id"),
    (parse_new, {"items": [{"type": "compaction_trigger"}]}, "invalid_value", "items[0].type"),
]


@pytest.mark.parametrize(("parse", "body", "code", "param"), REFUSED)
def test_refused(parse: Parser, body: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(body)
    assert (caught.value.code, caught.value.param) == (code, param)


def test_the_object() -> None:
    shown = conversation_object("conv_1", 1_800_000_000, {"a": "b"})
    assert faults("ConversationResource", shown) == []
    assert shown["object"] == "conversation"
