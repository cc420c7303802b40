"""Which texts may be matched by meaning at all."""

from __future__ import annotations

import re
import unicodedata

from cache.guard.lemmas import lemmas
from cache.guard.lexicon import lexicon
from cache.guard.reading import plain
from cache.guard.words import FOREIGN, FUNCTION, NUMBERS, ORDINALS, word_set

__all__ = ["MOST_WORDS", "gate"]

MOST_WORDS = 60
# Neither ASCII nor European letters, nor typographic signs.
_ODD = re.compile(
    r"[^\x20-\x7e\n\t\u00a0-\u017f\u2010\u2011\u2013\u2014\u2018\u2019\u201c-\u201e\u2026"
    r"\u20ac\u2122\u2212\u2264\u2265\u2260]"
)
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_CODE = re.compile(
    r"```|`|[{}\[\]|]|=>|->|==|!=|&&|\|\||</|/>|<\w+>|;\s*$|;\s*\n|\$\(|\w\(|\\\w|https?:|www\.|\w@\w|"
    r"^\s*(?:import|from \w+ import|def |class \w+[:(]|#include|SELECT .* FROM|Traceback)|"
    r"\w::\w|\w_\w|(?:^|\s)(?:~?/[\w.-]+){2,}|(?:^|\s)--?\w{2,}",
    re.MULTILINE,
)
_TIME = re.compile(
    r"\b(?:to-?day|to-?morrow|yesterday|tonight|now|nowadays|currently|current|latest|recently|"
    r"lately|at (?:the moment|present)|presently|upcoming|so far|up[- ]to[- ]date|ago|"
    r"as of|just (?:happened|released)|these days|live score|breaking|(?:this|next|last|past|"
    r"coming|previous) (?:few |couple of )?(?:second|minute|hour|day|night|morning|afternoon|"
    r"evening|week|weekend|month|quarter|season|semester|year|decade|century|monday|tuesday|"
    r"wednesday|thursday|friday|saturday|sunday|january|february|march|april|june|july|august|"
    r"september|october|november|december|spring|summer|autumn|winter)s?|"
    r"(?:on|for|by|until|till|since) (?:mon|tues|wednes|thurs|fri|satur|sun)day|"
    r"what (?:time|day|date|year) is it|what(?:'s| is) the (?:time|date)|in \d+ "
    r"(?:minutes|hours|days|weeks|months|years) from|right away|still)\b",
    re.IGNORECASE,
)
_REFERENCE = re.compile(
    r"\b(?:(?:this|that|these|those|following|attached|above|below|enclosed|previous|given) "
    r"(?:\w+ )?(?:article|text|document|e-?mail|code|snippet|passage|paragraph|essay|file|image|"
    r"picture|photo|screenshot|logs?|table|list|story|message|letter|page|link|url|function|"
    r"script|poem|sentences?|words?|data|json|xml|csv|pdf|report|review|conversation|"
    r"transcript|excerpt|output|input|attachment|chart|graph|one)|attached|attachment|"
    r"(?:the|as) (?:above|following|below)|(?:see|text|code|article|list|shown|given|"
    r"mentioned|listed) (?:above|below)|mentioned earlier|said before)\b",
    re.IGNORECASE,
)
_EMPTY = word_set("please thanks thank hi hello hey continue go more ok okay yes no sure")


def gate(text: str) -> str | None:
    """Why this text may not be matched by meaning: ``script``, ``too_long``, ``code``, ``time``,
    ``references``, ``too_short`` or ``language``; None where it may.
    """
    if _ODD.search(text) or unicodedata.normalize("NFC", text) != text:
        return "script"
    text = plain(text)
    if len(text) > 600:
        return "too_long"
    if _CODE.search(text):
        return "code"
    words = [w.lower() for w in _WORD.findall(text)]
    if len(text.split()) > MOST_WORDS:
        return "too_long"
    if _TIME.search(text):
        return "time"
    if _REFERENCE.search(text):
        return "references"
    counted = sum(c.isdigit() for c in text) > 1 and len(text.split()) > 3
    if len(text.split()) < 2 or (not counted and all(w in FUNCTION or w in _EMPTY for w in words)):
        return "too_short"
    return None if _english(text, words) else "language"


def _english(text: str, words: list[str]) -> bool:
    """Whether most of it is English; what stands in quotation marks does not count."""
    # Nor do abbreviations.
    unquoted = [w.lower() for w in _WORD.findall(re.sub(r'"[^"]*"', " ", text)) if not w.isupper()]
    judged = unquoted or words
    known = lexicon().words
    foreign = sum(w in FOREIGN and w not in FUNCTION for w in judged)
    function = sum(w.split("'")[0] in FUNCTION for w in judged)
    strange = sum(
        not (
            w.split("'")[0] in FUNCTION
            or w in NUMBERS
            or w in ORDINALS
            or len(w) == 1
            or any(base in known for base in lemmas(w.split("'")[0]))
        )
        for w in judged
    )
    if foreign > 1 and foreign >= function:
        return False
    if not function:
        return strange * 2 <= len(judged)
    return strange * 2 <= len(judged)
