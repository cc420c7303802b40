"""Every leaf of two rich bodies: changed, removed, or with an unknown neighbour, it counts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import pytest

from cache.request import CacheKeys, keys
from tests.support.asking import (
    CUSTOM_CALL,
    CUSTOM_ITEM,
    JSON,
    LARK,
    cached,
    from_chat,
    from_responses,
    said,
)

Path = tuple[str | int, ...]

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "enum": ["x", "y"]}, "b": {"type": "number"}},
    "required": ["a"],
}
FUNCTION = {"name": "f", "description": "D", "parameters": SCHEMA}
SETTINGS = {
    "temperature": 0.5,
    "top_p": 0.5,
    "seed": 7,
    "stop": ["x"],
    "parallel_tool_calls": False,
    "service_tier": "flex",
    "logit_bias": {"5": 1},
    "guided": {"a": [1, None, False, 0.5]},
}
RESPONSES: JSON = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {"role": "developer", "content": "Be kind.", "phase": "x"},
        {
            "type": "message",
            "role": "user",
            "content": [
                said("Look", prompt_cache_breakpoint={"mode": "explicit"}),
                {"type": "input_image", "image_url": "u", "detail": "low", "more": "x"},
                {"type": "input_file", "file_data": "d", "filename": "n"},
                {"type": "input_audio", "input_audio": {"data": "d", "format": "wav"}},
                {"type": "summary_text", "text": "s"},
            ],
        },
        {"type": "reasoning", "summary": [said("Hm", "summary_text")], "encrypted_content": "e"},
        {
            "role": "assistant",
            "content": [
                said("So", "output_text", annotations=[{"type": "url_citation", "url": "u"}]),
                {"type": "refusal", "refusal": "No."},
            ],
        },
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": "f",
            "arguments": "{}",
            "namespace": "n",
        },
        CUSTOM_ITEM,
        {"type": "function_call_output", "call_id": "call_1", "output": [said("4"), said("2")]},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": "y", "name": "g"},
        {"type": "web_search_call", "status": "failed", "action": {"type": "search"}},
        {"type": "mcp_approval_request", "id": "mcpr_1", "arguments": "{}"},
        {"type": "additional_tools", "tools": [{"type": "function", "name": "h"}]},
        {"role": "user", "content": [said("What"), said("now?")]},
    ],
    "tools": [
        {"type": "function", **FUNCTION, "strict": False},
        {"type": "function", "name": "g2", "defer_loading": True},
        {"type": "custom", "name": "g", "format": {"type": "grammar", **LARK}},
    ],
    "tool_choice": {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "g"}],
    },
    "text": {
        "format": {
            "type": "json_schema",
            "name": "s",
            "schema": SCHEMA,
            "strict": True,
            "description": "D",
        },
        "verbosity": "low",
        "more": 1,
    },
    "reasoning": {"effort": "low", "summary": "auto", "more": 1},
    "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
    "top_logprobs": 3,
    "max_output_tokens": 9,
    "max_tool_calls": 3,
    "truncation": "auto",
    **SETTINGS,
}
CHAT: JSON = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief.", "name": "n"},
        {
            "role": "user",
            "content": [
                said("Look", "text", cache_control={"type": "ephemeral"}),
                {"type": "image_url", "image_url": {"url": "u", "detail": "low"}, "more": "x"},
                {"type": "image_url", "image_url": {"url": "u", "more": "x"}},
                {"type": "file", "file": {"file_data": "d", "filename": "n"}},
                {"type": "input_audio", "input_audio": {"data": "d", "format": "wav"}},
                {"type": "video", "video": {"url": "v"}},
            ],
        },
        {
            "role": "assistant",
            "content": [said("So", "text"), {"type": "refusal", "refusal": "No."}],
            "refusal": "No.",
            "reasoning_content": "Hm",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "f", "arguments": "{}"},
                },
                CUSTOM_CALL,
                {
                    "id": "call_3",
                    "type": "function",
                    "index": 2,
                    "function": {"name": "f", "arguments": {"a": 1}},
                },
            ],
        },
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "tool", "tool_call_id": "call_1", "content": [said("4", "text")] * 2},
        {"role": "tool", "tool_call_id": "call_2", "content": "y", "name": "g"},
        {"role": "narrator", "content": "Later"},
        {"role": "user", "content": [said("What", "text"), said("now?", "text")]},
    ],
    "tools": [
        {"type": "function", "function": {**FUNCTION, "strict": True}},
        {"type": "function", "function": {"name": "g2", "more": True}},
        {
            "type": "custom",
            "custom": {"name": "g", "format": {"type": "grammar", "grammar": LARK}},
        },
    ],
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "required",
            "tools": [
                {"type": "function", "function": {"name": "f"}},
                {"type": "custom", "custom": {"name": "g"}},
            ],
        },
    },
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "s", "schema": SCHEMA, "strict": True, "description": "D"},
    },
    "verbosity": "low",
    "reasoning_effort": "low",
    "logprobs": True,
    "top_logprobs": 3,
    "max_tokens": 9,
    "truncation": "auto",
    **SETTINGS,
}
LAST: Final = (("input", len(RESPONSES["input"]) - 1), ("messages", len(CHAT["messages"]) - 1))
SURFACES: Final = {"responses": (from_responses, RESPONSES), "chat": (from_chat, CHAT)}


def paths(value: Any, way: Path = ()) -> Iterator[tuple[Path, Any]]:
    yield way, value
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from paths(inner, (*way, name))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from paths(inner, (*way, i))


def at(body: Any, way: Path) -> Any:
    for step in way:
        body = body[step]
    return body


def names(surface: str, body: JSON) -> CacheKeys | None:
    made = SURFACES[surface][0](body)
    return None if not hasattr(made, "canonical") else keys(cached(made), scope="s")


def check(surface: str, body: JSON, way: Path) -> None:
    """The body, which was changed there, has other keys, or none."""
    after = names(surface, body)
    if after is None:
        return
    before = names(surface, SURFACES[surface][1])
    assert before is not None
    assert after.key != before.key, way
    if not (way[:2] in LAST and way[-1] in ("text", "order")):
        assert after.namespace != before.namespace, way


OTHERWISE: Final[dict[type, Any]] = {
    str: lambda v: v + "x",
    int: lambda v: v + 1,
    float: lambda v: v / 2,
    bool: lambda v: not v,
    type(None): lambda v: "x",
}


@pytest.mark.parametrize("surface", SURFACES)
def test_every_changed_leaf_changes_the_keys(surface: str) -> None:
    body = SURFACES[surface][1]
    for way, value in paths(body):
        if isinstance(value, dict | list):
            continue
        changed = copy.deepcopy(body)
        at(changed, way[:-1])[way[-1]] = OTHERWISE[type(value)](value)
        check(surface, changed, way)


SAME_WITHOUT: Final[set[Path]] = {
    ("input", 1, "type"),
    ("messages", 2, "tool_calls", 0, "type"),
}


@pytest.mark.parametrize("surface", SURFACES)
def test_every_removed_member_changes_the_keys(surface: str) -> None:
    body = SURFACES[surface][1]
    for way, value in paths(body):
        if not way or value is None or way in SAME_WITHOUT:
            continue
        changed = copy.deepcopy(body)
        del at(changed, way[:-1])[way[-1]]
        check(surface, changed, way)


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("value", [0, "", False, [1], {"a": None}], ids=str)
def test_every_unknown_member_changes_the_keys(surface: str, value: Any) -> None:
    body = SURFACES[surface][1]
    for way, inner in paths(body):
        if isinstance(inner, dict):
            changed = copy.deepcopy(body)
            at(changed, way)["zz_unknown"] = value
            check(surface, changed, (*way, "zz_unknown"))


@pytest.mark.parametrize("surface", SURFACES)
def test_the_order_of_lists_counts(surface: str) -> None:
    body = SURFACES[surface][1]
    for way, inner in paths(body):
        if isinstance(inner, list) and len(inner) > 1 and inner[0] != inner[1]:
            changed = copy.deepcopy(body)
            there = at(changed, way)
            there[0], there[1] = there[1], there[0]
            if way == ("include",):
                assert names(surface, changed) == names(surface, body)
            else:
                check(surface, changed, (*way, "order"))
