"""The forms under which a word may stand in the lexicon."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from cache.guard.lexicon import lexicon
from cache.guard.words import ADJECTIVES, IRREGULAR, word_set

__all__ = ["degree", "lemmas"]

_BRITISH = (
    (re.compile(r"our(s|ed|ing|ful|ite)?\Z"), r"or\1"),
    (re.compile(r"is(e|es|ed|ing|ation|ations|er)\Z"), r"iz\1"),
    (re.compile(r"ys(e|es|ed|ing)\Z"), r"yz\1"),
    (re.compile(r"tre(s)?\Z"), r"ter\1"),
    (re.compile(r"ogue(s)?\Z"), r"og\1"),
    (re.compile(r"ll(ed|ing|er)\Z"), r"l\1"),
    (re.compile(r"ence\Z"), r"ense"),
)
_NOT_PLURAL = re.compile(r"(?:ss|us|is|news|physics|always|perhaps|series|species|lens)\Z")
_NOT_VERBS = word_set("evening morning nothing something anything everything thing")
_MATES = {"tyre": "tire", "grey": "gray", "cheque": "check", "programme": "program"}


@lru_cache(maxsize=20_000)
def lemmas(word: str) -> tuple[str, ...]:
    """The word (in lower case) and what it may be a form of, the likeliest first."""
    known = lexicon().words
    found = [word]
    bare = "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))
    if bare != word:
        found.append(bare)
    if word in IRREGULAR:
        found.append(IRREGULAR[word])
    for form in _american(word):
        found.append(form)
    for form in tuple(found):
        found += [base for base in _plain(form) if base in known]
        plain = _singular(form)
        if plain:
            found.append(plain)
    return tuple(dict.fromkeys(found))


def degree(word: str) -> int:
    """0 for a word as it is, 1 for a comparative, 2 for a superlative."""
    if word in ("better", "worse"):
        return 1
    if word in ("best", "worst"):
        return 2
    for ending, number in (("est", 2), ("er", 1)):
        if word.endswith(ending) and any(b in ADJECTIVES for b in _stems(word[: -len(ending)])):
            return number
    return 0


def _american(word: str) -> list[str]:
    known = lexicon().words
    found = [_MATES[word]] if word in _MATES else []
    for pattern, replacement in _BRITISH:
        other = pattern.sub(replacement, word)
        if other != word and any(form in known for form in (other, *_plain(other))):
            found.append(other)
    return found


def _stems(stem: str) -> list[str]:
    """What a word may have been before ``-ed``, ``-ing``, ``-er`` or ``-est``."""
    found = [stem, stem + "e"]
    if len(stem) > 2 and stem[-1] == stem[-2]:
        found.append(stem[:-1])
    if stem.endswith("i"):
        found.append(stem[:-1] + "y")
    return found


def _plain(word: str) -> list[str]:
    if word.endswith("ing") and len(word) > 4 and word not in _NOT_VERBS:
        return _stems(word[:-3])
    if word.endswith("ed") and len(word) > 4:
        return _stems(word[:-2])
    if word.endswith("ly") and len(word) > 4:
        stem = word[:-2]
        return [stem, stem[:-1] + "y" if stem.endswith("i") else stem + "le"]
    for ending in ("est", "er"):
        if word.endswith(ending):
            return [base for base in _stems(word[: -len(ending)]) if base in ADJECTIVES]
    return []


def _singular(word: str) -> str | None:
    if len(word) < 4 or not word.endswith("s") or _NOT_PLURAL.search(word):
        return None
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes", "zes")):
        return word[:-2]
    return word[:-1]
