"""Sandboxes of this machine, for tests that run code in them."""

from __future__ import annotations

import os
import shutil

import pytest

__all__ = ["needs_sandboxes"]

needs_sandboxes = pytest.mark.skipif(
    shutil.which("bwrap") is None and not os.environ.get("REQUIRE_ALL"),
    reason="bubblewrap is not installed",
)
