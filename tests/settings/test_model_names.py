"""One model under two names."""

from __future__ import annotations

import pytest

from router.settings.model_names import Patterns, by_either_name, fits, is_pattern


@pytest.mark.parametrize(
    ("model", "pattern", "meant"),
    [
        ("llama3.2", "llama3.2", True),
        ("llama3.2:latest", "llama3.2", True),
        ("llama3.2", "llama3.2:latest", True),
        ("llama3.2:latest", "llama*", True),
        ("llama3.2:1b", "llama3.2", False),
        ("llama3.2:1b", "llama3.2:*", True),
        ("other:latest", "llama3.2", False),
        ("gpt-5-mini", "gpt-5", False),
    ],
)
def test_what_a_name_or_pattern_means(model: str, pattern: str, meant: bool) -> None:
    assert fits(model, pattern) is meant


def test_what_is_given_by_one_name_is_found_by_the_other() -> None:
    given = {"a": 1, "b:latest": 2, "c:1b": 3, "org/d": 4, "e": 5, "e:latest": 6}
    assert by_either_name(given) == {
        **given,
        "a:latest": 1,
        "b": 2,
        "org/d:latest": 4,
    }


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("claude-opus-4", "claude-opus-*"),
        ("claude-opus-4:latest", "claude-opus-*"),
        ("claude-haiku", "claude-*"),
        ("claude-x1", "claude-[xy]?"),
        ("gpt-5", "*"),
        ("plain", "*"),
    ],
)
def test_the_pattern_that_says_the_most_counts(model: str, found: str) -> None:
    names = ["*", "claude-*", "claude-[xy]?", "claude-*-*", "claude-opus-*", "plain"]
    given = {name: name.upper() for name in names}
    for order in (given, dict(reversed(given.items()))):
        assert Patterns(order).find(model) == (found, found.upper())


def test_where_no_pattern_fits_nothing_is_found() -> None:
    assert Patterns({"a*": 1, "b": 2}).find("b") is None
    assert not Patterns({"b": 2})
    assert [is_pattern(name) for name in ("a", "a*", "a?", "[ab]", "a:b/c")] == [
        False, True, True, True, False,
    ]  # fmt: skip
