"""The seed of what tests do at random: always the same, or ``TEST_SEED``."""

from __future__ import annotations

import os

__all__ = ["seed"]


def seed() -> int:
    """Printed, so that a report of a failure has it."""
    value = int(os.environ.get("TEST_SEED", "1"))
    print(f"TEST_SEED={value}")
    return value
