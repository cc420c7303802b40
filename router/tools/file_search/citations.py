"""Which files an answer cites: the ``file_citation`` annotations of its text. Pure.

A model is shown numbered results and told to cite them as ``【3】``. These marks are taken out of
the text, as OpenAI does, and an annotation says where they were. The name of a file that was shown,
as it stands, is a citation as well, and stays. Places count code points of the text without marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

__all__ = ["FileCitation", "FileCitationFinder", "FileSource", "file_citations", "mark_of"]

_MARK: Final = re.compile(r"【\s*(\d{1,4})\s*(?:[†:][^【】\n]{0,120})?】")
_OPEN: Final = re.compile(r"【\s*(?:\d{1,4}\s*(?:[†:][^【】\n]{0,120})?)?\Z")
"""What may become a mark."""

_SHORTEST_NAME: Final = 5
_LONGEST_NAME: Final = 256


@dataclass(frozen=True, slots=True)
class FileSource:
    """A result that the model was shown, by its number."""

    number: int
    file: str
    filename: str


class FileCitation(TypedDict):
    """An annotation of a text of an answer."""

    type: Literal["file_citation"]
    index: int
    file_id: str
    filename: str


def mark_of(number: int) -> str:
    """How a model cites the result with this number."""
    return f"【{number}】"


def file_citations(text: str, sources: Iterable[FileSource]) -> tuple[str, list[FileCitation]]:
    """A whole text without its marks, and what it cites, in order."""
    finder = FileCitationFinder(sources)
    first, cited = finder.feed(text)
    last, more = finder.finish()
    return first + last, cited + more


class FileCitationFinder:
    """Takes a text in pieces, and gives it back without marks: the same, whatever the pieces.

    What may be a mark or the name of a file is kept until that is decided, which takes a few
    hundred characters at most. ``text`` is all that was given back so far.
    """

    def __init__(self, sources: Iterable[FileSource]) -> None:
        given = list(sources)
        self._by_number = {str(source.number): source for source in given}
        self._by_name = {
            source.filename: source
            for source in reversed(given)
            if _SHORTEST_NAME <= len(source.filename) <= _LONGEST_NAME
        }
        names = sorted(self._by_name, key=lambda name: -len(name))
        either = "|".join([_MARK.pattern, *map(_whole, names)])
        self._either = re.compile(either)
        self._held = ""
        self._before = ""  # the character before what is held
        self.text = ""

    def feed(self, delta: str) -> tuple[str, list[FileCitation]]:
        """What is certain now: text, and the citations that end in it."""
        if not self._by_number:
            self.text += delta
            return delta, []
        self._held += delta
        return self._cut(self._undecided())

    def finish(self) -> tuple[str, list[FileCitation]]:
        """The rest, at the end of the text."""
        return self._cut(len(self._held))

    def _undecided(self) -> int:
        """From where on what is held may be the beginning of something."""
        place = len(self._held)
        if (opened := _OPEN.search(self._held)) is not None:
            place = opened.start()
        for name in self._by_name:
            # A whole name at the end is undecided, too: the word may go on.
            for size in range(min(len(name), len(self._held)), len(self._held) - place, -1):
                if self._held.endswith(name[:size]):
                    place = len(self._held) - size
                    break
        return place

    def _cut(self, end: int) -> tuple[str, list[FileCitation]]:
        whole = self._before + self._held
        shift = len(self._before)
        parts: list[str] = []
        cited: list[FileCitation] = []
        length, done = len(self.text), shift
        for found in self._either.finditer(whole, shift):
            if found.start() >= shift + end:
                break
            number = found[1]
            source = self._by_number.get(number) if number else self._by_name.get(found[0])
            keep_to = found.end() if source is None or not number else found.start()
            parts.append(whole[done:keep_to])
            length += keep_to - done
            done = found.end()
            if source is not None:
                cited.append(_citation(source, length))
        # A match may reach over what is undecided: it is decided, then.
        stop = max(done, shift + end)
        parts.append(whole[done:stop])
        text = "".join(parts)
        self._before = whole[stop - 1 : stop] if stop else ""
        self._held = whole[stop:]
        self.text += text
        return text, cited


def _whole(name: str) -> str:
    """A pattern for a name that is not part of a longer word."""
    before = r"(?<!\w)" if name[0].isalnum() else ""
    behind = r"(?!\w)" if name[-1].isalnum() else ""
    return f"{before}{re.escape(name)}{behind}"


def _citation(source: FileSource, index: int) -> FileCitation:
    return {
        "type": "file_citation",
        "index": index,
        "file_id": source.file,
        "filename": source.filename,
    }
