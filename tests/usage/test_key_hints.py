"""What is said of a key that may hold a slip."""

from __future__ import annotations

from typing import Any

import pytest

from router.usage.key_lint import hints

TAGS = ("team-a", "production")


def served(pattern: str) -> bool | None:
    return {"gpt-*": True, "o3": True, "late": None}.get(pattern, False)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, []),
        ({"models": None, "model_limits": None, "tags": None, "priority": 1}, []),
        ({"models": ["gpt-*", "o3", "late"], "model_limits": {"late": {}, "o3": None}}, []),
        (
            {"models": ["o3", "o33"]},
            ["models[1]: no endpoint serves a model 'o33' at the moment."],
        ),
        (
            {"model_limits": {"o33": {}}},
            ["model_limits.o33: no endpoint serves a model 'o33' at the moment."],
        ),
        (
            {"default_model": "o33"},
            ["default_model: no endpoint serves a model 'o33' at the moment."],
        ),
        ({"default_model": "o3"}, []),
        ({"tags": ["team-a", "team-b", "other"]}, []),
        ({"tags": ["Team-A"]}, ["tags[0]: 'Team-A' has no budget; did you mean 'team-a'?"]),
        (
            {"tags": ["x", "prodution"]},
            ["tags[1]: 'prodution' has no budget; did you mean 'production'?"],
        ),
    ],
)
def test_what_is_said(fields: dict[str, Any], said: list[str]) -> None:
    assert hints(fields, served, TAGS) == said


def test_long_names_are_cut() -> None:
    [said] = hints({"model_limits": {"m" * 9999: {}}}, served, TAGS)
    assert len(said) < 400
