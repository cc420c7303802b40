"""Whatever the history, nothing a client said is lost on the way to chat messages."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from router.dialects.chat.messages import to_messages
from router.dialects.parts import PartConverter, chat_part, ollama_part
from router.dialects.responses.schema import validate_create

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}

IDS = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("user"), st.booleans()),
        st.tuples(st.just("said"), st.booleans()),
        st.tuples(st.just("call"), IDS),
        st.tuples(st.just("result"), IDS),
        st.tuples(st.just("custom"), IDS),
        st.tuples(st.just("thought"), st.booleans()),
        st.tuples(st.just("hosted"), st.booleans()),
    ),
    min_size=1,
    max_size=14,
)


def text(value: str) -> dict[str, Any]:
    return {"type": "input_text", "text": value}


def message(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def history(steps: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    """Items that each carry their own number as text."""
    items: list[dict[str, Any]] = []
    for i, (kind, detail) in enumerate(steps):
        mark = f"{kind}-{i};"
        if kind == "user":
            items.append(message("user", [text(mark), IMAGE] if detail else mark))
        elif kind == "said":
            items.append(message("assistant", mark if detail else ""))
        elif kind == "call":
            arguments = f'{{"mark":"{mark}"}}'
            items.append(
                {"type": "function_call", "call_id": detail, "name": "f", "arguments": arguments}
            )
        elif kind == "custom":
            items.append(
                {"type": "custom_tool_call", "call_id": detail, "name": "c", "input": mark}
            )
        elif kind == "result":
            output = [text(mark), IMAGE] if i % 3 else mark
            items.append({"type": "function_call_output", "call_id": detail, "output": output})
        elif kind == "thought":
            items.append({"type": "reasoning", "summary": [], "content": [text(mark)]})
        else:
            items.append({"type": "web_search_call", "id": "ws_1", "status": "completed"})
    return items


def convert(items: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
    body = {"model": "m", "input": items}
    validate_create(body)
    return to_messages(body, **options)


def marks(messages: list[dict[str, Any]], kind: str) -> list[str]:
    return [word for word in repr(messages).replace("'", '"').split('"') if kind in word]


@settings(max_examples=200)
@given(STEPS, st.sampled_from([chat_part, ollama_part]), st.booleans())
def test_nothing_said_is_lost(
    steps: list[tuple[str, Any]], converter: PartConverter, reasoning: bool
) -> None:
    items = history(steps)
    messages = convert(items, convert=converter, reasoning=reasoning)
    written = repr(messages)
    for i, (kind, detail) in enumerate(steps):
        if kind in ("user", "call", "result", "custom") or (kind == "said" and detail):
            assert written.count(f"{kind}-{i};") == 1
    for kind in ("user-", "said-"):
        numbers = [int(word.split(kind)[1].split(";")[0]) for word in marks(messages, kind)]
        assert numbers == sorted(numbers)
    images = sum(k == "user" and d for k, d in steps)
    images += sum(k == "result" and i % 3 > 0 for i, (k, _) in enumerate(steps))
    assert written.count("iVBORw0KGgo=") == images


@settings(max_examples=200)
@given(STEPS)
def test_results_directly_follow_the_message_with_their_call(steps: list[tuple[str, Any]]) -> None:
    items = history(steps)
    called = {detail for kind, detail in steps if kind in ("call", "custom")} | {"call_ws_1"}
    offered: set[str] = set()
    for entry in convert(items):
        if entry["role"] == "assistant":
            offered = {call["id"] for call in entry.get("tool_calls", ())}
        elif entry["role"] == "tool":
            assert entry["tool_call_id"] in offered or entry["tool_call_id"] not in called
            if entry["tool_call_id"] not in called:
                offered = set()
        else:
            offered = set()
