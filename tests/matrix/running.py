"""Runs the cells."""

from __future__ import annotations

from tests.matrix.asking import PATHS
from tests.matrix.cases import PASSED_ON, outcomes
from tests.matrix.expected import cells, expected
from tests.matrix.others import OTHERS
from tests.matrix.stand import Stand, standing

__all__ = ["tried", "wrong"]


async def tried(stand: Stand, surface: str, feature: str) -> str:
    """What becomes of a feature; where the answer is not what was asked for, why it is not."""
    try:
        if surface in PATHS:
            return await outcomes(stand, surface, feature)
        [case] = [table[surface][feature] for table in OTHERS.values() if surface in table]
        return await case(stand)
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        return f"fails: {type(error).__name__}: {error}"


async def wrong(column: str, *, cached: bool = False) -> list[str]:
    """The cells of a kind of endpoint that are not what they are to be.

    ``cached``: as the cache answers them, where it may.
    """
    found = []
    fields = {"citations": True} if column == "messages" else {}
    async with standing(column, cached=cached, fields=fields) as stand:
        for surface, feature in cells():
            wanted, got = expected(surface, feature, column), await tried(stand, surface, feature)
            if cached and wanted == PASSED_ON and got.startswith("ignored: "):
                continue  # what the cache answers has been translated
            if got != wanted:
                found.append(f"{surface}, {feature}, towards {column}: {got!r} is not {wanted!r}")
    if cached and not stand.hits:
        found.append(f"nothing towards {column} was answered from the cache")
    return found
