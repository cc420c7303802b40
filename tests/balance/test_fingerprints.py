"""The hashes of a request's beginnings: the same for the same conversation, however it is sent."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.balance.affinity import fingerprints

LONG = "Answer in the style of a ship's log. " * 30
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}

Item = dict[str, Any]


def user(content: Any) -> Item:
    return {"role": "user", "content": content}


def assistant(content: Any) -> Item:
    return {"role": "assistant", "content": content}


def call(arguments: str) -> Item:
    return {"type": "function_call", "call_id": "call_1", "name": "find", "arguments": arguments}


def result(output: Any) -> Item:
    return {"type": "function_call_output", "call_id": "call_1", "output": output}


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["role", "content", "type", "text", "id", "output", "tool_calls", "arguments", "summary"]
)
WORDS = st.sampled_from(["message", "reasoning", "user", "system", "input_text", "\ud800", ""])
LOOSE = st.dictionaries(FIELDS, WORDS | JSON, max_size=5)

TEXTS = st.text(max_size=20) | st.text(min_size=1, max_size=5).map(lambda text: text * 200)
ITEMS = st.one_of(
    st.builds(user, TEXTS),
    st.builds(assistant, TEXTS),
    st.builds(call, TEXTS),
    st.builds(result, TEXTS),
    st.just(user([{"type": "input_text", "text": "What is this?"}, IMAGE])),
    st.just({"type": "web_search_call", "action": {"type": "search", "query": "tides"}}),
)
BODIES = st.fixed_dictionaries(
    {"model": st.just("m"), "input": st.lists(ITEMS, max_size=6)},
    optional={"instructions": TEXTS, "prompt_cache_key": st.text(max_size=3)},
)


class TestPrefixes:
    @given(BODIES, st.lists(ITEMS, max_size=3))
    def test_a_turn_begins_with_the_turn_before(self, body: Item, more: list[Item]) -> None:
        before = fingerprints(body)
        after = fingerprints({**body, "input": [*body["input"], *more]})
        assert after[: len(before)] == before
        assert len(after) - len(before) <= len(more)

    def test_a_conversation_that_grows(self) -> None:
        items = [user("Hi"), assistant("Hello."), user("Who?"), call("{}"), result("me")]
        prints = fingerprints({"instructions": LONG, "input": items})
        assert len(set(prints)) == 6
        for count in range(6):
            assert (
                fingerprints({"instructions": LONG, "input": items[:count]})
                == (prints[: count + 1])
            )

    def test_so_many_items_and_no_more(self) -> None:
        items = [user(str(i)) for i in range(100)]
        prints = fingerprints({"input": items})
        assert len(prints) == 64
        assert fingerprints({"input": items}, limit=3) == prints[:3]

    def test_what_differs_at_the_start_differs_to_the_end(self) -> None:
        one = fingerprints({"input": [user("a"), assistant("b"), user("c")]})
        other = fingerprints({"input": [user("x"), assistant("b"), user("c")]})
        assert not set(one) & set(other)

    def test_they_are_the_same_in_every_process(self) -> None:
        prints = fingerprints({"instructions": "Be brief.", "input": "Hello"})
        assert [each.hex() for each in prints] == ["dc335558ac2d16aee6a1d01e9ee6f358"]


class TestShapes:
    @given(BODIES, st.randoms(use_true_random=False))
    def test_what_libraries_add_and_leave_out_does_not_count(
        self, body: Item, random: Random
    ) -> None:
        dressed = {**body, "input": [_dressed(item, random) for item in body["input"]]}
        assert fingerprints(dressed) == fingerprints(body)

    @given(BODIES, st.data())
    def test_reasoning_comes_and_goes(self, body: Item, data: st.DataObject) -> None:
        items = list(body["input"])
        items.insert(data.draw(st.integers(0, len(items))), REASONING)
        assert fingerprints({**body, "input": items}) == fingerprints(body)

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param({"instructions": LONG, "input": "Hi"}, id="text"),
            pytest.param({"instructions": LONG, "input": [user("Hi")]}, id="message"),
            pytest.param(
                {"instructions": [{"role": "system", "content": LONG}], "input": "Hi"},
                id="instructions as items",
            ),
            pytest.param(
                {"input": [{"role": "system", "content": LONG}, user("Hi")]}, id="system message"
            ),
            pytest.param(
                {"messages": [{"role": "system", "content": LONG}, user("Hi")]}, id="chat"
            ),
            pytest.param(
                {
                    "messages": [
                        {"role": "system", "content": [{"type": "text", "text": LONG}]},
                        {"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": "x"},
                    ]
                },
                id="chat with parts",
            ),
        ],
    )
    def test_forms_of_one_prompt(self, body: Item) -> None:
        expected = fingerprints({"instructions": LONG, "input": "Hi"})
        assert len(expected) == 2
        assert fingerprints(body) == expected

    def test_the_order_of_fields_does_not_count(self) -> None:
        given = call('{"a": 1}')
        turned = dict(reversed(given.items()))
        assert fingerprints({"input": [given]}) == fingerprints({"input": [turned]})


class TestDifferences:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            pytest.param(user("a"), user("b"), id="text"),
            pytest.param(user("a"), assistant("a"), id="role"),
            pytest.param(user("x" * 999), user("x" * 1000), id="length"),
            pytest.param(user("a" + "x" * 999), user("b" + "x" * 999), id="beginning"),
            pytest.param(user("x" * 999 + "a"), user("x" * 999 + "b"), id="end"),
            pytest.param(user(["x" * 999, "a"]), user(["x" * 999, "b"]), id="last of many parts"),
            pytest.param(user([IMAGE]), user([{**IMAGE, "image_url": "data:,"}]), id="image"),
            pytest.param(call("{}"), call("[]"), id="arguments"),
            pytest.param(call("{}"), {**call("{}"), "name": "g"}, id="function"),
            pytest.param(call("x"), result("x"), id="type"),
            pytest.param(result("a"), result([{"type": "input_text", "text": "b"}]), id="output"),
            pytest.param(
                {"type": "compaction", "encrypted_content": "a"},
                {"type": "compaction", "encrypted_content": "b"},
                id="compaction",
            ),
            pytest.param(
                {"role": "assistant", "tool_calls": [{"function": {"arguments": "a"}}]},
                {"role": "assistant", "tool_calls": [{"function": {"arguments": "b"}}]},
                id="tool calls",
            ),
            pytest.param(
                {**assistant("a"), "tool_calls": [{"function": {"name": "f"}}]},
                assistant("a"),
                id="text with a tool call",
            ),
        ],
    )
    def test_what_a_model_would_read_differently(self, one: Item, other: Item) -> None:
        assert fingerprints({"input": [one]}) != fingerprints({"input": [other]})
        assert fingerprints({"messages": [one]}) != fingerprints({"messages": [other]})


class TestInstructions:
    @pytest.mark.parametrize("role", ["system", "developer"])
    def test_short_ones_alone_have_no_hash(self, role: str) -> None:
        short = {"role": role, "content": "You are a helpful assistant."}
        assert fingerprints({"messages": [short]}) == []
        one = fingerprints({"messages": [short, user("a")]})
        other = fingerprints({"messages": [short, user("b")]})
        assert len(one) == len(other) == 1
        assert one != other

    def test_together_they_may_be_long(self) -> None:
        half = {"role": "system", "content": "x" * 600}
        assert len(fingerprints({"messages": [half, half]})) == 1

    def test_later_ones_are_messages_like_others(self) -> None:
        late = {"role": "system", "content": "Be brief."}
        assert len(fingerprints({"messages": [user("a"), late]})) == 2


class TestKey:
    def test_requests_with_a_key_belong_together(self) -> None:
        one = fingerprints({"prompt_cache_key": "k", "input": "a"})
        other = fingerprints({"prompt_cache_key": "k", "input": "b"})
        assert len(one) == 2
        assert one[0] == other[0]
        assert one[1] != other[1]

    @pytest.mark.parametrize("key", ["j", "", None, 7], ids=repr)
    def test_and_not_to_others(self, key: Any) -> None:
        one = fingerprints({"prompt_cache_key": "k", "input": "a"})
        other = fingerprints({"prompt_cache_key": key, "input": "a"})
        assert not set(one) & set(other)


class TestSession:
    LONG: Final = {"role": "system", "content": "x" * 2000}

    def test_it_stands_between_the_instructions_and_what_was_said(self) -> None:
        body = {"messages": [self.LONG, user("a"), user("b")]}
        plain, named = fingerprints(body), fingerprints(body, session=("s", "agent"))
        assert named == [plain[0], *named[1:3], *plain[1:]]
        assert fingerprints(body, session=("s", "")) == [plain[0], named[1], *plain[1:]]
        other = fingerprints({"input": "else"}, session=("s", "agent"))
        assert other[:2] == named[1:3], "whatever else is said"

    def test_an_agent_is_one_of_its_session(self) -> None:
        [one], [other] = (fingerprints({}, session=("", "agent")), fingerprints({}, session=("s",)))
        assert one != other
        assert fingerprints({}, session=("s", "agent"))[1] not in (one, other)

    def test_without_a_name_nothing_changes(self) -> None:
        body = {"messages": [self.LONG, user("a")]}
        assert fingerprints(body, session=("", "")) == fingerprints(body)


class TestAnything:
    @given(
        st.dictionaries(
            st.sampled_from(["instructions", "input", "messages", "prompt_cache_key"]),
            WORDS | JSON | st.lists(LOOSE | JSON, max_size=5),
        )
    )
    @example({"messages": [{"role": "user", "content": [{"text": {"value": ["deep"]}}, None, 3]}]})
    @example({"input": [None, 1, "text", [user("x")]], "instructions": {"a": 1}})
    @example({"messages": [{"role": "\ud800", "content": "\ud800", "tool_calls": "\ud800"}]})
    def test_any_json_has_hashes(self, body: Item) -> None:
        prints = fingerprints(body)
        assert all(len(each) == 16 for each in prints)
        assert prints == fingerprints(body)

    def test_nesting_has_no_bottom(self) -> None:
        value: Any = "x"
        for _ in range(100_000):
            value = [value]
        assert len(fingerprints({"messages": [user(value), value, {"type": value}]})) == 3

    @pytest.mark.parametrize(
        "body", [{}, {"input": None}, {"input": []}, {"messages": {}}], ids=repr
    )
    def test_nothing_has_none(self, body: Item) -> None:
        assert fingerprints(body) == []


def _dressed(item: Item, random: Random) -> Item:
    """The same item as another client would send it."""
    extra: Item = {"id": f"item_{random.randrange(99)}", "status": "completed", "created_by": None}
    if "role" in item:
        extra["type"] = "message"
    if "call_id" in item:
        extra["call_id"] = f"call_{random.randrange(99)}"
    dressed = {**item, **extra}
    field = "output" if "output" in item else "content"
    if isinstance(item.get(field), str) and random.random() < 0.7:
        kind = "output_text" if item.get("role") == "assistant" else "input_text"
        dressed[field] = [
            {"type": kind, "text": text, "annotations": [], "logprobs": []}
            for text in _cut(item[field], random)
        ]
    names = list(dressed)
    random.shuffle(names)
    return {name: dressed[name] for name in names}


def _cut(text: str, random: Random) -> list[str]:
    ends = sorted(random.randrange(len(text) + 1) for _ in range(random.randrange(3)))
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]
