"""A router that books nothing, limits nobody and counts no request: what accounts are measured by.

python -m tests.bench.unaccounted serve --config FILE
"""

from __future__ import annotations

import sys

import plugins
from plugins.limits import RequestLimits
from plugins.request_metrics import RequestMetrics
from router.cli.main import main
from router.core.plugin_chain import Observer, Plugin
from router.usage.recorder import UsageRecorder

__all__: list[str] = []


class _Nobody(Observer):
    def __init__(self, *_: object) -> None:
        pass


class _Unlimited(Plugin):
    def __init__(self, *_: object, **__: object) -> None:
        pass


if __name__ == "__main__":
    made = {RequestMetrics: _Nobody, RequestLimits: _Unlimited}
    for theirs, ours in made.items():
        assert getattr(plugins, theirs.__name__) is theirs
        setattr(plugins, theirs.__name__, ours)
    UsageRecorder.over = lambda *_: None  # type: ignore[method-assign]
    sys.exit(main())
