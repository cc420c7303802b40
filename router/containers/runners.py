"""The runner that the settings name."""

from __future__ import annotations

from router.containers.jupyter.runner import JupyterRunner
from router.containers.local.runner import LocalRunner
from router.containers.runner import Runner
from router.settings.code_interpreter import CodeInterpreterSettings

__all__ = ["make_runner"]


def make_runner(settings: CodeInterpreterSettings | None) -> Runner | None:
    """The runner, which has started nothing yet; None where no code is run."""
    if settings is None:
        return None
    if settings.jupyter is not None:
        return JupyterRunner(settings.jupyter)
    assert settings.local is not None
    return LocalRunner(settings.local)
