"""What ``pointsman check`` says of keys, and of where limits are counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from router.cli.terminal import printable

if TYPE_CHECKING:
    from router.endpoints.catalogue import Catalogue
    from router.probing.endpoint import ProbeResult
    from router.settings.schema import Settings

__all__ = ["glance", "remarks"]

_SECONDS: Final = 2.0
_MOST: Final = 20


def glance(settings: Settings) -> tuple[bool, str]:
    """Whether limits can be counted as it is configured, and a line that says so."""
    import asyncio

    url = settings.accounts.limits.store.get_secret_value()
    if url == "memory://":
        return True, "limits  memory: ok"
    where, problem = asyncio.run(_asked(url))
    if problem is None:
        return True, f"limits  {where}: ok"
    return False, f"limits  accounts.limits.store: FAILED: {printable(problem)}"


async def _asked(url: str) -> tuple[str, str | None]:
    """Which Redis it is, and why nothing can be counted there."""
    from router.usage.redis_link import Away, Link
    from router.usage.redis_reservation import ROOM
    from router.usage.redis_scripts import CHECK

    try:
        link = Link(url, "pointsman:limits", _SECONDS, lambda up: None)
    except ValueError as error:
        return "", str(error)
    try:
        await link.run(CHECK, [link.key(ROOM)], {})
    except Away:
        return link.name, link.why
    finally:
        await link.close()
    return link.name, None


def remarks(settings: Settings, results: Sequence[ProbeResult]) -> tuple[bool, list[str]]:
    """Whether fallbacks, the default model and the model for summaries lead somewhere, and what may
    be a slip in keys or fallbacks of the configuration; ``results`` are those of its endpoints.
    """
    import asyncio

    from router.endpoints.catalogue import Catalogue

    catalogues = []
    for endpoint, result in zip(settings.endpoints, results, strict=True):
        catalogues.append(Catalogue(endpoint))
        if result.error is None:
            catalogues[-1].update(result.models)
    keys = [*_slips(settings, catalogues), *asyncio.run(_displaced(settings))]
    nowhere = [*_nowhere(settings, catalogues)]
    models = [*_of_themselves(settings), *nowhere]
    return not nowhere, [
        *_shown("keys  ", keys),
        *_shown("models", models),
        *_shown("keys  ", [*_open(settings)]),
    ]


def _shown(about: str, found: Sequence[str]) -> list[str]:
    more = len(found) - _MOST
    said = [f"{about} {printable(one)}" for one in found[:_MOST]]
    return said + ([f"{about} and {more} more"] if more > 0 else [])


def _open(settings: Settings) -> Iterator[str]:
    """What tells everybody about those who have keys."""
    if settings.auth.keys and settings.metrics.opened_by == "none":
        yield "/metrics is open to everybody, and names keys, models and endpoints: set metrics.key"


def _nowhere(settings: Settings, catalogues: Sequence[Catalogue]) -> Iterator[str]:
    """Fallbacks, a default model and a model for summaries that lead nowhere."""
    from router.endpoints.catalogue import serves

    for model, fallback in settings.fallbacks.items():
        for index, other in enumerate(fallback.models):
            if other != model and serves(catalogues, other) is False:
                yield f"FAILED: fallbacks.{model}[{index}]: no endpoint serves a model '{other}'"
    named = {"default_model": settings.default_model, "compaction.model": settings.compaction.model}
    for setting, name in named.items():
        if name is not None and serves(catalogues, name) is False:
            yield f"FAILED: {setting}: no endpoint serves a model '{name}'"


def _of_themselves(settings: Settings) -> Iterator[str]:
    for model, fallback in settings.fallbacks.items():
        for index, other in enumerate(fallback.models):
            if other == model:
                yield f"fallbacks.{model}[{index}]: a model is no fallback of itself"


def _slips(settings: Settings, catalogues: Sequence[Catalogue]) -> Iterator[str]:
    from router.endpoints.catalogue import serves
    from router.endpoints.plan import Fallbacks
    from router.usage.key_lint import hints

    fallbacks = Fallbacks(settings.fallbacks)

    def served(model: str) -> bool | None:
        return True if fallbacks.has(model) else serves(catalogues, model)

    for index, key in enumerate(settings.auth.keys):
        fields = {"models": key.models, "tags": key.tags, "model_limits": key.model_limits}
        for hint in hints(fields, served, settings.accounts.tags):
            yield f"auth.keys[{index}].{hint}"


async def _displaced(settings: Settings) -> list[str]:
    """Configured keys with the name of a virtual one, where there is a database to tell."""
    from router.state.database import StateError
    from router.state.maintenance.access import open_access
    from router.state.schema import SCHEMA_VERSION
    from router.state.statement import Statement

    try:
        access = open_access(settings.state)
        if access is None:
            return []
        try:
            if await access.version() != SCHEMA_VERSION:
                return []
            query = Statement("SELECT name FROM virtual_keys WHERE revoked_at IS NULL")
            virtual = {name for (name,) in await access.rows(query)}
        finally:
            await access.close()
    except StateError:
        return []  # what is wrong with the database is told in its own line
    return [
        f"auth.keys[{index}]: a virtual key has the name '{key.name}', too, and is refused"
        for index, key in enumerate(settings.auth.keys)
        if key.name in virtual
    ]
