"""Writes the traces anew: ``python -m tests.golden.make``. Read the diff before it is committed."""

from __future__ import annotations

import asyncio

from tests.golden.scenes import PAIRS
from tests.golden.steps import STEPS
from tests.golden.surface import SURFACES
from tests.golden.trace import TRACES, file_of, followed, traced
from tests.support.fleet import DIALECTS


async def main() -> None:
    """Write every trace."""
    TRACES.mkdir(exist_ok=True)
    for api, column in PAIRS:
        file_of(api, column).write_text(await traced(api, column), encoding="utf-8")
    for name in STEPS:
        for dialect in DIALECTS:
            file_of(name, dialect).write_text(await followed(name, dialect), encoding="utf-8")
    for name, shown in SURFACES.items():
        file_of(name).write_text(await shown(), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
