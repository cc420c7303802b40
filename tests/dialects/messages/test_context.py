"""What is cleared of a history: by example, and what is true of every history."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types.beta import BetaContextManagementResponse
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.history import match
from router.dialects.messages.context import CLEARED
from router.dialects.messages.decode_request import (
    DecodedMessagesRequest,
    decode_count_request,
    decode_messages_request,
)
from router.dialects.messages.thinking import sign
from router.errors import InvalidRequest
from tests.support.anthropic import asked
from tests.support.reading import FUZZ

LONG = "word " * 400
TOOL_USES = "clear_tool_uses_20250919"
THINKING = "clear_thinking_20251015"
EVERY_TIME: dict[str, Any] = {"type": TOOL_USES, "trigger": {"type": "tool_uses", "value": 1}}


def thought(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": sign("pm1.acc0.blob")}


def used(ident: str, name: str = "read", result: Any = LONG) -> list[Any]:
    call = {"type": "tool_use", "id": ident, "name": name, "input": {"path": ident * 50}}
    answer = {"type": "tool_result", "tool_use_id": ident, "content": result}
    return [
        {"role": "assistant", "content": [thought(f"About {ident}"), call]},
        {"role": "user", "content": [answer]},
    ]


def edited(messages: list[Any], *edits: Any) -> DecodedMessagesRequest:
    said = [{"role": "user", "content": "Go"}, *messages]
    return decode_messages_request(asked(messages=said, context_management={"edits": list(edits)}))


def outputs(found: DecodedMessagesRequest) -> list[Any]:
    items = found.body["input"]
    return [item["output"] for item in items if item["type"] == "function_call_output"]


def inputs(found: DecodedMessagesRequest) -> list[str]:
    items = found.body["input"]
    return [item["arguments"] for item in items if item["type"] == "function_call"]


FIVE = [message for n in range(5) for message in used(f"t{n}", "web" if n == 1 else "read")]


@pytest.mark.parametrize(
    ("edit", "cleared"),
    [
        ({"type": TOOL_USES}, []),
        (EVERY_TIME, [0, 1]),
        ({**EVERY_TIME, "trigger": {"type": "tool_uses", "value": 5}}, []),
        ({**EVERY_TIME, "trigger": {"type": "input_tokens", "value": 1000}}, [0, 1]),
        ({**EVERY_TIME, "trigger": {"type": "input_tokens", "value": 10_000}}, []),
        ({**EVERY_TIME, "keep": {"type": "tool_uses", "value": 0}}, [0, 1, 2, 3, 4]),
        ({**EVERY_TIME, "keep": {"type": "tool_uses", "value": 9}}, []),
        ({**EVERY_TIME, "exclude_tools": ["web"]}, [0]),
        ({**EVERY_TIME, "clear_at_least": {"type": "input_tokens", "value": 900}}, [0, 1]),
        ({**EVERY_TIME, "clear_at_least": {"type": "input_tokens", "value": 1100}}, []),
    ],
)
def test_results_of_tools(edit: Any, cleared: list[int]) -> None:
    found = edited(FIVE, edit)
    assert [n for n, output in enumerate(outputs(found)) if output == CLEARED] == cleared
    assert [output for output in outputs(found) if output != CLEARED] == [LONG] * (5 - len(cleared))
    assert "{}" not in inputs(found)
    assert found.edits.applied is not None
    assert [edit["cleared_tool_uses"] for edit in found.edits.applied] == (
        [len(cleared)] if cleared else []
    )
    assert (found.edits.tokens > 400 * len(cleared)) == bool(cleared)
    BetaContextManagementResponse.model_validate(found.edits.told()["context_management"])


@pytest.mark.parametrize(
    ("value", "cleared"), [(True, [0, 1]), (False, []), (["web"], [1]), ([], []), (None, [])]
)
def test_inputs_of_tools(value: Any, cleared: list[int]) -> None:
    found = edited(FIVE, {**EVERY_TIME, "clear_tool_inputs": value})
    assert [n for n, arguments in enumerate(inputs(found)) if arguments == "{}"] == cleared


def turns(count: int) -> list[Any]:
    return [
        message
        for n in range(count)
        for message in (
            {"role": "assistant", "content": [thought(f"Turn {n}"), {"type": "text", "text": "A"}]},
            {"role": "user", "content": "More"},
        )
    ]


def thoughts(found: DecodedMessagesRequest) -> list[str]:
    items = found.body["input"]
    return [i["summary"][0]["text"] for i in items if i["type"] == "reasoning"]


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        ({}, [2]),
        ({"keep": "all"}, [0, 1, 2]),
        ({"keep": {"type": "all"}}, [0, 1, 2]),
        ({"keep": {"type": "thinking_turns", "value": 2}}, [1, 2]),
        ({"keep": {"type": "thinking_turns", "value": 7}}, [0, 1, 2]),
    ],
)
def test_thinking(keep: Any, kept: list[int]) -> None:
    found = edited(turns(3), {"type": THINKING, **keep})
    assert thoughts(found) == [f"Turn {n}" for n in kept]
    assert found.edits.applied is not None
    assert [edit["cleared_thinking_turns"] for edit in found.edits.applied] == (
        [3 - len(kept)] if len(kept) < 3 else []
    )


def test_a_turn_goes_on_over_its_tools() -> None:
    found = edited([*used("a"), *used("b")], {"type": THINKING})
    assert thoughts(found) == ["About a", "About b"]
    assert found.edits.applied == []


def test_both() -> None:
    found = edited([*turns(2), *FIVE], {"type": THINKING}, EVERY_TIME)
    assert found.edits.applied is not None
    assert [edit["type"] for edit in found.edits.applied] == [THINKING, TOOL_USES]


def test_tools_that_were_found_stay_found() -> None:
    found = [{"type": "tool_reference", "tool_name": "late"}]
    schema: Any = {"type": "object"}
    late = {"name": "late", "input_schema": schema, "defer_loading": True}
    messages = [*used("a", "ToolSearch", found), *FIVE]
    body = asked(
        messages=messages,
        tools=[late, {"name": "x", "input_schema": schema}],
        context_management={"edits": [EVERY_TIME]},
    )
    made = decode_messages_request(body)
    assert outputs(made)[0] == CLEARED
    assert [tool["name"] for tool in made.body["tools"]] == ["x", "late"]


def test_compaction_is_named() -> None:
    found = edited([], {"type": "compact_20260112"}, {"type": TOOL_USES})
    assert found.dropped == ("context_management.edits.0",)
    assert decode_messages_request(asked(context_management={"x": 1})).dropped == (
        "context_management.x",
    )


def test_who_asks_for_nothing_is_told_nothing() -> None:
    assert decode_messages_request(asked()).edits.told() == {}
    assert edited([]).edits.told() == {"context_management": {"applied_edits": []}}


def test_a_count_is_of_what_is_left() -> None:
    body = asked(messages=FIVE, context_management={"edits": [EVERY_TIME]}, max_tokens=...)
    assert outputs(decode_count_request(body)).count(CLEARED) == 2


@pytest.mark.parametrize(
    ("edits", "path"),
    [
        (3, "edits"),
        ([3], "edits.0"),
        ([{}], "edits.0.type"),
        ([{"type": "clear_all"}], "edits.0.type"),
        ([{"type": TOOL_USES}, {"type": THINKING}], "edits.1"),
        ([{"type": THINKING, "keep": "some"}], "edits.0.keep"),
        ([{"type": THINKING, "keep": 3}], "edits.0.keep"),
        ([{"type": THINKING, "keep": {"type": "thinking_turns"}}], "edits.0.keep.value"),
        ([{"type": THINKING, "keep": {"type": "thinking_turns", "value": 0}}],
         "edits.0.keep.value"),
        ([{"type": TOOL_USES, "trigger": {"type": "days", "value": 1}}], "edits.0.trigger.type"),
        ([{"type": TOOL_USES, "trigger": {"type": "tool_uses"}}], "edits.0.trigger.value"),
        ([{"type": TOOL_USES, "keep": {"type": "input_tokens", "value": 1}}],
         "edits.0.keep.type"),
        ([{"type": TOOL_USES, "keep": {"type": "tool_uses", "value": -1}}], "edits.0.keep.value"),
        ([{"type": TOOL_USES, "clear_at_least": 3}], "edits.0.clear_at_least"),
        ([{"type": TOOL_USES, "exclude_tools": [3]}], "edits.0.exclude_tools.0"),
        ([{"type": TOOL_USES, "clear_tool_inputs": "a"}], "edits.0.clear_tool_inputs"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(edits: Any, path: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode_messages_request(asked(context_management={"edits": edits}))
    assert refused.value.param == f"context_management.{path}"


NAMES = st.sampled_from(["read", "web", "run"])
USE = st.builds(
    lambda n, name, result: used(f"t{n}", name, result),
    st.integers(0, 9),
    NAMES,
    st.sampled_from(["", "short", LONG, [{"type": "text", "text": LONG}]]),
)
SAID = st.builds(lambda: [{"role": "user", "content": "More"}])
EDIT = st.fixed_dictionaries(
    {"type": st.just(TOOL_USES)},
    optional={
        "trigger": st.builds(
            lambda kind, value: {"type": kind, "value": value},
            st.sampled_from(["tool_uses", "input_tokens"]),
            st.integers(1, 2000),
        ),
        "keep": st.builds(lambda n: {"type": "tool_uses", "value": n}, st.integers(0, 5)),
        "clear_at_least": st.builds(
            lambda n: {"type": "input_tokens", "value": n}, st.integers(0, 2000)
        ),
        "exclude_tools": st.lists(NAMES, max_size=2),
        "clear_tool_inputs": st.booleans() | st.lists(NAMES, max_size=2),
    },
)
KEEPS = st.sampled_from([{}, {"keep": "all"}, {"keep": {"type": "thinking_turns", "value": 2}}])


@FUZZ
@given(st.lists(USE | SAID, max_size=12), EDIT, KEEPS)
def test_every_history_stays_whole(parts: list[Any], edit: Any, keep: Any) -> None:
    messages = [message for part in parts for message in part]
    plain = edited(messages).body["input"]
    found = edited(messages, {"type": THINKING, **keep}, edit)
    items = found.body["input"]
    # Nothing but thinking goes, and every call keeps its output.
    left = [item for item in items if item["type"] != "reasoning"]
    before = [item for item in plain if item["type"] != "reasoning"]
    assert [(i["type"], i.get("call_id"), i.get("name")) for i in left] == [
        (i["type"], i.get("call_id"), i.get("name")) for i in before
    ]
    assert not match(items).orphans
    # The last ones stay as they are, and so do those of tools that are excluded.
    done = {one["type"]: one for one in found.edits.applied or ()}
    results = outputs(found)
    keeps = edit.get("keep", {"value": 3})["value"]
    assert CLEARED not in results[len(results) - keeps :]
    calls = [item for item in items if item["type"] == "function_call"]
    excluded = edit.get("exclude_tools", ())
    cleared = [n for n, output in enumerate(results) if output == CLEARED]
    assert not {calls[n]["name"] for n in cleared} & set(excluded)
    # What is told of it is what was done.
    uses = done.get(TOOL_USES, {"cleared_tool_uses": 0, "cleared_input_tokens": 0})
    assert uses["cleared_tool_uses"] == len(cleared)
    least = edit.get("clear_at_least", {"value": 0})["value"]
    assert not cleared or uses["cleared_input_tokens"] >= max(least, 1)
    gone = sum(i["type"] == "reasoning" for i in plain) - sum(
        i["type"] == "reasoning" for i in items
    )
    assert (THINKING in done) == (gone > 0)
    # The same once more: what the client sends next has the same beginning.
    assert edited(messages, {"type": THINKING, **keep}, edit).body["input"] == items
