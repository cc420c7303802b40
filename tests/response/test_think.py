"""Reasoning in ``<think>`` tags, taken out of a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.response.machine import ThinkSplitter
from tests.support.reading import FUZZ

CASES: dict[str, tuple[str, str, str]] = {
    "plain": ("Hello", "", "Hello"),
    "thought": ("<think>why</think>because", "why", "because"),
    "blank lines": ("\n <think>\n\nwhy\n</think>\n\nbecause\n", "why\n", "because\n"),
    "empty thought": ("<think>\n\n</think>\n\nyes", "", "yes"),
    "only thought": ("<think>why</think>", "why", ""),
    "unfinished": ("<think>why", "why", ""),
    "half a closing tag": ("<think>why</thi", "why</thi", ""),
    "a tag that was none": ("<think>a </thx <</think>b", "a </thx <", "b"),
    "a near tag": ("<thinking>x", "", "<thinking>x"),
    "half an opening tag": (" <thi", "", " <thi"),
    "quoted": ("Use <think>x</think>", "", "Use <think>x</think>"),
    "twice": ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
    "only white space": (" \n", "", " \n"),
    "white space first": (" \nHello", "", " \nHello"),
    "nested": ("<think>a<think>b</think>c", "a<think>b", "c"),
    "spaces stay": ("<think> a </think> b", " a ", " b"),
}


def split(*pieces: str) -> tuple[str, str]:
    splitter = ThinkSplitter()
    parts = [*(splitter.split(piece) for piece in pieces), splitter.flush()]
    assert splitter.flush() == ("", "")
    return "".join(reasoning for reasoning, _ in parts), "".join(text for _, text in parts)


@pytest.mark.parametrize("case", CASES)
def test_thought_and_text_are_split(case: str) -> None:
    whole, reasoning, text = CASES[case]
    assert split(whole) == (reasoning, text)


@pytest.mark.parametrize("case", CASES)
def test_it_may_be_cut_anywhere(case: str) -> None:
    whole, reasoning, text = CASES[case]
    assert split(*whole) == (reasoning, text)
    for cut in range(len(whole)):
        assert split(whole[:cut], whole[cut:]) == (reasoning, text)


@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "th", "\n", " ", "a", "</thi"])))
@FUZZ
def test_any_cut_gives_the_same_parts(pieces: list[str]) -> None:
    assert split(*pieces) == split("".join(pieces))


@given(st.text(alphabet="<>/thinkab \n", max_size=40))
@FUZZ
def test_nothing_is_lost_without_a_tag(text: str) -> None:
    if not text.lstrip().startswith("<think>"):
        assert split(*text) == ("", text)


def test_text_is_not_held_back_for_long() -> None:
    splitter = ThinkSplitter()
    given_out = [splitter.split(" ")[1] for _ in range(1000)]
    assert "".join(given_out) == " " * 1000
    assert splitter.settled


def test_reasoning_is_given_out_as_it_comes() -> None:
    splitter = ThinkSplitter()
    assert splitter.split("<think>") == ("", "")
    assert splitter.split("one") == ("one", "")
    assert splitter.split("two</") == ("two", "")
    assert splitter.held == "</"
    assert splitter.split("think>x") == ("", "x")
    assert (splitter.settled, splitter.thought) == (True, True)
