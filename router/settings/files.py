"""The settings of uploaded files, and of the text that is extracted from files."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from router.settings.section import Section
from router.settings.values import Count, CountOrZero, Positive, Seconds, Text

__all__ = ["ExtractionSettings", "FilesSettings"]


class ExtractionSettings(Section):
    """The text of files, for models whose endpoints read none: each is extracted by a process of
    its own, within these limits.
    """

    timeout: Seconds = 60.0
    """The longest that the text of one file may take, and the most processor time."""
    memory_mb: Annotated[Positive, Field(ge=256)] = 1024.0
    """The most memory of the process, in MiB."""
    max_mb: Positive = 64.0
    """The largest file whose text is extracted, in MiB."""
    max_expanded_mb: Positive = 256.0
    """The most that a compressed file (DOCX) may expand to, in MiB."""
    max_characters: Count = 2_000_000
    """The longest text; a file with more is refused."""
    processes: Count = 2
    """Files whose text is extracted at once, in each worker; more wait."""
    max_waiting: CountOrZero = 64
    """The most files that wait."""


class FilesSettings(Section):
    """Files that clients upload (`/v1/files`), and the text of files in requests."""

    path: Text | None = None
    """The directory that uploaded files are kept in; all routers of one database share it. Without
    it nothing can be uploaded.
    """
    max_mb: Positive = 512.0
    """The largest file, in MiB."""
    max_total_mb: Positive = 10_240.0
    """The most that all files of one key may take, in MiB."""
    max_files: Count = 10_000
    """The most files of one key."""
    max_request_mb: Positive = 50.0
    """The most that all files of one request may have together, in MiB."""
    extraction: ExtractionSettings = ExtractionSettings()
    """How text is extracted from files."""
