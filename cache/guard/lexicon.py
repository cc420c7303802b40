"""What the guard knows of English: synonyms, opposites, names, and the words that say little."""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["Lexicon", "lexicon"]


@dataclass(frozen=True, slots=True)
class Lexicon:
    """``groups`` maps a word to the numbers of the groups of words that mean the same; ``doers``
    is the same for a deed and who does it. ``phrases`` are the expressions of several words
    that are known as one (joined with ``_``), by their first word, longest first.
    """

    groups: dict[str, tuple[int, ...]]
    doers: dict[str, tuple[int, ...]]
    opposites: frozenset[tuple[str, str]]
    phrases: dict[str, tuple[tuple[str, ...], ...]]
    words: frozenset[str]
    names: frozenset[str]
    people: frozenset[str]
    agents: frozenset[str]
    light: frozenset[str]
    verbs: frozenset[str]
    mild: frozenset[str]

    def opposed(self, first: str, second: str) -> bool:
        """Whether the words are opposites."""
        return (first, second) in self.opposites


@cache
def lexicon() -> Lexicon:
    """The lexicon, read at the first call (some 100 ms): call it off the hot path."""
    wordnet = _sections(gzip.decompress(_data("wordnet.txt.gz")).decode())
    everyday = _sections(_data("everyday.txt").decode())
    lines = wordnet["synonyms"] + wordnet["derived"] + everyday["synonyms"]
    opposites = set()
    for line in wordnet["opposites"] + everyday["antonyms"]:
        first, _, second = line.partition(" ")
        opposites |= {(first, second), (second, first)}
    light = frozenset(_words(everyday["light"]))
    spelled = frozenset(_words(everyday["synonyms"] + everyday["antonyms"]))
    return Lexicon(
        groups=_numbered(lines, opposites),
        doers=_numbered(wordnet["doers"] + everyday["doers"], set()),
        opposites=frozenset(opposites),
        phrases=_phrases(word for word in spelled if "_" in word),
        words=frozenset(wordnet["words"]) | {word for word in spelled if "_" not in word},
        names=frozenset(wordnet["names"]),
        people=frozenset(wordnet["people"]),
        agents=frozenset(_words(everyday["agents"])),
        light=light,
        verbs=frozenset(_words(everyday["verbs"])),
        mild=frozenset(_words(everyday["mild"])),
    )


def _data(name: str) -> bytes:
    return files("cache.guard").joinpath("data", name).read_bytes()


def _sections(text: str) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = defaultdict(list)
    rows: list[str] = []
    for line in text.splitlines():
        if line.startswith("# "):
            rows = sections[line[2:]]
        elif line:
            rows.append(line)
    return sections


def _words(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield from line.split()


def _numbered(lines: list[str], opposites: set[tuple[str, str]]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        words = line.split()
        if len(words) == 2 and (words[0], words[1]) in opposites:
            continue
        for word in words:
            found[word].append(number)
    return {word: tuple(numbers) for word, numbers in found.items()}


def _phrases(joined: Iterable[str]) -> dict[str, tuple[tuple[str, ...], ...]]:
    found: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for phrase in sorted(joined, key=len, reverse=True):
        parts = tuple(phrase.split("_"))
        found[parts[0]].append(parts)
    return {first: tuple(rest) for first, rest in found.items()}
