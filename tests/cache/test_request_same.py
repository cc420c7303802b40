"""One canonical request, whichever surface it was asked on."""

from __future__ import annotations

import pytest

from cache.request import keys
from tests.support.asking import (
    CALL,
    CALL_ITEM,
    CUSTOM_CALL,
    CUSTOM_ITEM,
    JSON,
    LARK,
    RESULT,
    RESULT_ITEM,
    SCHEMA,
    USER,
    cached,
    chat,
    from_chat,
    from_responses,
    function,
    item,
    make,
    responses,
    said,
)

SAME: dict[str, tuple[JSON, JSON]] = {
    "string": (responses("Hi"), chat(USER)),
    "easy message": (responses([USER]), chat(USER)),
    "one part": (responses([item("user", said("Hi"))]), chat(USER)),
    "one part on both": (
        responses([item("user", said("Hi"))]),
        chat({"role": "user", "content": [said("Hi", "text")]}),
    ),
    "two parts": (
        responses([item("user", said("Hi"), said("there"))]),
        chat({"role": "user", "content": [said("Hi", "text"), said("there", "text")]}),
    ),
    "empty text": (responses(""), chat({"role": "user", "content": ""})),
    "instructions": (
        responses("Hi", instructions="Be brief."),
        chat({"role": "system", "content": "Be brief."}, USER),
    ),
    "instructions as items": (
        responses("Hi", instructions=[item("developer", said("Be brief."))]),
        chat({"role": "developer", "content": "Be brief."}, USER),
    ),
    "system item": (
        responses([{"role": "system", "content": "Be brief."}, USER]),
        chat({"role": "system", "content": "Be brief."}, USER),
    ),
    "instructions before a system item": (
        responses([{"role": "system", "content": "B"}, USER], instructions="A"),
        chat({"role": "system", "content": "A"}, {"role": "system", "content": "B"}, USER),
    ),
    "history": (
        responses([USER, {"role": "assistant", "content": "Hello"}, USER]),
        chat(USER, {"role": "assistant", "content": "Hello"}, USER),
    ),
    "history as it was answered": (
        responses(
            [
                item("user", said("Hi"), id="msg_1", status="completed"),
                item(
                    "assistant",
                    said("Hello", "output_text", annotations=[], logprobs=[]),
                    id="msg_2",
                    status="completed",
                ),
                USER,
            ]
        ),
        chat(
            USER,
            {
                "role": "assistant",
                "content": "Hello",
                "refusal": None,
                "annotations": [],
                "tool_calls": None,
                "function_call": None,
                "audio": None,
            },
            USER,
        ),
    ),
    "refusal": (
        responses([USER, item("assistant", {"type": "refusal", "refusal": "No."}), USER]),
        chat(USER, {"role": "assistant", "content": None, "refusal": "No."}, USER),
    ),
    "refusal as a part": (
        responses([USER, item("assistant", {"type": "refusal", "refusal": "No."}), USER]),
        chat(
            USER,
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            USER,
        ),
    ),
    "image": (
        responses(
            [item("user", said("Hi"), {"type": "input_image", "image_url": "http://x/y.png"})]
        ),
        chat(
            {
                "role": "user",
                "content": [
                    said("Hi", "text"),
                    {"type": "image_url", "image_url": {"url": "http://x/y.png"}},
                ],
            }
        ),
    ),
    "image with its detail": (
        responses([item("user", {"type": "input_image", "image_url": "u", "detail": "low"})]),
        chat(
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "u", "detail": "low"}}],
            }
        ),
    ),
    "image with the default detail": (
        responses(
            [
                item(
                    "user",
                    {"type": "input_image", "image_url": "u", "file_id": None, "detail": "auto"},
                )
            ]
        ),
        chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}),
    ),
    "file": (
        responses([item("user", {"type": "input_file", "file_data": "d", "filename": "a.pdf"})]),
        chat(
            {
                "role": "user",
                "content": [{"type": "file", "file": {"file_data": "d", "filename": "a.pdf"}}],
            }
        ),
    ),
    "audio": (
        responses([item("user", {"type": "input_audio", "input_audio": {"data": "d"}})]),
        chat({"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "d"}}]}),
    ),
    "function": (
        responses(tools=[{"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}]),
        chat(tools=[function(parameters=SCHEMA)]),
    ),
    "strict function": (
        responses(tools=[{"type": "function", "name": "f", "parameters": SCHEMA}]),
        chat(tools=[function(parameters=SCHEMA, strict=True)]),
    ),
    "function with nulls": (
        responses(
            tools=[{"type": "function", "name": "f", "description": None, "parameters": None}]
        ),
        chat(tools=[function(strict=True, description=None)]),
    ),
    "described function": (
        responses(tools=[{"type": "function", "name": "f", "description": "D", "strict": False}]),
        chat(tools=[function(description="D", strict=False)]),
    ),
    "custom tool": (
        responses(tools=[{"type": "custom", "name": "g", "format": {"type": "text"}}]),
        chat(tools=[{"type": "custom", "custom": {"name": "g"}}]),
    ),
    "grammar": (
        responses(tools=[{"type": "custom", "name": "g", "format": {"type": "grammar", **LARK}}]),
        chat(
            tools=[
                {
                    "type": "custom",
                    "custom": {"name": "g", "format": {"type": "grammar", "grammar": LARK}},
                }
            ]
        ),
    ),
    "no tools": (responses(tools=[]), chat(tools=[])),
    "choice auto": (responses(tool_choice="auto"), chat()),
    "choice required": (responses(tool_choice="required"), chat(tool_choice="required")),
    "choice none": (responses(tool_choice="none"), chat(tool_choice="none")),
    "choice of a function": (
        responses(tool_choice={"type": "function", "name": "f"}),
        chat(tool_choice=function()),
    ),
    "choice of a custom tool": (
        responses(tool_choice={"type": "custom", "name": "g"}),
        chat(tool_choice={"type": "custom", "custom": {"name": "g"}}),
    ),
    "allowed tools": (
        responses(
            tool_choice={
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "g"}],
            }
        ),
        chat(
            tool_choice={
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [function(), {"type": "custom", "custom": {"name": "g"}}],
                },
            }
        ),
    ),
    "parallel calls": (responses(parallel_tool_calls=True), chat()),
    "one call at a time": (responses(parallel_tool_calls=False), chat(parallel_tool_calls=False)),
    "plain text": (responses(text={"format": {"type": "text"}}), chat()),
    "plain text on both": (
        responses(text={"format": {"type": "text"}, "verbosity": "medium"}),
        chat(response_format={"type": "text"}, verbosity="medium"),
    ),
    "json object": (
        responses(text={"format": {"type": "json_object"}}),
        chat(response_format={"type": "json_object"}),
    ),
    "json schema": (
        responses(text={"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}}),
        chat(
            response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
        ),
    ),
    "json schema in full": (
        responses(
            text={
                "format": {
                    "type": "json_schema",
                    "name": "s",
                    "schema": SCHEMA,
                    "strict": True,
                    "description": "D",
                }
            }
        ),
        chat(
            response_format={
                "type": "json_schema",
                "json_schema": {
                    "name": "s",
                    "schema": SCHEMA,
                    "strict": True,
                    "description": "D",
                },
            }
        ),
    ),
    "json schema, not strict": (
        responses(
            text={"format": {"type": "json_schema", "name": "s", "schema": SCHEMA, "strict": False}}
        ),
        chat(
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "s", "schema": SCHEMA, "strict": None},
            }
        ),
    ),
    "limit": (responses(max_output_tokens=9), chat(max_completion_tokens=9)),
    "old limit": (responses(max_output_tokens=9), chat(max_tokens=9)),
    "effort": (responses(reasoning={"effort": "low"}), chat(reasoning_effort="low")),
    "no effort": (responses(reasoning={"effort": None}), chat(reasoning_effort=None)),
    "verbosity": (responses(text={"verbosity": "low"}), chat(verbosity="low")),
    "logprobs": (
        responses(include=["message.output_text.logprobs"]),
        chat(logprobs=True),
    ),
    "top logprobs": (
        responses(include=["message.output_text.logprobs"], top_logprobs=3),
        chat(logprobs=True, top_logprobs=3),
    ),
    "no logprobs": (responses(top_logprobs=0, include=[]), chat(logprobs=False, top_logprobs=0)),
    "temperature": (responses(temperature=0), chat(temperature=0.0)),
    "default temperature": (responses(temperature=1.0), chat(temperature=1)),
    "minus zero": (responses(temperature=0), chat(temperature=-0.0)),
    "top_p": (responses(top_p=0.5), chat(top_p=0.5)),
    "default top_p": (responses(), chat(top_p=1)),
    "penalties": (responses(), chat(frequency_penalty=0, presence_penalty=0.0)),
    "n": (responses(), chat(n=1)),
    "modalities": (responses(), chat(modalities=["text"])),
    "service tier": (responses(service_tier="auto"), chat()),
    "truncation": (responses(truncation="disabled"), chat()),
    "background": (responses(background=False), chat()),
    "other settings": (responses(seed=1, stop=["x"], top_k=5), chat(seed=1, stop=["x"], top_k=5)),
    "calls and results": (
        responses([USER, {**CALL_ITEM, "id": "fc_1", "status": "completed"}, RESULT_ITEM]),
        chat(USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT),
    ),
    "text with calls": (
        responses([USER, {"role": "assistant", "content": "So"}, CALL_ITEM, RESULT_ITEM]),
        chat(USER, {"role": "assistant", "content": "So", "tool_calls": [CALL]}, RESULT),
    ),
    "two calls": (
        responses([USER, CALL_ITEM, CUSTOM_ITEM, RESULT_ITEM]),
        chat(USER, {"role": "assistant", "tool_calls": [CALL, CUSTOM_CALL]}, RESULT),
    ),
    "result in parts": (
        responses([USER, CALL_ITEM, {**RESULT_ITEM, "output": [said("4"), said("2")]}]),
        chat(
            USER,
            {"role": "assistant", "tool_calls": [CALL]},
            {**RESULT, "content": [said("4", "text"), said("2", "text")]},
        ),
    ),
    "result of a custom tool": (
        responses(
            [
                USER,
                CUSTOM_ITEM,
                {"type": "custom_tool_call_output", "call_id": "call_2", "output": "y"},
            ]
        ),
        chat(
            USER,
            {"role": "assistant", "tool_calls": [CUSTOM_CALL]},
            {"role": "tool", "tool_call_id": "call_2", "content": "y"},
        ),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_both_surfaces_ask_the_same(name: str) -> None:
    ours, theirs = SAME[name]
    one, other = cached(from_responses(ours)), cached(from_chat(theirs))
    assert one.canonical == other.canonical
    assert keys(one, scope="s") == keys(other, scope="s")
    assert (one.text, one.exact_only) == (other.text, other.exact_only)


def test_an_explicit_default_temperature_finds_the_same_answers() -> None:
    one, other = make(responses(temperature=1.0)), make(chat())
    assert keys(one, scope="s") == keys(other, scope="s")
