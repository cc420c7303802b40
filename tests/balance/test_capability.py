"""What requests need, what models are configured to do, and what is said when nobody can."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.balance.capability import (
    ALL_FEATURES,
    NO_FEATURES,
    Abilities,
    Feature,
    configured,
    missing_features,
    needs,
    stream_usage,
    too_long,
)
from router.dialects.chat.decode_request import decode_chat
from router.settings.schema import CapabilitySettings
from tests.support.reading import FUZZ

TOOLS, CHOICE, SCHEMA = Feature.TOOLS, Feature.TOOL_CHOICE, Feature.JSON_SCHEMA
VISION, REASONING = Feature.VISION, Feature.REASONING

FUNCTION = {"type": "function", "name": "f"}
CHAT_FUNCTION = {"type": "function", "function": {"name": "f"}}
HOSTED = {"type": "web_search"}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
CHAT_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
TEXT = {"type": "input_text", "text": "hi"}
JSON_SCHEMA = {"type": "json_schema", "name": "n", "schema": {}}


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}


def response(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "input": "hi", **fields}


@pytest.mark.parametrize(
    ("body", "needed"),
    [
        (response(), NO_FEATURES),
        (response(tools=[], tool_choice="required"), NO_FEATURES),
        (response(tools=[FUNCTION]), TOOLS),
        (response(tools=[HOSTED, {"type": "custom", "name": "c"}], tool_choice="auto"), TOOLS),
        (response(tools=[HOSTED, {"type": "mcp"}], tool_choice="required"), NO_FEATURES),
        (response(tools=[HOSTED, FUNCTION], tool_choice=HOSTED), TOOLS),
        (response(tools=[FUNCTION], tool_choice="none"), TOOLS),
        (response(tools=[FUNCTION], tool_choice="required"), TOOLS | CHOICE),
        (response(tools=[FUNCTION], tool_choice=FUNCTION), TOOLS | CHOICE),
        (response(tools=[FUNCTION], tool_choice={"type": "custom", "name": "c"}), TOOLS | CHOICE),
        (
            response(
                tools=[FUNCTION],
                tool_choice={"type": "allowed_tools", "mode": "required", "tools": [FUNCTION]},
            ),
            TOOLS | CHOICE,
        ),
        (
            response(
                tools=[FUNCTION],
                tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [FUNCTION]},
            ),
            TOOLS,
        ),
        (response(text={"format": JSON_SCHEMA}), SCHEMA),
        (response(text={"format": {"type": "json_object"}}), NO_FEATURES),
        (response(text={"format": None}), NO_FEATURES),
        (response(input=[{"role": "user", "content": [TEXT, IMAGE]}]), VISION),
        (response(input=[{"role": "user", "content": [TEXT]}]), NO_FEATURES),
        (
            response(
                input=[{"type": "function_call_output", "call_id": "c", "output": [TEXT, IMAGE]}]
            ),
            VISION,
        ),
        (
            response(input=[{"type": "function_call_output", "call_id": "c", "output": "image"}]),
            NO_FEATURES,
        ),
        (
            response(
                input=[{"type": "computer_call_output", "output": {"type": "computer_screenshot"}}]
            ),
            VISION,
        ),
        (response(instructions=[{"role": "system", "content": [IMAGE]}]), VISION),
        (response(reasoning={"effort": "low"}), REASONING),
        (response(reasoning={"effort": "minimal"}), REASONING),
        (response(reasoning={"effort": "none"}), NO_FEATURES),
        (response(reasoning={"effort": None, "summary": "auto"}), NO_FEATURES),
        (chat(), NO_FEATURES),
        (chat(tools=[CHAT_FUNCTION]), TOOLS),
        (chat(tools=[CHAT_FUNCTION], tool_choice="required"), TOOLS | CHOICE),
        (chat(tools=[CHAT_FUNCTION], tool_choice=CHAT_FUNCTION), TOOLS | CHOICE),
        (
            chat(
                tools=[CHAT_FUNCTION],
                tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "required"}},
            ),
            TOOLS | CHOICE,
        ),
        (chat(functions=[{"name": "f"}]), TOOLS),
        (chat(functions=[{"name": "f"}], function_call={"name": "f"}), TOOLS | CHOICE),
        (chat(functions=[{"name": "f"}], function_call="auto"), TOOLS),
        (chat(response_format={"type": "json_schema", "json_schema": {}}), SCHEMA),
        (chat(response_format={"type": "json_object"}), NO_FEATURES),
        (chat(messages=[{"role": "user", "content": [CHAT_IMAGE]}]), VISION),
        (chat(messages=[{"role": "tool", "content": "an image_url"}]), NO_FEATURES),
        (chat(reasoning_effort="high"), REASONING),
        (chat(reasoning_effort="none"), NO_FEATURES),
        (
            response(
                tools=[FUNCTION],
                tool_choice="required",
                text={"format": JSON_SCHEMA},
                input=[{"role": "user", "content": [IMAGE]}],
                reasoning={"effort": "high"},
            ),
            ALL_FEATURES,
        ),
    ],
)
def test_what_a_request_needs(body: dict[str, Any], needed: Feature) -> None:
    if "messages" in body:
        body = decode_chat(body).body
    assert needs(body, ALL_FEATURES) == needed
    for feature in Feature:
        assert needs(body, feature) == needed & feature
        assert needs(body, ~feature) == needed & ~feature


def test_what_is_not_asked_for_is_not_looked_for() -> None:
    class Untouchable(dict[str, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            assert key not in ("input", "messages", "instructions"), "the history was searched"
            return super().get(key, default)

    body = Untouchable(response(tools=[FUNCTION]))
    assert needs(body, ~VISION) == TOOLS


LEAF = st.none() | st.booleans() | st.integers() | st.sampled_from(
    ["required", "json_schema", "input_image", "function", "none"]
)  # fmt: skip
FIELD = st.sampled_from(
    ["type", "content", "output", "format", "effort", "mode", "allowed_tools", "name"]
)
ODD = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELD, inner, max_size=3)
)
NAMES = (
    "tools", "tool_choice", "functions", "function_call", "text", "response_format", "input",
    "messages", "instructions", "reasoning", "reasoning_effort",
)  # fmt: skip


@FUZZ
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, ODD)))
def test_no_shape_is_too_odd(body: dict[str, Any]) -> None:
    found = needs(body, ALL_FEATURES)
    assert found in ALL_FEATURES
    assert CHOICE not in found or TOOLS in found


ENTRIES = {
    "*": CapabilitySettings(context_length=4096, vision=False),
    "llama*": CapabilitySettings(tools=True, reasoning=False, stream_usage=False),
    "llama3": CapabilitySettings(vision=True, context_length=8192),
    "phi:latest": CapabilitySettings(tool_choice=False, json_schema=False),
}


@pytest.mark.parametrize(
    ("model", "able"),
    [
        ("qwen", Abilities(VISION, 4096)),
        ("llama2", Abilities(VISION | REASONING, 4096, TOOLS)),
        ("llama3", Abilities(REASONING, 8192, TOOLS | VISION)),
        ("llama3:latest", Abilities(REASONING, 8192, TOOLS | VISION)),
        ("llama3:8b", Abilities(VISION | REASONING, 4096, TOOLS)),
        ("phi", Abilities(VISION | CHOICE | SCHEMA, 4096)),
        ("phi:latest", Abilities(VISION | CHOICE | SCHEMA, 4096)),
        ("LLAMA3", Abilities(VISION, 4096)),
    ],
)
def test_what_is_configured(model: str, able: Abilities) -> None:
    assert configured(ENTRIES, model) == able


def test_nothing_is_configured() -> None:
    assert configured({}, "m") == Abilities()
    assert configured({"x": CapabilitySettings(tools=True)}, "m") == Abilities()


def test_every_feature_can_be_configured() -> None:
    everything = {str(feature.name).lower(): False for feature in Feature}
    entries = {"m": CapabilitySettings.model_validate(everything)}
    assert configured(entries, "m") == Abilities(ALL_FEATURES)


def test_token_counts_of_streams() -> None:
    assert stream_usage(ENTRIES, "llama3") is False
    assert stream_usage(ENTRIES, "qwen") is None
    assert (
        stream_usage({**ENTRIES, "llama3": CapabilitySettings(stream_usage=True)}, "llama3") is True
    )


@pytest.mark.parametrize(
    ("before", "learned", "after"),
    [
        (Abilities(), Abilities(TOOLS), Abilities(TOOLS)),
        (Abilities(VISION, 4096), Abilities(TOOLS), Abilities(VISION | TOOLS, 4096)),
        (Abilities(has=TOOLS), Abilities(TOOLS), Abilities(has=TOOLS)),
        (Abilities(VISION), Abilities(context=2048), Abilities(VISION, 2048)),
        (Abilities(context=4096), Abilities(context=2048), Abilities(context=2048)),
        (Abilities(context=4096), Abilities(context=8192), Abilities(context=4096)),
    ],
)
def test_what_is_learned(before: Abilities, learned: Abilities, after: Abilities) -> None:
    assert before.after(learned) == after
    assert after.after(learned) == after


@pytest.mark.parametrize(
    ("needed", "lacks", "what", "param"),
    [
        (VISION, [VISION], "images in the input (vision)", "input"),
        (TOOLS | VISION, [TOOLS | VISION, TOOLS], "function tools", "tools"),
        (
            TOOLS | CHOICE | SCHEMA,
            [ALL_FEATURES],
            "function tools, a forced tool choice and a JSON schema for the answer",
            "tools",
        ),
        (
            TOOLS | SCHEMA,
            [TOOLS | VISION, SCHEMA],
            "function tools and a JSON schema for the answer at once",
            "tools",
        ),
        (SCHEMA, [int(SCHEMA)], "a JSON schema for the answer", "text.format"),
        (CHOICE, [CHOICE, ALL_FEATURES], "a forced tool choice", "tool_choice"),
        (REASONING, [REASONING], "a reasoning effort", "reasoning"),
    ],
)
def test_what_is_said_when_nobody_can(
    needed: Feature, lacks: list[int], what: str, param: str
) -> None:
    unmet = missing_features("m", needed, iter(lacks))
    assert unmet == (f"No endpoint that serves 'm' supports {what}.", param)


def test_what_is_said_of_a_request_that_is_too_long() -> None:
    said = "The request has about 9000 tokens; the largest context for 'm' is 4096."
    assert too_long(response(), "m", 9000, 4096) == (said, "input")


def test_names_of_models_are_cut() -> None:
    assert "x" * 200 + "'" in too_long(response(), "x" * 1000, 2, 1).message
    assert "x" * 200 + "'" in missing_features("x" * 1000, TOOLS, [TOOLS]).message
