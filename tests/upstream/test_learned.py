"""What is learned of models is bounded, and is forgotten."""

from __future__ import annotations

import pytest

from router.upstream.learned import ModelSet


def test_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.upstream.learned._MAX_MODELS", 2)
    models = ModelSet()
    for name in ("a", "b", "b", "c"):
        models.add(name)
    assert [name in models for name in ("a", "b", "c", "d")] == [False, True, True, False]
