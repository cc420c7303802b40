"""What differs, what is never cached, and what is found exactly or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from cache.request import Bypass, keys
from tests.support.asking import (
    CALL,
    CALL_ITEM,
    JSON,
    RESULT,
    RESULT_ITEM,
    SCHEMA,
    USER,
    chat,
    from_chat,
    from_responses,
    function,
    item,
    make,
    responses,
    said,
)

NAMESPACE: JSON = {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}

DIFFERENT: dict[str, tuple[JSON, JSON]] = {
    "each surface's functions are strict by its own default": (
        responses(tools=[{"type": "function", "name": "f"}]),
        chat(tools=[function()]),
    ),
    "developer and system": (
        responses([{"role": "developer", "content": "A"}, USER]),
        chat({"role": "system", "content": "A"}, USER),
    ),
    "one text and two": (
        responses([item("user", said("a\nb"))]),
        chat({"role": "user", "content": [said("a", "text"), said("b", "text")]}),
    ),
    "calls in two messages": (
        responses([USER, {"role": "assistant", "content": "So"}, CALL_ITEM, RESULT_ITEM]),
        chat(
            USER,
            {"role": "assistant", "content": "So"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            RESULT,
        ),
    ),
    "a name": (responses([{**USER, "name": "Bob"}]), chat({**USER, "name": "Bob"})),
    "both limits": (
        responses(max_output_tokens=9, max_tokens=8),
        chat(max_completion_tokens=9, max_tokens=8),
    ),
    "fields of the other surface": (responses(max_tokens=8), chat(max_tokens=8)),
    "top logprobs of nothing": (responses(top_logprobs=3), chat(top_logprobs=3)),
    "an empty instruction": (
        responses("Hi", instructions=""),
        chat({"role": "system", "content": ""}, USER),
    ),
    "a tool in the other's form": (
        responses(tools=[{"type": "function", "name": "f", "function": {"name": "g"}}]),
        chat(tools=[{"type": "function", "name": "f", "function": {"name": "g"}}]),
    ),
    "the order of a schema's properties": (
        responses(text={"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}}),
        responses(
            text={
                "format": {
                    "type": "json_schema",
                    "name": "s",
                    "schema": {
                        **SCHEMA,
                        "properties": dict(reversed(SCHEMA["properties"].items())),  # type: ignore[attr-defined]
                    },
                }
            }
        ),
    ),
    "a name without content": (chat({"role": "user", "name": "a"}), chat({"role": "user"})),
    "calls without content": (
        chat(USER, {"role": "assistant", "tool_calls": [CALL]}),
        chat(USER, {"role": "assistant"}),
    ),
    "a namespace and its tools by themselves": (
        responses(tools=[NAMESPACE]),
        responses(tools=NAMESPACE["tools"]),
    ),
    "namespaces of two names": (
        responses(tools=[NAMESPACE]),
        responses(tools=[{**NAMESPACE, "name": "o"}]),
    ),
    "calls of the same name in two namespaces": (
        responses([USER, {**CALL_ITEM, "namespace": "n"}, RESULT_ITEM], tools=[NAMESPACE]),
        responses([USER, {**CALL_ITEM, "namespace": "o"}, RESULT_ITEM], tools=[NAMESPACE]),
    ),
    "what a search has found": (
        responses([USER, {"type": "tool_search_output", "call_id": "c", "tools": []}]),
        responses([USER, {"type": "tool_search_output", "call_id": "c", "tools": [NAMESPACE]}]),
    ),
    "true is not 1": (chat(temperature=True), chat(temperature=1)),
    "a parameter that is null and one that is an empty object": (
        chat(tools=[function()]),
        chat(tools=[function(parameters={})]),
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_may_be_answered_differently_differs(name: str) -> None:
    one, other = (keys(make(body), scope="s") for body in DIFFERENT[name])
    assert one.key != other.key
    assert one.namespace != other.namespace


BYPASSED: list[tuple[str, JSON]] = [
    ("state", responses(previous_response_id="resp_1")),
    ("state", responses(conversation="conv_1")),
    ("state", responses([{"type": "item_reference", "id": "msg_1"}])),
    ("state", responses([{"id": "msg_1"}])),
    ("state", chat(conversation="conv_1")),
    ("background", responses(background=True)),
    ("background", responses(stream=True, stream_options={"durable": True})),
    ("server_tools", responses(tools=[{"type": "function", "name": "f"}, {"type": "web_search"}])),
    ("server_tools", responses(tools=[{"type": "mcp", "server_label": "x"}])),
    ("server_tools", responses(tools=[{"type": "local_shell"}])),
    (
        "server_tools",
        responses([USER, {"type": "additional_tools", "tools": [{"type": "web_search"}]}]),
    ),
    ("server_tools", responses(tools=[{"type": "tool_search"}])),
    (
        "server_tools",
        responses(tools=[{**NAMESPACE, "tools": [{"type": "web_search"}]}]),
    ),
    ("compaction", responses(context_management=[{"type": "compaction"}])),
    ("compaction", responses([USER, {"type": "compaction_trigger"}])),
    ("compaction", responses([{"type": "compaction", "encrypted_content": "x"}, USER])),
    ("server_tools", chat(web_search_options={})),
    ("server_tools", chat(tools=[{"type": "web_search"}])),
    ("several_choices", chat(n=2)),
    (
        "files",
        {
            "model": "m",
            "input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}],
        },
    ),
    ("several_choices", chat(n=True)),
    ("audio", chat(modalities=["text", "audio"], audio={"voice": "v", "format": "mp3"})),
    ("audio", chat(USER, {"role": "assistant", "audio": {"id": "audio_1"}}, USER)),
    ("legacy_functions", chat(functions=[{"name": "f"}])),
    ("legacy_functions", chat(USER, {"role": "function", "name": "f", "content": "1"})),
    ("legacy_functions", chat(USER, {"role": "assistant", "function_call": {"name": "f"}}, USER)),
    ("unsupported", chat({"role": "user", "content": 5})),
    ("unsupported", chat({"role": "user", "content": [{"type": "text", "text": True}]})),
    ("unsupported", chat({"role": 1, "content": "x"})),
    ("unsupported", chat({"role": "user", "content": "\ud800"})),
    ("unsupported", chat({"role": "tool", "content": "x"})),
    ("unsupported", chat("x")),  # type: ignore[arg-type]
    ("unsupported", chat(seed=2**64)),
    ("unsupported", chat(temperature=float("nan"))),
    ("unsupported", chat(logit_bias={"1": float("inf")})),
    ("unsupported", {"model": "\ud800", "messages": []}),
    ("unsupported", {"model": 5, "messages": []}),
    ("unsupported", {"model": "m"}),
    ("unsupported", responses("\ud800")),
    ("unsupported", responses(top_p=float("inf"))),
]


@pytest.mark.parametrize(("reason", "body"), BYPASSED, ids=str)
def test_what_is_never_cached_says_why(reason: str, body: JSON) -> None:
    surface = from_responses if "input" in body else from_chat
    assert surface(body) == Bypass(reason)


@pytest.mark.parametrize("depth", [300, 100_000])
def test_deep_nesting_is_unsupported(depth: int) -> None:
    deep: Any = []
    for _ in range(depth):
        deep = [deep]
    assert from_chat(chat(anything=deep)) == Bypass("unsupported")
    while deep:  # freed from the outside, without recursion
        deep = deep.pop()


IMAGE = {"type": "input_image", "image_url": "u"}

EXACT: list[tuple[str | None, str | None, JSON]] = [
    (None, "Hi", responses()),
    (None, "Hi\nthere", responses([item("user", said("Hi"), said("there"))])),
    (None, "Hi", responses(temperature=0)),
    (None, "Hi", responses([{"type": "web_search_call", "id": "ws_1"}, USER])),
    ("sampled", "Hi", responses(temperature=0.1)),
    ("sampled", "Hi", responses(temperature=1)),
    ("sampled", "Hi", chat(temperature="1")),
    ("images", "Hi", responses([item("user", said("Hi"), IMAGE)])),
    ("images", None, responses([item("user", IMAGE)])),
    ("images", "Hi", responses([item("user", IMAGE), USER], temperature=1)),
    ("images", "Hi", responses([{"type": "image_generation_call", "id": "ig_1"}, USER])),
    ("images", "Hi", chat({"role": "user", "content": [{"type": "video"}]}, USER)),
    ("no_user_text", None, responses([USER, CALL_ITEM, RESULT_ITEM])),
    ("no_user_text", None, responses([USER, {"role": "assistant", "content": "So"}])),
    ("no_user_text", None, chat(USER, {"role": "system", "content": "Be brief."})),
    ("no_user_text", None, {"model": "m", "messages": []}),
    ("no_user_text", None, responses([item("user")])),
    ("logprobs", "Hi", responses(include=["message.output_text.logprobs"])),
    ("logprobs", "Hi", responses(top_logprobs=2)),
    ("logprobs", "Hi", chat(logprobs=True)),
    ("logprobs", "Hi", chat(logprobs=5)),
]


@pytest.mark.parametrize(("reason", "text", "body"), EXACT, ids=str)
def test_what_is_never_matched_by_similarity_says_why(
    reason: str | None, text: str | None, body: JSON
) -> None:
    request = make(body)
    assert (request.exact_only, request.text) == (reason, text)


def test_a_request_shows_nothing_of_what_was_asked() -> None:
    assert "secret" not in repr(make(responses("secret", instructions="secret")))


@pytest.mark.parametrize(
    "other",
    [
        {"type": "mcp_approval_request", "id": "mcpr_1", "name": "x", "arguments": "{}"},
        {"type": "local_shell_call_output", "id": "call_1", "output": "x"},
    ],
    ids=str,
)
def test_an_id_that_other_items_name_stays(other: JSON) -> None:
    renamed = {**other, "id": "another"}
    assert keys(make(responses([other, USER])), scope="s") != keys(
        make(responses([renamed, USER])), scope="s"
    )


@pytest.mark.parametrize(
    "other",
    [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {**RESULT_ITEM, "id": "fco_1", "status": "completed"},
    ],
    ids=str,
)
def test_other_ids_do_not(other: JSON) -> None:
    renamed = {**other, "id": "another"}
    renamed.pop("status", None)
    assert keys(make(responses([other, USER])), scope="s") == keys(
        make(responses([renamed, USER])), scope="s"
    )
