"""Bodies that nobody has validated: no error, and no two taken for one."""

from __future__ import annotations

from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

from cache.request import Bypass, CacheRequest, keys
from tests.support.asking import JSON, chat, from_chat, from_responses
from tests.support.asking_both import ANY, TEXT

MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "x"]) | ANY},
    optional={"content": ANY, "tool_calls": ANY, "tool_call_id": ANY, "name": ANY},
)
LOOSE = st.fixed_dictionaries(
    {"model": st.just("m"), "messages": st.lists(MESSAGE | ANY, max_size=3)},
    optional=dict.fromkeys(
        (
            "tools",
            "tool_choice",
            "response_format",
            "temperature",
            "n",
            "modalities",
            "max_tokens",
            "logprobs",
            "top_logprobs",
            "reasoning_effort",
            "seed",
            "audio",
            "stream_options",
        ),
        ANY,
    ),
)


@given(LOOSE | st.dictionaries(st.text(max_size=8), ANY))
def test_no_chat_body_is_too_odd(body: JSON) -> None:
    made = from_chat(body)
    if isinstance(made, CacheRequest):
        assert keys(made, scope="s") == keys(made, scope="s")


CONTENT = st.text(max_size=4) | st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "refusal", "image_url", "file", "odd"])},
        optional={
            "text": TEXT | ANY,
            "refusal": ANY,
            "image_url": ANY,
            "file": ANY,
            "cache_control": ANY,
        },
    ),
    max_size=2,
)


@given(
    st.tuples(*[st.fixed_dictionaries({"role": st.just("user"), "content": CONTENT})] * 2),
    st.sampled_from(["stop", "tools"]),
    st.tuples(ANY, ANY),
)
def test_no_two_odd_bodies_are_taken_for_the_same(
    messages: tuple[JSON, JSON], field: Literal["stop", "tools"], more: tuple[Any, Any]
) -> None:
    made = [from_chat(chat(m, **{field: v})) for m, v in zip(messages, more, strict=True)]
    one, other = made
    if isinstance(one, Bypass) or isinstance(other, Bypass):
        return
    same = one.canonical == other.canonical and repr(one.canonical) == repr(other.canonical)
    if keys(one, scope="s").key == keys(other, scope="s").key:
        assert one.canonical == other.canonical
    elif same:
        raise AssertionError("the same canonical request has two keys")


@given(st.dictionaries(st.sampled_from(["input", "tools", "text", "reasoning", "include"]), ANY))
def test_a_body_nobody_validated_is_no_error(body: JSON) -> None:
    assert from_responses({"model": "m", **body}) is not None
