"""What holds for the guard whatever the texts are."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cache.guard import gate, profile, veto

QUALITY = json.loads(Path(__file__).with_name("quality").joinpath("pairs.json").read_text())
TEXTS = [pair[side] for pairs in QUALITY.values() for pair in pairs for side in "ab"]
WORDS = sorted({word for text in TEXTS for word in text.split()})

anything = st.text(max_size=80) | st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)


def test_a_text_may_answer_for_itself() -> None:
    for text in TEXTS:
        assert veto(profile(text), profile(text)) is None
        assert veto(profile(text), profile(text.rstrip("?") + " ")) is None


@settings(max_examples=300, deadline=None)
@given(anything)
def test_any_text_may_answer_for_itself_where_it_may_be_matched_at_all(text: str) -> None:
    if gate(text) is None:
        assert veto(profile(text), profile(text)) is None


@settings(max_examples=300, deadline=None)
@given(anything, anything)
def test_the_order_of_two_texts_does_not_matter(first: str, second: str) -> None:
    gate(first)
    assert veto(profile(first), profile(second)) == veto(profile(second), profile(first))


def test_the_order_of_a_pair_does_not_matter() -> None:
    for pairs in QUALITY.values():
        for pair in pairs:
            a, b = profile(pair["a"]), profile(pair["b"])
            assert veto(a, b) == veto(b, a)
