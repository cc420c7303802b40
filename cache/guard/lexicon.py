"""What the guard knows of English: synonyms, opposites, names, and the words that say little."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from gzip import GzipFile
from importlib.resources import files
from sys import intern

__all__ = ["Lexicon", "lexicon"]


@dataclass(frozen=True, slots=True)
class Lexicon:
    """``groups`` maps a word to the numbers of the groups of words that mean the same (those from
    ``trusted`` on are chosen by hand); ``doers`` is the same for a deed and who does it.
    ``phrases`` are the expressions of several words that are known as one (joined with ``_``), by
    their first word, longest first. ``kinds`` are words for what others are: a phone for android;
    ``complements`` those of which one is true.
    """

    groups: dict[str, tuple[int, ...]]
    trusted: int
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
    kinds: dict[str, frozenset[str]]
    complements: dict[str, frozenset[str]]

    def opposed(self, first: str, second: str) -> bool:
        """Whether the words are opposites."""
        return (first, second) in self.opposites


@cache
def lexicon() -> Lexicon:
    """The lexicon, read at the first call (some 300 ms): call it off the hot path."""
    everyday: dict[str, list[str]] = defaultdict(list)
    for section, row in _rows("everyday.txt"):
        everyday[section].append(row)
    wordnet = _LexiconTables()
    for line in everyday["antonyms"]:
        wordnet.oppose(line)
    _read(wordnet)
    trusted = wordnet.number
    for line in everyday["synonyms"]:
        wordnet.group(line)
    for line in everyday["doers"]:
        wordnet.pair(line)
    spelled = frozenset(_words(everyday["synonyms"] + everyday["antonyms"]))
    return Lexicon(
        groups=wordnet.groups,
        trusted=trusted,
        doers=wordnet.doers,
        opposites=frozenset(wordnet.opposites),
        phrases=_phrases(word for word in spelled if "_" in word),
        words=frozenset(wordnet.words | {word for word in spelled if "_" not in word}),
        names=frozenset(wordnet.names),
        people=frozenset(wordnet.people),
        agents=frozenset(_words(everyday["agents"])),
        light=frozenset(_words(everyday["light"])),
        verbs=frozenset(_words(everyday["verbs"])),
        mild=frozenset(_words(everyday["mild"])),
        kinds=_table(everyday["kinds"]),
        complements=_table(everyday["complements"]),
    )


@dataclass(slots=True)
class _LexiconTables:
    """What is read of the dictionary, row by row: the whole text would take twice the memory."""

    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    doers: dict[str, tuple[int, ...]] = field(default_factory=dict)
    words: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    people: set[str] = field(default_factory=set)
    opposites: set[tuple[str, str]] = field(default_factory=set)
    number: int = 0

    def oppose(self, line: str) -> None:
        first, second = map(intern, line.split())
        self.opposites |= {(first, second), (second, first)}

    def group(self, line: str) -> None:
        words = line.split()
        if len(words) != 2 or (words[0], words[1]) not in self.opposites:
            self._add(self.groups, words)

    def pair(self, line: str) -> None:
        self._add(self.doers, line.split())

    def _add(self, groups: dict[str, tuple[int, ...]], words: list[str]) -> None:
        number = (self.number,)
        for word in map(intern, words):
            groups[word] = groups[word] + number if word in groups else number
        self.number += 1


def _read(found: _LexiconTables) -> None:
    """Reads what comes from WordNet; the opposites stand first."""
    sets = {"words": found.words, "names": found.names, "people": found.people}
    ways = {"opposites": found.oppose, "doers": found.pair}
    for section, row in _rows("wordnet.txt.gz"):
        if section in sets:
            sets[section].add(intern(row))
        else:
            ways.get(section, found.group)(row)


def _rows(name: str) -> Iterator[tuple[str, str]]:
    """The rows of a data file, each with the section it stands in."""
    section = ""
    with files("cache.guard").joinpath("data", name).open("rb") as raw:
        lines: Iterable[bytes] = raw
        if name.endswith(".gz"):
            lines = GzipFile(fileobj=raw)
        for line in lines:
            row = line.decode().rstrip("\n")
            if row.startswith("# "):
                section = row[2:]
            elif row:
                yield section, row


def _words(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield from map(intern, line.split())


def _table(lines: list[str]) -> dict[str, frozenset[str]]:
    return {first: frozenset(rest) for first, *rest in map(str.split, lines)}


def _phrases(joined: Iterable[str]) -> dict[str, tuple[tuple[str, ...], ...]]:
    found: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for phrase in sorted(joined, key=len, reverse=True):
        parts = tuple(phrase.split("_"))
        found[parts[0]].append(parts)
    return {first: tuple(rest) for first, rest in found.items()}
