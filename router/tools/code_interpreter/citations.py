"""Where a text names a file of a container: the ``container_file_citation`` annotations of an
answer. Pure.

A citation is the file's path, also with ``sandbox:`` before it as OpenAI's models write it in a
link, or its bare name. Offsets count code points, and the end is the place behind the last one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

__all__ = ["ContainerFileCitation", "ContainerFileFinder", "NamedFile"]

_PREFIX: Final = r"(?<![\w./-])(?:sandbox:)?(?:/mnt/data/)?"
_LONGEST_PREFIX: Final = len("sandbox:/mnt/data/")
_END: Final = r"(?![\w-]|\.\w)"
_LOOKS_AHEAD: Final = 2
_MOST: Final = 200
"""Citations of one text."""

_MOST_FILES: Final = 100
_LONGEST_PATH: Final = 200
"""Files that are looked for, the last ones, and the characters of their paths: code may make any
number of them, and all requests wait while the text is searched.
"""


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that may be cited; ``path`` is below ``/mnt/data``."""

    id: str
    container: str
    path: str


class ContainerFileCitation(TypedDict):
    """An annotation of a text of an answer."""

    type: Literal["container_file_citation"]
    container_id: str
    file_id: str
    start_index: int
    end_index: int
    filename: str


class ContainerFileFinder:
    """Finds the citations of a text that arrives in pieces: the same, whatever the pieces. What is
    kept of the text is bounded by the longest path. Of many files the last ones are looked for.
    """

    def __init__(self, files: Iterable[NamedFile]) -> None:
        short = [file for file in files if len(file.path) <= _LONGEST_PATH]
        self._files = {file.path: file for file in short[-_MOST_FILES:]}
        longest = sorted(self._files, key=len, reverse=True)
        names = "|".join(map(re.escape, longest))
        self._pattern = re.compile(f"{_PREFIX}({names}){_END}") if longest else None
        self._kept = _LONGEST_PREFIX + _LOOKS_AHEAD + (len(longest[0]) if longest else 0)
        self._text = ""
        self._offset = 0  # of ``_text`` in the whole
        self._place = 0  # in ``_text``: all before is decided
        self._found = 0

    def feed(self, delta: str) -> list[ContainerFileCitation]:
        """The citations that are certain now, each given once."""
        if self._pattern is None:
            return []
        self._text += delta
        return self._scan(self._pattern, final=False)

    def finish(self) -> list[ContainerFileCitation]:
        """The rest, at the end of the text."""
        return [] if self._pattern is None else self._scan(self._pattern, final=True)

    def _scan(self, pattern: re.Pattern[str], *, final: bool) -> list[ContainerFileCitation]:
        found: list[ContainerFileCitation] = []
        undecided = len(self._text) - (0 if final else self._kept)
        for match in pattern.finditer(self._text, self._place):
            if match.start() > undecided or self._found >= _MOST:
                break
            self._place = match.end()
            self._found += 1
            found.append(self._citation(match))
        self._place = max(self._place, min(undecided, len(self._text)))
        # One character more: what is before a name decides whether it is one.
        done = max(self._place - 1, 0)
        self._text, self._offset = self._text[done:], self._offset + done
        self._place -= done
        return found

    def _citation(self, match: re.Match[str]) -> ContainerFileCitation:
        file = self._files[match[1]]
        return {
            "type": "container_file_citation",
            "container_id": file.container,
            "file_id": file.id,
            "start_index": self._offset + match.start(),
            "end_index": self._offset + match.end(),
            "filename": file.path,
        }
