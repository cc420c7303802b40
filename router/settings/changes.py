"""How two configurations differ, in words that hold no value: values can be secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import BaseModel

from router.settings.schema import Settings

__all__ = ["FIXED", "changes", "needing_restart"]

FIXED: Final = (
    "server.",
    "state.",
    "files.",
    "metrics.",
    "cache.store.",
    "cache.max_bytes.",
    "cache.semantic.enabled.",
    "cache.semantic.embedder.",
    "vector_stores.",
    "accounts.journal.",
    "accounts.limits.store.",
    "accounts.retention_days.",
    "tools.code_interpreter.",
)
"""What an application is built on: it cannot take over other values while it runs."""


def needing_restart(old: Settings, new: Settings) -> list[str]:
    """The fields, such as ``server.port``, that differ and cannot change while a router runs."""
    return [field for field in _differing(old, new) if f"{field}.".startswith(FIXED)]


def changes(old: Settings, new: Settings) -> tuple[str, ...]:
    """What is different in ``new``, a line for each endpoint, key and section."""
    keys = [{key.name: key for key in settings.auth.keys} for settings in (old, new)]
    endpoints = [{one.name: one for one in settings.endpoints} for settings in (old, new)]
    return (*_listed("key", *keys), *_listed("endpoint", *endpoints), *_sections(old, new))


def _listed(kind: str, old: Mapping[str, BaseModel], new: Mapping[str, BaseModel]) -> Iterator[str]:
    """Items of a list that are known by their names."""
    for name, item in new.items():
        if name not in old:
            yield f"{kind} added: {name}"
        elif fields := _differing(old[name], item):
            yield f"{kind} changed: {name} ({', '.join(fields)})"
    for name in old:
        if name not in new:
            yield f"{kind} removed: {name}"
    kept = [name for name in old if name in new]
    if kept != [name for name in new if name in old]:
        yield f"{kind}s in another order"


def _sections(old: Settings, new: Settings) -> Iterator[str]:
    for name in Settings.model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if name in ("auth", "endpoints") or before == after:
            continue
        within = _differing(before, after) if isinstance(after, BaseModel) else []
        yield f"{name} changed" + (f": {', '.join(within)}" if within else "")


def _differing(old: BaseModel, new: BaseModel) -> list[str]:
    """The dotted names of the fields in which two models of one class differ."""
    found = []
    for name in type(new).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        within = _differing(before, after) if isinstance(after, BaseModel) else []
        found += [f"{name}.{field}" for field in within] or [name]
    return found
