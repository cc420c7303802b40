"""The text of files, extracted by child processes with limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from router.settings.files import ExtractionSettings

__all__ = ["ExtractedText", "ExtractionFailed", "TextExtractor", "UnsupportedFile"]


class UnsupportedFile(Exception):
    """Files of this kind have no text that could be extracted: a sentence for the client."""


class ExtractionFailed(Exception):
    """The text could not be extracted: why, as a sentence for the client."""


@dataclass(frozen=True, slots=True)
class ExtractedText:
    """The text of a file, and the media type of what it was found to be."""

    text: str
    media_type: str


class TextExtractor:
    """Extracts text; as many files at once as ``settings.processes``, and more wait."""

    def __init__(self, settings: ExtractionSettings) -> None:
        self.settings = settings

    async def extract(
        self, path: Path, filename: str, media_type: str | None = None
    ) -> ExtractedText:
        """The text of the file at ``path``; ``filename`` is what its client calls it.

        Raises UnsupportedFile, ExtractionFailed, and Overloaded where too many wait.
        """
        raise NotImplementedError
