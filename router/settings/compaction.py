"""The settings of compaction: conversations in fewer items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic import field_validator

from router.settings.section import Section
from router.settings.tools import RunWhere
from router.settings.values import Fault, Positive, Secret, Text, fail_at

__all__ = ["CompactionSettings"]

_LEAST_KEY: Final = 16
"""Characters of a key: fewer could be guessed."""


class CompactionSettings(Section):
    """Conversations in fewer items: a summary that only the router can read."""

    run: RunWhere = "auto"
    """Who compacts: `router`, `endpoint`, or `auto`: the endpoint where all that serve the model
    can, else the router.
    """
    model: Text | None = None
    """The model that writes the router's summaries; without it, the one that was asked for."""
    keys: tuple[Secret, ...] = ()
    """What summaries are encrypted with, at least 16 characters each: the first encrypts, and all
    of them decrypt. Without any, keys are made in the database and changed by themselves.
    """
    rotate_days: Positive = 30.0
    """How old a key of the database may become before another one encrypts; former ones still
    decrypt.
    """

    @field_validator("keys", mode="after")
    @classmethod
    def _cannot_be_guessed(cls, value: tuple[Secret, ...]) -> tuple[Secret, ...]:
        fail_at("CompactionSettings", list(_weak(value)))
        return value


def _weak(keys: tuple[Secret, ...]) -> Iterator[Fault]:
    for index, key in enumerate(keys):
        if len(key.get_secret_value()) < _LEAST_KEY:
            yield (index,), f"must have at least {_LEAST_KEY} characters"
        elif key in keys[:index]:
            yield (index,), "is there twice"
