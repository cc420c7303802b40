"""Generated requests, each on both surfaces."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.support.asking import JSON, chat, responses

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAME = st.sampled_from(["f", "g", "lookup"])
SCALAR = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
)
ANY = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)

Turn = tuple[str, Any]
"""``(role, text)``, ``("call", [(name, arguments), …])`` (answered right away), or parts."""

TURN = st.one_of(
    st.tuples(st.sampled_from(["user", "assistant", "system", "developer"]), TEXT),
    st.tuples(st.just("user"), st.lists(TEXT, min_size=2, max_size=3)),
    st.tuples(st.just("call"), st.lists(st.tuples(NAME, TEXT), min_size=1, max_size=2)),
)
QUESTION = st.tuples(st.just("user"), TEXT | st.lists(TEXT, min_size=2, max_size=3))
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0, 0.5, 1, 1.0]),
        "top_p": st.sampled_from([0.1, 1, None]),
        "seed": st.integers(0, 5),
        "stop": st.lists(TEXT, max_size=2),
        "parallel_tool_calls": st.booleans(),
        "service_tier": st.sampled_from(["auto", "flex", None]),
        "frequency_penalty": st.sampled_from([0, 0.5]),
    },
)
FORM = st.none() | st.fixed_dictionaries(
    {"name": NAME, "schema": st.just({"type": "object"}), "strict": st.booleans()}
)
TOOLS = st.lists(st.tuples(NAME, st.booleans()), max_size=2, unique_by=lambda tool: tool[0])


def call_id(turn: int, call: int) -> str:
    return f"call_{turn}_{call}"


def as_items(turns: list[Turn]) -> list[JSON]:
    items: list[JSON] = []
    for i, (role, said) in enumerate(turns):
        if role != "call":
            parts = said if isinstance(said, list) else [said]
            kind = "output_text" if role == "assistant" else "input_text"
            content = [{"type": kind, "text": text} for text in parts]
            items.append({"type": "message", "role": role, "content": content, "id": f"msg_{i}"})
            continue
        for j, (name, arguments) in enumerate(said):
            call = {"call_id": call_id(i, j), "name": name, "arguments": arguments}
            items.append({"type": "function_call", **call, "status": "completed"})
        for j in range(len(said)):
            result = {"call_id": call_id(i, j), "output": "done"}
            items.append({"type": "function_call_output", **result})
    return items


def as_messages(turns: list[Turn]) -> list[JSON]:
    messages: list[JSON] = []
    for i, (role, said) in enumerate(turns):
        if role != "call":
            parts = [{"type": "text", "text": text} for text in said]
            content = parts if isinstance(said, list) else said
            messages.append({"role": role, "content": content})
            continue
        calls = [
            {
                "id": call_id(i, j),
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for j, (name, arguments) in enumerate(said)
        ]
        if messages and messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]:
            messages[-1]["tool_calls"] = calls
        else:
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.extend(
            {"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in calls
        )
    return messages


@st.composite
def bodies(draw: st.DrawFn) -> tuple[JSON, JSON]:
    """The same request on both surfaces; it ends with a question."""
    turns = [*draw(st.lists(TURN, max_size=4)), draw(QUESTION)]
    settings, form, tools = draw(SETTINGS), draw(FORM), draw(TOOLS)
    ours, theirs = responses(as_items(turns), **settings), chat(**settings)
    theirs["messages"] = as_messages(turns)
    if form is not None:
        ours["text"] = {"format": {"type": "json_schema", **form}}
        theirs["response_format"] = {"type": "json_schema", "json_schema": form}
    ours["tools"] = [{"type": "function", "name": n, "strict": strict} for n, strict in tools]
    theirs["tools"] = [
        {"type": "function", "function": {"name": n, "strict": strict}} for n, strict in tools
    ]
    return ours, theirs
