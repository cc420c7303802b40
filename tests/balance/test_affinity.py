"""Where prompts went: the longest beginning that is known, in a table with a bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.balance.affinity import Affinity


def prompt(length: int, conversation: str = "") -> list[bytes]:
    """The hashes of a prompt. Two of one conversation begin alike."""
    return [f"{conversation}{i}".encode() for i in range(length)]


def test_nothing_is_known_at_first() -> None:
    affinity = Affinity()
    assert affinity.find("m", prompt(3)) is None
    assert affinity.find("m", []) is None


def test_a_conversation_stays_where_it_was() -> None:
    affinity = Affinity()
    affinity.remember("m", prompt(1), "a")
    assert affinity.find("m", prompt(3)) == "a"
    affinity.remember("m", prompt(3), "a")
    assert affinity.find("m", prompt(5)) == "a"


def test_models_are_apart() -> None:
    affinity = Affinity()
    affinity.remember("m", prompt(1), "a")
    affinity.remember("n", prompt(1), "b")
    assert affinity.find("m", prompt(1)) == "a"
    assert affinity.find("n", prompt(1)) == "b"
    assert affinity.find("o", prompt(1)) is None


def test_the_longest_beginning_wins() -> None:
    affinity = Affinity()
    shared = prompt(1)
    affinity.remember("m", [*shared, b"x"], "a")
    affinity.remember("m", [*shared, b"y"], "b")
    assert affinity.find("m", [*shared, b"x", b"more"]) == "a"
    assert affinity.find("m", [*shared, b"y", b"more"]) == "b"
    assert affinity.find("m", [*shared, b"z"]) == "b"


def test_a_conversation_that_moved_is_where_it_went() -> None:
    affinity = Affinity()
    affinity.remember("m", prompt(3), "a")
    affinity.remember("m", prompt(5), "b")
    for length in range(1, 6):
        assert affinity.find("m", prompt(length)) == "b"
    affinity.remember("m", prompt(6), "a")
    for length in range(1, 7):
        assert affinity.find("m", prompt(length)) == "a"


def test_a_turn_adds_what_is_new_in_it() -> None:
    affinity = Affinity()
    sizes = []
    for length in (1, 3, 5, 5, 60):
        affinity.remember("m", prompt(length), "a")
        sizes.append(len(affinity))
    assert sizes == [1, 3, 5, 5, 12]


def test_a_long_history_leaves_both_of_its_ends() -> None:
    affinity = Affinity()
    affinity.remember("m", prompt(64), "a")
    assert len(affinity) == 8
    assert affinity.find("m", prompt(1)) == "a"
    assert affinity.find("m", prompt(62)) == "a"
    assert affinity.find("m", [*prompt(30), b"another way"]) == "a"


def test_what_is_used_stays() -> None:
    affinity = Affinity(max_entries=10)
    affinity.remember("m", prompt(1, "kept"), "a")
    for i in range(100):
        affinity.remember("m", prompt(1, f"other {i}"), "b")
        affinity.remember("m", prompt(1, "kept"), "a")
    assert affinity.find("m", prompt(1, "kept")) == "a"
    assert affinity.find("m", prompt(1, "other 99")) == "b"
    assert affinity.find("m", prompt(1, "other 0")) is None


def test_looking_keeps_nothing() -> None:
    affinity = Affinity(max_entries=2)
    affinity.remember("m", [b"1"], "a")
    affinity.remember("m", [b"2"], "a")
    affinity.find("m", [b"1"])
    affinity.remember("m", [b"3"], "a")
    assert affinity.find("m", [b"1"]) is None


@pytest.mark.parametrize("bound", [0, 1, 7])
@given(
    st.lists(
        st.tuples(
            st.sampled_from("mn"), st.sampled_from("pqr"), st.integers(0, 20), st.sampled_from("ab")
        ),
        max_size=30,
    )
)
def test_it_is_bounded_and_says_only_what_it_was_told(
    bound: int, told: list[tuple[str, str, int, str]]
) -> None:
    affinity = Affinity(max_entries=bound)
    where: dict[tuple[str, bytes], set[str]] = {}
    for model, conversation, length, endpoint in told:
        prints = prompt(length, conversation)
        affinity.remember(model, prints, endpoint)
        for each in prints:
            where.setdefault((model, each), set()).add(endpoint)
        assert len(affinity) <= bound
        if prints and bound:
            assert affinity.find(model, prints) == endpoint
    for (model, each), endpoints in where.items():
        assert affinity.find(model, [each]) in {None, *endpoints}
