"""The same words in other places, and the same question in quite other words."""

from __future__ import annotations

import pytest

from cache.guard import profile, veto

SAME_WORDS = [
    ("Who taught Plato?", "Who did Plato teach?"),
    ("Is every square a rectangle?", "Is every rectangle a square?"),
    ("I owe my landlord 500 dollars", "My landlord owes me 500 dollars"),
    ("Replace tabs with spaces in vim", "Replace spaces with tabs in vim"),
    ("Who inspired Picasso?", "Who did Picasso inspire?"),
]
MOVED = [
    ("How do I sort a list in Python?", "In Python, how do I sort a list?"),
    ("Is data singular or plural?", "Is data plural or singular?"),
]
ANEW = [
    ("Who invented the telephone?", "Who gets the credit for inventing the telephone?"),
]
NARROWED = [
    ("How do I renew a passport?", "What is the process for renewing an expired passport?"),
    ("How do I cancel my order?", "What is the process for cancelling part of my order?"),
    ("How do I get from Rome to Milan?", "What's the best way from Milan to Rome?"),
    ("How do I delete a branch in git?", "How do I delete a tag in git?"),
]


@pytest.mark.parametrize(("asked", "stored"), SAME_WORDS)
def test_who_does_what_to_whom(asked: str, stored: str) -> None:
    found = veto(profile(asked), profile(stored), 1.0)
    assert found is not None
    assert found.reason == "order"


@pytest.mark.parametrize(("asked", "stored"), MOVED)
def test_a_phrase_may_stand_elsewhere(asked: str, stored: str) -> None:
    assert veto(profile(asked), profile(stored), 0.95) is None


@pytest.mark.parametrize(("asked", "stored"), ANEW)
def test_near_texts_in_other_words_are_the_same_question(asked: str, stored: str) -> None:
    assert veto(profile(asked), profile(stored), 0.85) is None
    assert veto(profile(asked), profile(stored), 0.75) is not None


@pytest.mark.parametrize(("asked", "stored"), NARROWED)
def test_a_word_that_narrows_down_is_never_outweighed(asked: str, stored: str) -> None:
    assert veto(profile(asked), profile(stored), 0.89) is not None
