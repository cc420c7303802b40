"""A router that books nothing, limits nobody and counts no request: what accounts are measured by.

python -m tests.bench.unaccounted serve --config FILE
"""

from __future__ import annotations

import sys
from dataclasses import replace

from plugins import BUNDLED
from router.cli.main import main
from router.plugin import Plugin
from router.usage.recorder import UsageRecorder

__all__: list[str] = []


if __name__ == "__main__":
    for name in ("request_metrics", "limits"):
        BUNDLED[name] = replace(BUNDLED[name], make=Plugin)
    UsageRecorder.over = lambda *_: None  # type: ignore[method-assign]
    sys.exit(main())
