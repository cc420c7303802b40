"""Where files are kept whose place the configuration leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["data_directory"]


def data_directory(environ: Mapping[str, str]) -> Path:
    """``POINTSMAN_DATA_DIR``, or ``pointsman`` where data of this user belongs."""
    if data := environ.get("POINTSMAN_DATA_DIR"):
        return Path(data)
    if shared := environ.get("XDG_DATA_HOME"):
        return Path(shared) / "pointsman"
    return Path.home() / ".local" / "share" / "pointsman"
