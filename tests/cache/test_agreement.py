"""Whether two answers say the same: a table, and what holds for any answers."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cache.agreement import agrees

LONG = (
    "Photosynthesis turns light into chemical energy. It happens in the chloroplasts of plants,"
    " where chlorophyll absorbs light."
)
REWORDED = (
    "Plants turn light into chemical energy by photosynthesis. Chlorophyll in their chloroplasts"
    " takes the light up."
)

SAME = [
    ("Paris", "paris."),
    ("**Paris**", "Paris"),
    ("", "  "),
    ("Paris", "The capital of France is Paris."),
    ("Paris is the capital of France.", "Paris"),
    ("4", "four"),
    ("2 + 2 = 4", "2+2=4"),
    ("1,000 km", "1000 km"),
    ("3.50", "3.5"),
    ("Red, green and blue.", "Blue, red, green"),
    ("Yes.", "Yes, it is possible."),
    ("It isn’t possible", "It isn't possible."),
    ("apples", "Apple"),
]
DIFFERENT = [
    ("Paris", "London"),
    ("Paris", ""),
    ("Paris", "Paris, Texas"),
    ("Paris", "The capital of France is not Paris."),
    ("Paris", "The capital of Germany is Berlin."),
    ("1889", "1887"),
    ("1889", "-1889"),
    ("5 km", "5 miles"),
    ("Yes.", "No."),
    ("Yes, it is possible.", "No, it is possible."),
    ("It is possible", "It is not possible"),
    ("red, green", "It is red, green and blue"),
    ("A before B", "B before A"),
    ("from Rome to Oslo", "from Oslo to Rome"),
    ("3 > 2", "3 < 2"),
]


@pytest.mark.parametrize(("cached", "fresh"), SAME)
def test_short_answers_that_say_the_same(cached: str, fresh: str) -> None:
    assert agrees(cached, fresh, None)
    assert agrees(fresh, cached, 0.1)


@pytest.mark.parametrize(("cached", "fresh"), DIFFERENT)
def test_short_answers_that_differ_however_similar(cached: str, fresh: str) -> None:
    assert not agrees(cached, fresh, None)
    assert not agrees(fresh, cached, 0.99)


@pytest.mark.parametrize(("similarity", "same"), [(0.9, True), (0.8, True), (0.7, False)])
def test_long_answers_are_compared_by_their_embeddings(similarity: float, same: bool) -> None:
    assert agrees(LONG, REWORDED, similarity) is same


def test_long_answers_without_embeddings_share_their_content_words() -> None:
    assert agrees(LONG, REWORDED, None)
    assert not agrees(
        LONG, "The moon has no light of its own; what we see comes from the sun.", None
    )


CONTRADICTIONS = [
    (
        "Yes, you can take both medicines together at the usual dose.",
        "No, you cannot take both medicines together at the usual dose.",
    ),
    (
        "The tower was finished in 1889 after two years of work by many people.",
        "The tower was finished in 1887 after two years of work by many people.",
    ),
    (
        "It is safe to eat these mushrooms raw in small amounts every day.",
        "It is not safe to eat these mushrooms raw in small amounts every day.",
    ),
]


@pytest.mark.parametrize(("cached", "fresh"), CONTRADICTIONS)
def test_a_contradiction_in_the_first_sentence_outweighs_similarity(
    cached: str, fresh: str
) -> None:
    assert not agrees(cached, fresh, 0.97)
    assert not agrees(fresh, cached, 0.97)


def test_a_number_that_only_one_mentions_is_no_contradiction() -> None:
    one = "The tower was finished in 1889 after two years of work by many people."
    other = "The tower was finished at the end of the nineteenth century, by many people."
    assert agrees(one, other, 0.9)


def test_later_sentences_may_mention_other_numbers() -> None:
    assert agrees(LONG + " It yields 38 ATP.", REWORDED + " About 30 ATP are made.", 0.9)


def test_a_short_answer_agrees_with_a_long_one_that_gives_it() -> None:
    long = "The capital of France is Paris. " + LONG
    assert agrees("Paris", long, 0.3)
    assert not agrees("Lyon", long, 0.3)


@given(st.text())
@example("*0")
def test_every_answer_agrees_with_itself(answer: str) -> None:
    assert agrees(answer, answer, None)
    assert agrees(answer, f" {answer}\n", 0.0)


@given(st.text(), st.text(), st.one_of(st.none(), st.floats(-1, 1)))
def test_the_order_does_not_matter(one: str, other: str, similarity: float | None) -> None:
    assert agrees(one, other, similarity) == agrees(other, one, similarity)
