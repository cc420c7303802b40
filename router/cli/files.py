"""What ``pointsman check`` says of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.settings.schema import Settings

__all__ = ["glance"]


def glance(settings: Settings) -> tuple[bool, str]:
    """Whether files can be kept as they are configured, and a line that says so. An empty line
    where they are not kept.
    """
    from router.files.directory import unusable
    from router.files.extraction import missing_extractors

    path = settings.files.path
    if path is None:
        return True, ""
    problem = unusable(path)
    if problem is not None:
        return False, f"files  {path}: FAILED: {problem}"
    return True, f"files  {path}: {missing_extractors() or 'ok'}"
