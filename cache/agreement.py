"""Whether two answers to what is taken for one question say the same. Pure.

Models word an answer differently each time, so what counts is what is *said*: numbers, yes or no,
negation, and the words that carry the content. Doubt counts as disagreement: an estimate of wrong
hits that is too high costs some upstream calls, one that is too low hides wrong answers. But not
every difference is doubt, or two samples of one question would disagree and the estimate would
say nothing: long answers may leave out what the other one mentions, only not contradict it.

- Equal after normalisation: yes.
- Both short: the same numbers, the same negation, the same content words. A bare answer and a
  sentence that gives it agree ("Paris", "The capital of France is Paris"): the sentence is cut at
  its verb, and the answer has to be all of one side.
- Otherwise: similar embeddings (or, without, mostly the same content words), and in the first
  sentences, where an answer usually stands, neither opposite numbers nor a yes against a no nor
  the same words with and without a negation.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["agrees"]

SIMILAR: Final = 0.8
"""Embeddings of long answers are at least as similar as this."""

_SHARED: Final = 0.6
"""Where there are no embeddings: this share of the shorter one's content words is in both."""

_SAME_SENTENCE: Final = 0.8
_SHORT_WORDS: Final = 8
_SHORT_LETTERS: Final = 80
"""Scripts without spaces have few words."""


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_YES: Final = _set("yes yeah yep correct true right indeed certainly definitely")
_NO: Final = _set("no nope incorrect false wrong")
_NEGATIONS: Final = _set(
    "not no never none nothing nobody neither nor without cannot cant dont doesnt didnt isnt arent "
    "wasnt werent wont wouldnt shouldnt couldnt hasnt havent hadnt mustnt nope false incorrect"
)
_VERBS: Final = _set("is are was were be been equals has have had")
_ORDERING: Final = _set(
    "before after than to from over under above below into onto minus divided by beats then"
)
_FILLERS: Final = _set(
    "a an the of in on at for with and or that this these those it its there here he she they i "
    "you we as so do does did will would can answer sure certainly course please heres "
    "approximately about roughly exactly"
)
_SMALL_NUMBERS: Final = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBERS: Final = {word: str(number) for number, word in enumerate(_SMALL_NUMBERS.split())}
_WORD: Final = re.compile(
    r"-?\d+(?:\.\d+)?|[^\W\d_]+(?:'[^\W\d_]+)*|[+/=<>%$€£°]|(?<=[\d ])\*(?=[\d ])"
)
_THOUSANDS: Final = re.compile(r"(?<=\d)[,\u202f'](?=\d{3}(?!\d))")
_RANGE: Final = re.compile(r"(?<=\d)\s*[-\u2013]\s*(?=\d)")
_SENTENCE: Final = re.compile(r"(?<=[.!?\u3002\uff01\uff1f])\s+|\n+")
_NUMBER: Final = re.compile(r"-?\d")


def agrees(cached: str, fresh: str, similarity: float | None) -> bool:
    """Whether the answers say the same. ``similarity`` is the cosine of their embeddings, None
    where it is not known; short answers do without.
    """
    # A sign at the very beginning is read by what is before it.
    cached, fresh = cached.strip(), fresh.strip()
    first, second = _words(cached), _words(fresh)
    if first == second:
        return bool(first) or cached == fresh
    if not first or not second:
        return False
    if _short(cached, first) and _short(fresh, second):
        return _short_agree(first, second)
    one, other = _words(_opening(cached)), _words(_opening(fresh))
    if _contradict(one, other):
        return False
    if _short(cached, first) and _gives(other, first):
        return True
    if _short(fresh, second) and _gives(one, second):
        return True
    if similarity is not None:
        return similarity >= SIMILAR
    return _shared(first, second) >= _SHARED


def _words(text: str) -> list[str]:
    """Words, numbers and signs in one spelling, without case, punctuation and markup."""
    text = (
        unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'").replace("\u2212", "-")
    )
    text = _RANGE.sub(" ", _THOUSANDS.sub("", text))
    words = (word.replace("'", "") for word in _WORD.findall(text))
    return [_number(_NUMBERS.get(word, word)) for word in words]


def _number(word: str) -> str:
    """``3.50`` is ``3.5``, ``4.0`` is ``4``."""
    return word.rstrip("0").rstrip(".") if "." in word and _NUMBER.match(word) else word


def _short(text: str, words: list[str]) -> bool:
    return len(words) <= _SHORT_WORDS and len(text) <= _SHORT_LETTERS


def _short_agree(first: list[str], second: list[str]) -> bool:
    if _opposite(first, second) or _negated(first) != _negated(second):
        return False
    if _gives(second, first) or _gives(first, second):
        return True
    one, other = _content(first), _content(second)
    if sorted(one) != sorted(other):
        return False
    return one == other or _ORDERING.isdisjoint(first)


def _gives(sentence: list[str], answer: list[str]) -> bool:
    """Whether the sentence is some subject, a verb and this answer, or the other way round."""
    cut = next((place for place, word in enumerate(sentence) if word in _VERBS), None)
    if cut is None or _negated(sentence) != _negated(answer):
        return False
    wanted = _content(answer)
    return bool(wanted) and wanted in (_content(sentence[:cut]), _content(sentence[cut:]))


def _contradict(first: list[str], second: list[str]) -> bool:
    """Whether two first sentences say the opposite."""
    if _opposite(first, second):
        return True
    one, other = _numbers(first), _numbers(second)
    if one and other and not (one <= other or other <= one):
        return True
    return _negated(first) != _negated(second) and _shared(first, second) >= _SAME_SENTENCE


def _opposite(first: list[str], second: list[str]) -> bool:
    """Whether one begins with yes and the other with no."""
    one, other = first[:1], second[:1]
    return bool(
        (_YES.intersection(one) and _NO.intersection(other))
        or (_NO.intersection(one) and _YES.intersection(other))
    )


def _opening(text: str) -> str:
    """The first sentence."""
    return next((part for part in _SENTENCE.split(text.strip()) if _words(part)), "")


def _negated(words: list[str]) -> bool:
    return not _NEGATIONS.isdisjoint(words)


def _numbers(words: list[str]) -> set[str]:
    return {word for word in words if _NUMBER.match(word)}


def _content(words: list[str]) -> list[str]:
    """The words that say something; all of them where there are no others."""
    found = [_stem(word) for word in words if word not in _FILLERS and word not in _VERBS]
    return found or list(words)


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _shared(first: list[str], second: list[str]) -> float:
    one, other = set(_content(first)), set(_content(second))
    return len(one & other) / max(1, min(len(one), len(other)))
