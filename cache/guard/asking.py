"""What is asked for with ``what`` or ``which``: a way, a reason, a time, a person, a thing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from cache.guard.lemmas import lemmas
from cache.guard.lexicon import lexicon
from cache.guard.reading import Word
from cache.guard.words import AUXILIARIES, PREPOSITIONS, word_set

__all__ = ["PLACES", "TYPED", "QuestionFrame", "what"]

TYPED: Final = "\0type"  # stands in ``added`` where the noun after which or what is meant

_TOOLS: Final = word_set("command function method code syntax query shortcut")
_EASING: Final = word_set("help stop clear relieve cure remove prevent kill soothe unclog fix")
_TIMES: Final = word_set("year date time day month century decade hour")
PLACES: Final = word_set("place location address birthplace whereabouts")


@dataclass(slots=True)
class QuestionFrame:
    """``kind``: how, works (how something works), why, when, where, who, count, what, describe,
    whether or other. ``used``: the places of words that only say so. ``added``: what a question
    word asks for, as a noun. ``modal`` and ``tense`` are those of the question's own verb,
    ``question`` its question word or auxiliary, ``asker`` the pronoun after that.
    """

    kind: str
    used: set[int] = field(default_factory=set)
    added: list[str] = field(default_factory=list)
    modal: str = ""
    tense: str = ""
    asker: str = ""
    question: str = ""


def what(words: list[Word], at: int) -> QuestionFrame:
    after = [w.text for w in words[at + 1 : at + 10]]
    bases = [set(lemmas(t)) for t in after]
    found = _what_for(words, at, after, bases) or _what_noun(words, at, after, bases)
    if found:
        return found
    if not after or after[0] in AUXILIARIES or words[at + 1].name:
        return QuestionFrame("what")
    return QuestionFrame("what", added=[TYPED])


def _what_for(
    words: list[Word], at: int, after: list[str], bases: list[set[str]]
) -> QuestionFrame | None:
    """Ways and reasons that are asked for with ``what``."""
    if not bases:
        return None
    return _reason(words, at, after, bases) or _way(at, after, bases)


def _reason(
    words: list[Word], at: int, after: list[str], bases: list[set[str]]
) -> QuestionFrame | None:
    """What led to it, what started it, what makes it so, what went wrong."""
    if after[-1:] == ["wrong"] and len(words) - at - 1 == len(after):
        return QuestionFrame("why", used={at + len(after), at + len(after) - 1})
    if bases[0] & {"start", "trigger"} and len(after) > 1:
        return QuestionFrame("why")
    if bases[0] & {"lead"} and after[1:2] == ["to"]:
        return QuestionFrame("why", used={at + 1})
    for i, base in enumerate(bases[:4]):
        if base & {"cause", "make"} and set(after[:i]) <= AUXILIARIES and after[0] != "making":
            return QuestionFrame("why", used={at + 1 + i})
    return None


def _way(at: int, after: list[str], bases: list[set[str]]) -> QuestionFrame | None:
    """What helps with it, what command does it, what to do about it, what is it done with."""
    if len(after) > 1 and bases[0] & _EASING and after[0].endswith("s"):
        return QuestionFrame("how")
    manner = bases[0] & {"way", "manner"} and after[1:2] and after[1] in AUXILIARIES
    if manner or (bases[0] & _TOOLS and len(after) > 1 and after[1] not in AUXILIARIES):
        return QuestionFrame("how", used={at + 1})
    if after[:4] in (["do", "i", "need", "to"], ["do", "i", "have", "to"]) and after[4:5] == ["do"]:
        return QuestionFrame("how", used={at + 3})
    if after[1:3] == ["i", "do"] and after[0] in ("should", "can", "could"):
        return QuestionFrame("how")
    timed = any(base & _TIMES or "season" in base for base in bases[:4])
    for i, text in enumerate(after[:-1]):
        gerund = after[i + 1].endswith("ing") and len(lemmas(after[i + 1])) > 1
        if text == "for" and gerund and i and not timed:
            return QuestionFrame("how")
    return None


def _what_noun(
    words: list[Word], at: int, after: list[str], bases: list[set[str]]
) -> QuestionFrame | None:
    """Times, places and persons that are asked for with ``what`` or ``which``."""
    if not bases:
        return None
    first = bases[0]
    for i, base in enumerate(bases[:2]):
        if base & {"way", "reason", "cause", "number", "amount"}:
            break
        if (
            base & _TIMES
            and (i == 0 or after[0] not in AUXILIARIES)
            and after[i + 1 : i + 2] != ["zone"]
        ):
            yearly = after[i + 1 : i + 3] in (["of", "year"], ["of", "day"], ["of", "month"])
            return QuestionFrame("when", used={at + 1 + i, at + 3 + i} if yearly else {at + 1 + i})
    leading = at and words[at - 1].text in ("in", "at", "to", "from")
    if first & PLACES or (leading and first & {"city", "country"}):
        return QuestionFrame("where", used={at + 1})
    if "name" in after[:4] and "of" in after[:5]:
        place = after.index("name")
        if any(lexicon().people & base for base in bases[place + 1 :]):
            return QuestionFrame("who", used={at + 1 + place})
    verb = len(after) > 1 and (
        after[1] in AUXILIARIES or after[1].endswith("ed") or len(bases[1]) > 1
    )
    if verb and first & lexicon().people and not words[at + 1].name:
        return QuestionFrame("who", used={at + 1})
    if verb and first & lexicon().agents and after[1] not in AUXILIARIES:
        return QuestionFrame("who", used={at + 1})
    if after[0] in ("do", "does") and "do" in after[2:]:
        rest = after[after.index("do", 2) + 1 :]
        if not rest or (rest[0] in PREPOSITIONS and rest[0] not in ("to", "with", "for")):
            return QuestionFrame("what", added=["purpose"])
    return None
