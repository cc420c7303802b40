"""All that is worked out about one text, once, before it is compared with others."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from cache.guard.frames import TYPED, QuestionFrame, frame_of, opening
from cache.guard.lemmas import degree, lemmas
from cache.guard.lexicon import lexicon
from cache.guard.reading import Word, read
from cache.guard.words import (
    FUNCTION,
    MONTHS,
    NEGATIONS,
    PREPOSITIONS,
    QUANTIFIERS,
    UNITS,
    WEEKDAYS,
    WH,
    word_set,
)

__all__ = ["ContentWord", "Profile", "profile", "worded"]

_ARTICLES = word_set("a an the my your our his her their its this that some any")
_OWNERS = {
    "my": "i", "mine": "i", "our": "i", "your": "you", "yours": "you", "his": "he",
    "her": "she", "hers": "she", "their": "they",
}  # fmt: skip
_DOERS = word_set("i you we they he she it to not can could should would must will")
_MAKING = word_set("create add make open write start generate define set_up register")
_OWNED = word_set("my our the i it we")
_LASTING = word_set("keeps keep will does is are")
_PERIODS = word_set("time day night morning evening week month year")
_SCALES = word_set("celsius fahrenheit kelvin c f")
_FRUGAL = word_set("list show find get see print name display view")
_LETTERS = frozenset(["c", "r", "f", "d", "b", "g", "v", "x", "y", "z", "n", "p", "q", "e", "m"])


@dataclass(slots=True, eq=False)
class ContentWord:
    """A word that carries content. ``keys``: what it may be a form of; ``near``: the groups of
    words that mean the same; ``prep``: the preposition in front of it; ``link``: the words
    between it and the item before; ``asked``: the unit after ``how many``.
    """

    text: str
    kind: str  # word, name, number, unit, date
    keys: frozenset[str]
    near: frozenset[int] = frozenset()
    doers: frozenset[int] = frozenset()
    light: bool = False
    verb: bool = False
    mild: bool = False
    typed: bool = False
    degree: int = 0
    asked: bool = False
    prep: str = ""
    link: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Profile:
    """One text, ready to be compared. ``stated``: it says that something is wrong."""

    text: str
    items: list[ContentWord]
    frame: QuestionFrame
    numbers: tuple[str, ...]
    signs: tuple[str, ...]
    quoted: tuple[str, ...]
    negations: int
    quantifiers: frozenset[str]
    owners: frozenset[str]
    texts: frozenset[str] = frozenset()
    negated: list[frozenset[str]] = field(default_factory=list)
    stated: bool = False


@lru_cache(maxsize=2048)
def profile(text: str) -> Profile:
    """The profile of a text; of any text, however odd."""
    reading = read(text)
    words = reading.words
    begin = opening(words)
    frame = frame_of(words, begin)
    typed = _typed(words, frame)
    items, negated = _items(words, begin, frame, typed)
    texts = [w.text for w in words]
    return Profile(
        text=text,
        items=items,
        frame=frame,
        numbers=tuple(w.text for w in words if w.kind == "num"),
        signs=tuple(w.text for w in words if w.kind == "op"),
        quoted=tuple(sorted(reading.quoted)),
        negations=sum(t in NEGATIONS for t in texts),
        quantifiers=_quantifiers(words),
        owners=frozenset(_OWNERS[t] for t in texts if t in _OWNERS),
        texts=frozenset(texts),
        negated=negated,
        stated=_stated(words, begin, frame),
    )


def _typed(words: list[Word], frame: QuestionFrame) -> int:
    """Where the noun stands that a ``which`` or ``what`` asks for, or -1."""
    if frame.added != [TYPED]:
        return -1
    frame.added = []
    for i, word in enumerate(words):
        if word.text in ("which", "what"):
            for j in range(i + 1, min(i + 4, len(words) - 1)):
                if words[j + 1].text in FUNCTION:
                    return j
            return i + 1
    return -1


def _stated(words: list[Word], begin: int, frame: QuestionFrame) -> bool:
    """Whether it begins with a statement: "My tap leaks, how do I fix it?"."""
    first = words[begin].text if begin < len(words) else ""
    if frame.kind == "other":
        return first in _OWNED or any(w.text in _LASTING for w in words[begin:])
    asks = [i for i in range(begin, len(words)) if words[i].text in WH and words[i].start]
    return bool(asks) and asks[0] > begin + 2 and first not in PREPOSITIONS


def _items(
    words: list[Word], begin: int, frame: QuestionFrame, typed: int
) -> tuple[list[ContentWord], list[frozenset[str]]]:
    """The items, and what is negated."""
    items: list[ContentWord] = []
    negated: list[frozenset[str]] = []
    prep, denied = "", False
    link: list[str] = []
    making = any(not _MAKING.isdisjoint(lemmas(w.text)) for w in words)
    for i, word in enumerate(words[begin:], begin):
        text = word.text
        denied = denied or text in NEGATIONS
        if _grammatical(words, i):
            if text not in _ARTICLES:
                prep = text if text in PREPOSITIONS else ""
                link.append(text)
            continue
        if i in frame.used or word.kind == "op" or (text == "new" and not word.name and making):
            link.append(text)
            continue
        item = _item(words, i)
        item.prep, item.link, item.typed = prep, tuple(link), i == typed
        item.asked = item.kind == "unit" and i > 1 and words[i - 1].text == "many"
        _weigh(item, words[i + 1 : i + 2])
        prep, link = "", []
        if denied and text not in NEGATIONS and not _before_head(words, i, frame):
            negated.append(item.keys)
            denied = False
        items.append(item)
    return [*map(worded, frame.added), *items], negated


def _before_head(words: list[Word], i: int, frame: QuestionFrame) -> bool:
    """Whether what is negated comes later: will not my car start, without a bottle opener."""
    before = [w.text for w in words[max(0, i - 2) : i]]
    if frame.question == "why" and before[-1:] != ["not"] and before[:1] == ["not"]:
        return i + 1 < len(words)
    after = words[i + 1].text if i + 1 < len(words) else ""
    return bool({"without", "no"} & set(before)) and after not in FUNCTION | {""}


def _grammatical(words: list[Word], i: int) -> bool:
    """Whether the word carries no content where it stands."""
    text = words[i].text
    if words[i].kind != "word":
        return False
    if text in ("degree", "degrees"):
        return any(w.text in _SCALES for w in words[i + 1 : i + 2])
    return text in FUNCTION and not _letter(words, i) and not _dated(words, i)


def _weigh(item: ContentWord, after: list[Word]) -> None:
    """Takes from an item the right to be left out, where its place speaks against that."""
    if item.prep and item.prep not in ("to", "of", "as") and not item.text.endswith("ing"):
        item.verb = item.mild = False
    if item.text.endswith(("ing", "ed")) and after and after[0].text not in FUNCTION:
        # A starting salary is not any salary.
        item.mild = False
    if item.link and item.link[-1] in _DOERS:
        # No longer a mere way of asking: what is to be done.
        item.light = False


def _letter(words: list[Word], i: int) -> bool:
    """``A`` and the like where it names something: vitamin A."""
    return (
        words[i].name and len(words[i].text) == 1 and words[i].text == "a" and i == len(words) - 1
    )


def _dated(words: list[Word], i: int) -> bool:
    text = words[i].text
    if text == "may":
        return words[i].name or any(
            0 <= j < len(words) and words[j].kind == "num" for j in (i - 1, i + 1)
        )
    return text == "am" and i > 0 and words[i - 1].kind == "num"


def _item(words: list[Word], i: int) -> ContentWord:
    word = words[i]
    text = word.text
    counted = i > 0 and words[i - 1].kind == "num"
    if word.kind == "num":
        return ContentWord(text, "number", frozenset((text,)))
    if text in ("am", "pm") and counted:
        return ContentWord(text, "date", frozenset((text + "-time",)))
    if text in ("c", "f") and counted:
        return ContentWord(text, "unit", frozenset(({"c": "celsius", "f": "fahrenheit"}[text],)))
    if text in MONTHS and (text not in ("may", "march", "mar") or _dated(words, i) or word.name):
        return ContentWord(text, "date", frozenset((MONTHS[text],)))
    day = text[:-1] if text.endswith("s") else text
    if day in WEEKDAYS:
        return ContentWord(text, "date", frozenset((day,)))
    if (counted or len(text) > 2) and text in UNITS and text not in ("second", "may"):
        if counted and text in ("g", "m"):
            text = {"g": "gram", "m": "meter"}[text]
        unit = UNITS.get(text, text)
        return ContentWord(
            text, "unit", frozenset((unit,)), frozenset(lexicon().groups.get(unit, ()))
        )
    if counted and text in ("g", "m", "in"):
        return ContentWord(
            text, "unit", frozenset(({"g": "gram", "m": "meter", "in": "inch"}[text],))
        )
    item = worded(text)
    if word.name or (text in lexicon().names and text not in lexicon().words):
        item.kind = "name"
        item.light = item.verb = item.mild = False
    if i and words[i - 1].text in ("most", "least", "more", "less"):
        item.degree = 2 if words[i - 1].text in ("most", "least") else 1
    return item


@lru_cache(maxsize=20_000)
def _known(
    text: str,
) -> tuple[frozenset[str], frozenset[int], frozenset[int], bool, bool, bool, int]:
    words = lexicon()
    keys = lemmas(text)
    near = frozenset(n for key in keys for n in words.groups.get(key, ()))
    doers = frozenset(n for key in keys for n in words.doers.get(key, ()))
    light = any(key in words.light for key in keys)
    verb = any(key in words.verbs for key in keys)
    mild = any(key in words.mild for key in keys)
    return frozenset(keys), near, doers, light, verb, mild, degree(text)


def worded(text: str) -> ContentWord:
    """The item of a word wherever it stands."""
    keys, near, doers, light, verb, mild, step = _known(text)
    return ContentWord(text, "word", keys, near, doers, light, verb, mild, degree=step)


def _quantifiers(words: list[Word]) -> frozenset[str]:
    found = set()
    for i, word in enumerate(words):
        kind = QUANTIFIERS.get(word.text)
        if word.text == "most" and i and words[i - 1].text == "at":
            kind = "at most"
        if kind is None or word.kind != "word":
            continue
        if kind in ("most", "least", "more", "less") and word.text != "least":
            after = words[i + 1].text if i + 1 < len(words) else ""
            # Most people, but not: most popular.
            if kind == "more" or (kind == "most" and not after.endswith(("s", "people"))):
                continue
        if kind == "all" and i and words[i - 1].text in _FRUGAL:
            continue
        if kind == "all" and i + 1 < len(words) and words[i + 1].text in _PERIODS:
            continue
        if word.text == "few" and i and words[i - 1].text == "a":
            continue
        found.add(kind)
    return frozenset(found)
