"""For all tests."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def _young_garbage_only() -> None:
    """Many tests collect garbage, to find what was destroyed unfinished: spare them what modules
    before this one have left for good, such as word lists.
    """
    gc.collect()
    gc.freeze()
