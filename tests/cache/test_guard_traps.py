"""More than a thousand mutations of common questions: none may pass the gates and the guard."""

from __future__ import annotations

import collections

from cache.guard import gate, profile, veto
from tests.cache.quality.traps import QUESTIONS, filled, traps


def test_none_is_let_through() -> None:
    counted: collections.Counter[str] = collections.Counter()
    through = []
    for asked, stored, kind in traps():
        counted[kind] += 1
        assert asked != stored
        if gate(asked) or gate(stored):
            continue
        if veto(profile(asked), profile(stored), similarity=1.0) is None:
            through.append((kind, asked, stored))
    assert through == []
    assert counted.total() > 1000
    assert len(counted) > 10


def test_the_questions_themselves_are_found_again() -> None:
    assert len(QUESTIONS) >= 150
    for question in QUESTIONS:
        text = filled(question)
        assert gate(text) is None, text
        assert veto(profile(text), profile(text.rstrip("?"))) is None, text
