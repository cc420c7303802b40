"""Items of requests as they are stored: full, with ids, and valid where the API lists them."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.dialects.paging import listing
from router.dialects.responses.input_items import check_items
from router.dialects.responses.schema import ID_PREFIXES, stored_items
from tests.support.reading import FUZZ
from tests.support.schema import faults


def counter() -> Callable[[str], str]:
    """Ids that no client of these tests uses."""
    count = itertools.count(1)
    return lambda prefix: f"{prefix}fresh{next(count):04d}"


def stored(*items: dict[str, Any], taken: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """What is stored of these items; it must be valid, and they must be as they were."""
    before = copy.deepcopy(list(items))
    check_items(before, "input")
    result = stored_items(list(items), counter(), taken)
    assert list(items) == before
    return result


def check_schema(items: list[dict[str, Any]], *names: str) -> None:
    for name in names or ("ResponseItemList", "ConversationItemList"):
        page = listing(items, False)
        if not items:
            page.update(first_id="", last_id="")
        assert faults(name, page) == []


def user(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **fields}


def assistant(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


TEXT = {"type": "input_text", "text": "hi"}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
DONE = {"status": "completed"}


def test_a_string_is_one_message() -> None:
    (item,) = stored_items("hi", counter())
    assert item == {
        "id": "msg_fresh0001",
        "type": "message",
        "status": "completed",
        "content": [{"type": "input_text", "text": "hi"}],
        "role": "user",
    }
    check_schema([item])


SPOKEN = {"type": "output_text", "annotations": [], "logprobs": []}


@pytest.mark.parametrize(
    ("role", "content", "parts"),
    [
        ("user", "hi", [TEXT]),
        ("system", "hi", [TEXT]),
        ("developer", [TEXT], [TEXT]),
        ("user", [], []),
        ("assistant", "hi", [{**SPOKEN, "text": "hi"}]),
        ("assistant", [{"type": "output_text", "text": "a"}], [{**SPOKEN, "text": "a"}]),
        (
            "assistant",
            [{"type": "output_text", "text": "a", "annotations": None, "logprobs": None}],
            [{**SPOKEN, "text": "a"}],
        ),
        ("assistant", [TEXT], [{**SPOKEN, "text": "hi"}]),
        (
            "assistant",
            [{"type": "refusal", "refusal": "no", "x": None}],
            [{"type": "refusal", "refusal": "no"}],
        ),
        ("user", [{"type": "text", "text": "a"}], [{"type": "input_text", "text": "a"}]),
        ("user", [{**SPOKEN, "text": "a"}], [{"type": "input_text", "text": "a"}]),
        (
            "user",
            [{"type": "refusal", "refusal": "no"}],
            [{"type": "input_text", "text": "no"}],
        ),
        (
            "user",
            [{"type": "input_image", "image_url": "data:x"}],
            [{"type": "input_image", "image_url": "data:x", "detail": "auto"}],
        ),
        (
            "user",
            [{"type": "input_image", "file_id": "f", "image_url": None, "detail": "low"}],
            [{"type": "input_image", "file_id": "f", "detail": "low"}],
        ),
        (
            "user",
            [{"type": "input_file", "file_data": "x", "filename": None}],
            [{"type": "input_file", "file_data": "x"}],
        ),
    ],
)
def test_the_content_of_messages(role: str, content: Any, parts: list[Any]) -> None:
    (item,) = stored({"role": role, "content": content})
    assert (item["type"], item["role"], item["status"]) == ("message", role, "completed")
    assert item["content"] == parts
    check_schema([item])


def test_annotations_and_logprobs_are_kept() -> None:
    cited = {"type": "url_citation", "url": "https://x", "title": "x"}
    part = {**SPOKEN, "text": "hi", "annotations": [{**cited, "start_index": 0, "end_index": 1}]}
    (item,) = stored(assistant([part], id="msg_a", status="incomplete", phase="commentary"))
    assert item["content"] == [part]
    assert (item["id"], item["status"], item["phase"]) == ("msg_a", "incomplete", "commentary")
    check_schema([item])


# Every item as a client may write it, and what is stored of it beside its id and type.
ITEMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (CALL, DONE),
    ({**CALL, "status": None, "namespace": None}, DONE),
    ({**CALL, "status": "in_progress"}, {"status": "in_progress"}),
    ({**CALL, "status": "lost"}, DONE),
    ({**CALL, "status": ["completed"]}, DONE),
    (RESULT, DONE),
    (
        {**RESULT, "output": [{"type": "output_text", "text": "hi"}]},
        {**DONE, "output": [TEXT]},
    ),
    ({**RESULT, "output": []}, {**DONE, "output": []}),
    ({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": ""}, DONE),
    ({"type": "custom_tool_call_output", "call_id": "c", "output": "x"}, DONE),
    ({"type": "custom_tool_call_output", "call_id": "c", "output": [TEXT]}, DONE),
    ({"type": "reasoning", "id": None, "encrypted_content": "x"}, {"summary": []}),
    (
        {"type": "reasoning", "summary": [], "content": None, "status": None},
        {"summary": []},
    ),
    (
        {
            "type": "computer_call_output",
            "call_id": "c",
            "output": {"type": "computer_screenshot", "image_url": "https://x"},
        },
        DONE,
    ),
    ({"type": "compaction", "encrypted_content": "x"}, {}),
    ({"type": "additional_tools", "role": "developer", "tools": []}, {}),
    (
        {"type": "web_search_call", **DONE, "action": {"type": "search", "query": "q"}},
        {},
    ),
    ({"type": "file_search_call", "status": "completed", "queries": ["q"], "results": None}, {}),
    (
        {"type": "code_interpreter_call", "status": "completed", "container_id": "c"},
        {"code": None, "outputs": None},
    ),
    ({"type": "image_generation_call", "status": "completed"}, {"result": None}),
    (
        {"type": "mcp_list_tools", "server_label": "s", "tools": [], "error": None},
        {},
    ),
    ({"type": "mcp_call", "server_label": "s", "name": "f", "arguments": "{}"}, {}),
    ({"type": "mcp_approval_request", "server_label": "s", "name": "f", "arguments": "{}"}, {}),
    ({"type": "tool_search_call", "arguments": {}}, {**DONE, "call_id": None}),
    ({"type": "tool_search_output", "tools": []}, {**DONE, "call_id": None}),
    (
        {
            "type": "shell_call",
            "call_id": "c",
            "action": {"commands": ["ls"], "timeout_ms": 1, "max_output_length": 1},
        },
        {**DONE, "environment": None},
    ),
    (
        {"type": "shell_call_output", "call_id": "c", "output": []},
        {**DONE, "max_output_length": None},
    ),
    ({"type": "apply_patch_call_output", "call_id": "c", "status": "completed"}, {}),
    ({"type": "local_shell_call_output", "call_id": "c", "output": "{}"}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("item", "added"), ITEMS)
def test_items(item: dict[str, Any], added: dict[str, Any]) -> None:
    (result,) = stored(item)
    kind = item["type"]
    plain = {k: v for k, v in item.items() if v is not None and k != "id"}
    assert {**plain, "id": f"{ID_PREFIXES[kind]}fresh0001", **added}.items() <= result.items()
    check_schema([result])


@pytest.mark.parametrize("name", ["ResponseItemList", "ConversationItemList"])
def test_a_whole_dialogue(name: str) -> None:
    items = stored(user("hi"), assistant("a"), *(item for item, _ in ITEMS))
    assert len({item["id"] for item in items}) == len(items)
    check_schema(items, name)


def test_every_type_of_item_has_a_prefix_of_its_own() -> None:
    from router.dialects.responses.input_items import _ITEM_TYPES

    assert set(ID_PREFIXES) == set(_ITEM_TYPES) - {"item_reference", "compaction_trigger"}
    assert len(set(ID_PREFIXES.values())) == len(ID_PREFIXES)


def test_an_order_to_compact_is_not_history() -> None:
    assert [item["role"] for item in stored(user("hi"), {"type": "compaction_trigger"})] == ["user"]


# -- ids


@pytest.mark.parametrize("ident", ["msg_1", "x", "resp_A-b_9", "a" * 128])
def test_a_clients_id_is_kept(ident: str) -> None:
    assert stored(user("hi", id=ident))[0]["id"] == ident


@pytest.mark.parametrize(
    "ident", [None, 5, "", " ", "a" * 129, "a/b", "a b", "ä", "a\n", "a\u0000", ["a"], {}]
)
def test_what_is_no_id_is_replaced(ident: Any) -> None:
    assert stored(user("hi", id=ident))[0]["id"] == "msg_fresh0001"


def test_an_id_is_used_once() -> None:
    first, second, third = stored(
        user("a", id="x"), {**CALL, "id": "x"}, user("b", id="y"), taken=("y",)
    )
    assert (first["id"], second["id"], third["id"]) == ("x", "fc_fresh0001", "msg_fresh0002")


# -- whatever comes

IDS = st.none() | st.sampled_from(["a", "b", "c", "no id", "x" * 130])
WORDS = st.text("ab\u0000\U0001f600", max_size=3)
PARTS = st.lists(
    st.one_of(
        st.builds(lambda x: {"type": "input_text", "text": x}, WORDS),
        st.builds(lambda x: {"type": "text", "text": x}, WORDS),
        st.builds(lambda x: {"type": "output_text", "text": x, "annotations": None}, WORDS),
        st.builds(lambda x: {"type": "refusal", "refusal": x}, WORDS),
        st.builds(lambda x: {"type": "input_image", "image_url": x, "detail": None}, WORDS),
    ),
    max_size=3,
)
ANY_ITEM = st.one_of(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "assistant", "system", "developer"]),
            "content": WORDS | PARTS,
        },
        optional={
            "id": IDS,
            "type": st.sampled_from([None, "message"]),
            "status": st.sampled_from([None, "completed", "incomplete", 5]),
        },
    ),
    st.builds(
        lambda known, ident: {**known[0], "id": ident},
        st.sampled_from(ITEMS),
        IDS,
    ),
)


@FUZZ
@given(st.lists(ANY_ITEM, max_size=6), st.sets(st.sampled_from("abc")))
def test_whatever_is_valid_can_be_stored(items: list[dict[str, Any]], taken: set[str]) -> None:
    result = stored(*items, taken=tuple(taken))
    assert len(result) == len(items)
    ids = [item["id"] for item in result]
    assert len(set(ids)) == len(ids)
    assert not taken & set(ids)
    check_items(result, "input")  # it will be the input of the next turn
    if not any(part["type"] == "input_image" for part in spoken(result)):
        check_schema(result)  # a model does not say images


def spoken(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [part for item in items if item.get("role") == "assistant" for part in item["content"]]


@FUZZ
@given(st.lists(ANY_ITEM, max_size=6))
def test_what_is_stored_stays_as_it_is(items: list[dict[str, Any]]) -> None:
    once = stored(*items)
    assert stored(*once) == once
