"""Properties of the keys: what changes them, and what does not."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cache.request import Bypass, CacheKeys, CacheRequest, keys
from tests.support.asking import JSON, cached, chat, from_chat, from_responses, make, responses
from tests.support.asking_both import TEXT, bodies


def names(body: JSON) -> CacheKeys:
    return keys(make(body), scope="s")


@given(bodies())
def test_both_surfaces_have_the_same_keys(pair: tuple[JSON, JSON]) -> None:
    ours, theirs = pair
    assert make(ours).canonical == make(theirs).canonical
    assert names(ours) == names(theirs)


def shuffled(value: Any, dice: random.Random) -> Any:
    if isinstance(value, dict):
        pairs = [(k, shuffled(v, dice)) for k, v in value.items()]
        dice.shuffle(pairs)
        return dict(pairs)
    return [shuffled(v, dice) for v in value] if isinstance(value, list) else value


IRRELEVANT = st.fixed_dictionaries(
    {},
    optional={
        "stream": st.booleans(),
        "stream_options": st.just({"include_usage": True}),
        "store": st.booleans(),
        "metadata": st.dictionaries(TEXT, TEXT),
        "user": TEXT,
        "safety_identifier": TEXT,
        "prompt_cache_key": TEXT,
        "prompt_cache_retention": st.just("24h"),
        "prompt_cache_options": st.just({"ttl": "30m"}),
        "cache": st.booleans() | st.just({"ttl": 5}),
        "nomyo": st.just({"cache": True}),
        "temperature": st.none(),
        "unknown": st.none(),
    },
)


@given(bodies(), IRRELEVANT, IRRELEVANT, st.randoms(use_true_random=False))
def test_what_changes_no_answer_changes_no_key(
    pair: tuple[JSON, JSON], some: JSON, others: JSON, dice: random.Random
) -> None:
    for body in pair:
        body.pop("temperature", None)
        assert names({**body, **some}) == names(shuffled({**others, **body}, dice))


@given(bodies(), st.randoms(use_true_random=False))
def test_ids_of_resent_items_change_no_key(pair: tuple[JSON, JSON], dice: random.Random) -> None:
    body = pair[0]
    resent = copy.deepcopy(body)
    for item in resent["input"]:
        item.update({"id": f"item_{dice.random()}", "status": "completed"})
        for part in item.get("content", ()):
            part.update({"annotations": [], "logprobs": []})
    assert names(body) == names(resent)


CHANGED: list[JSON] = [
    {"temperature": 0.7},
    {"top_p": 0.9},
    {"seed": 99},
    {"stop": ["never"]},
    {"service_tier": "priority"},
    {"frequency_penalty": -1},
    {"presence_penalty": 1},
    {"tool_choice": "required"},
    {"unknown": 0},
    {"unknown": False},
    {"unknown": {"a": 1}},
    {"chat_template_kwargs": {"thinking": False}},
    {"moderation": {"model": "x"}},
    {"prediction": {"type": "content", "content": "x"}},
]
CHANGED_RESPONSES: list[JSON] = [
    {"max_output_tokens": 17},
    {"max_tool_calls": 1},
    {"truncation": "auto"},
    {"reasoning": {"effort": "high"}},
    {"reasoning": {"summary": "auto"}},
    {"reasoning": {"generate_summary": "auto"}},
    {"reasoning": {"unknown": 1}},
    {"text": {"verbosity": "high"}},
    {"text": {"format": {"type": "json_object"}}},
    {"text": {"unknown": 1}},
    {"include": ["reasoning.encrypted_content"]},
    {"include": ["message.output_text.logprobs"]},
    {"top_logprobs": 4},
    {"instructions": "Be brief."},
    {"instructions": ""},
    {"context_management": [{"type": "unknown"}]},
    {"messages": []},
]
CHANGED_CHAT: list[JSON] = [
    {"max_tokens": 17},
    {"max_completion_tokens": 17, "max_tokens": 17},
    {"reasoning_effort": "high"},
    {"verbosity": "high"},
    {"response_format": {"type": "json_object"}},
    {"response_format": "json"},
    {"logprobs": True},
    {"logprobs": 2},
    {"top_logprobs": 4},
    {"reasoning": {"effort": "high"}},
    {"input": "x"},
    {"text": {"format": {"type": "text"}}},
]


@given(bodies(), st.data())
def test_what_can_change_an_answer_changes_both_keys(
    pair: tuple[JSON, JSON], data: st.DataObject
) -> None:
    surfaces = ((from_responses, CHANGED_RESPONSES), (from_chat, CHANGED_CHAT))
    for body, (surface, more) in zip(pair, surfaces, strict=True):
        change = data.draw(st.sampled_from([*CHANGED, *more]))
        before = names(body)
        after = keys(cached(surface({**body, **change})), scope="s")
        assert before.key != after.key
        assert before.namespace != after.namespace


@given(bodies(), bodies())
def test_different_requests_have_different_keys(
    one: tuple[JSON, JSON], other: tuple[JSON, JSON]
) -> None:
    first, second = make(one[0]), make(other[1])
    same = first.canonical == second.canonical
    assert (names(one[0]).key == names(other[1]).key) == same


def changed_history(items: list[JSON], data: st.DataObject) -> list[JSON]:
    """The items with one of those before the last changed, removed or added."""
    items = copy.deepcopy(items)
    place = data.draw(st.integers(0, len(items) - 2))
    item = items[place]
    how = data.draw(st.sampled_from(["remove", "repeat", "word", "call", "role"]))
    if how == "remove":
        del items[place]
    elif how == "repeat":
        items.insert(place, item)
    elif how == "call" and "call_id" in item:
        item["call_id"] += "x"
    elif how == "role" and "role" in item:
        item["role"] = "user" if item["role"] != "user" else "assistant"
    elif "content" in item:
        item["content"][0]["text"] += "x"
    else:
        field = "arguments" if "arguments" in item else "output"
        item[field] += "x"
    return items


@given(bodies(), st.data())
def test_a_different_history_never_matches(pair: tuple[JSON, JSON], data: st.DataObject) -> None:
    body = pair[0]
    assume(len(body["input"]) > 1)
    other = {**body, "input": changed_history(body["input"], data)}
    assume(other["input"] != body["input"])
    before, after = names(body), names(other)
    assert before.key != after.key
    assert before.namespace != after.namespace


@given(bodies(), TEXT)
def test_the_namespace_leaves_out_the_last_text_and_nothing_else(
    pair: tuple[JSON, JSON], text: str
) -> None:
    for body, field in zip(pair, ("input", "messages"), strict=True):
        other = copy.deepcopy(body)
        last = other[field][-1]
        if isinstance(last["content"], str):
            last["content"] = text
        else:
            last["content"][0]["text"] = text
        before, after = names(body), names(other)
        assert before.namespace == after.namespace
        assert (before.key == after.key) == (make(body).canonical == make(other).canonical)


@given(st.lists(bodies(), max_size=4))
def test_no_namespace_is_a_key(pairs: list[tuple[JSON, JSON]]) -> None:
    found = [names(body) for pair in pairs for body in pair]
    assert not {one.key for one in found} & {one.namespace for one in found}


@pytest.mark.parametrize(
    "content", [True, [], [{"type": "text", "text": True}], [{"blank": True}], {"content": True}]
)
def test_nothing_that_a_client_says_is_the_blank(content: Any) -> None:
    blanked = names(responses("Hi"))
    said = from_chat(chat({"role": "user", "content": content}))
    assert isinstance(said, Bypass) or keys(said, scope="s").namespace != blanked.namespace


def request(
    kind: str = "answer", model: str = "m", common: bytes = b"c", asked: bytes = b"a"
) -> CacheRequest:
    return CacheRequest(kind, model, {}, "a", None, common, asked)


def test_every_part_of_a_key_counts_and_none_runs_into_the_next() -> None:
    found = [
        keys(request(), scope="s"),
        keys(request(kind="embedding"), scope="s"),
        keys(request(model="n"), scope="s"),
        keys(request(), scope="t"),
        keys(request(), scope="s1:m"),
        keys(request(model="m1:c"), scope="s"),
        keys(request(common=b"ca", asked=b""), scope="s"),
        keys(request(common=b"c=", asked=b"a"), scope="s"),
        keys(request(kind="answers"), scope=""),
    ]
    every = [name for one in found for name in (one.key, one.namespace)]
    assert len(set(every)) == len(every)
    assert all(len(name) == 32 and int(name, 16) >= 0 for name in every)


def test_an_answer_is_kept_under_the_model_that_gave_it() -> None:
    asked = make(responses())
    assert keys(asked, scope="s", model="n") == keys(make({**responses(), "model": "n"}), scope="s")


def test_keys_are_the_same_in_every_process() -> None:
    # An entry of yesterday is found today: where these change, so must the version.
    assert names(responses("Hi", temperature=0)) == CacheKeys(
        key="4b355b59429d0ce2c5bc639dde9bdbc8", namespace="522500cf6501d3acd92ab5644d976e0d"
    )
