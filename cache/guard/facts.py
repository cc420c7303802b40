"""Differences that show without aligning the words: numbers, signs, negation, what is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cache.guard.frames import COMPATIBLE, Frame
from cache.guard.profile import Profile
from cache.guard.words import AUXILIARIES, MODALS, WH, word_set

__all__ = ["NEAR", "NEARER", "Veto", "facts", "rephrased"]

# From these similarities on, one word of two differently worded texts may be missing in the
# other, or another one there: measured, texts that differ in such a word only are less near.
NEAR: Final = 0.9
NEARER: Final = 0.93

_MEASURES: Final = word_set(
    """population allowance amount total count number budget capacity quantity limit length
    distance age"""
)
_GETTING: Final = word_set(
    """find get see access view locate download change update check enter edit set manage reset
    track upload cancel apply submit"""
)
# Words that another question word, person or mood brings along.
_TRIVIAL: Final = (
    word_set("i you we to the a an my your it people person one") | AUXILIARIES | WH | MODALS.keys()
)
_PLAINLY: Final = word_set("who where why when how")
_WH: Final = word_set("who what where why how which")


@dataclass(frozen=True, slots=True)
class Veto:
    """``reason`` is one of a few words, ``detail`` names what differs (words of the texts: not
    for logs).
    """

    reason: str
    detail: str


def facts(asked: Profile, stored: Profile, similarity: float) -> Veto | None:
    """Why not, as far as it can be told without aligning the words."""
    if asked.quoted != stored.quoted and asked.quoted and stored.quoted:
        return _differ("quoted", asked.quoted, stored.quoted)
    if asked.numbers != stored.numbers and sorted(asked.numbers) != sorted(stored.numbers):
        dated = _has_date(asked) or _has_date(stored)
        return _differ("date" if dated else "number", asked.numbers, stored.numbers)
    if asked.signs != stored.signs:
        return _differ("operator", asked.signs, stored.signs)
    if asked.negations != stored.negations:
        return Veto("negation", f"{asked.negations} / {stored.negations}")
    if asked.quantifiers != stored.quantifiers:
        return Veto("quantifier", " ".join(sorted(asked.quantifiers ^ stored.quantifiers)))
    if not _same_question(asked, stored) and not _one_question(asked, stored, similarity):
        return Veto("question", f"{asked.frame.kind} / {stored.frame.kind}")
    return _modality(asked.frame, stored.frame) or _tense(asked, stored) or _person(asked, stored)


def _differ(reason: str, mine: tuple[str, ...], yours: tuple[str, ...]) -> Veto:
    return Veto(reason, f"{' '.join(mine)} / {' '.join(yours)}")


def _has_date(text: Profile) -> bool:
    return any(item.kind == "date" for item in text.items) or any(
        len(n.rstrip("s")) == 4 and n[:2] in ("17", "18", "19", "20") for n in text.numbers
    )


def _same_question(asked: Profile, stored: Profile) -> bool:
    first, second = asked.frame.kind, stored.frame.kind
    if first == second or (first, second) in COMPATIBLE or (second, first) in COMPATIBLE:
        return True
    return any(
        alike(one, other)
        for one, other in ((asked, stored), (stored, asked))
        for alike in (_measured, _found, _formula, _told, _failing, _done)
    )


def _one_question(asked: Profile, stored: Profile, similarity: float) -> bool:
    """Whether two kinds of question are about the same, going by how near the texts are."""
    if similarity < NEARER or "whether" in (asked.frame.kind, stored.frame.kind):
        return False
    if asked.frame.question in _PLAINLY and stored.frame.question in _PLAINLY:
        return False
    return rephrased(asked, stored)


def rephrased(asked: Profile, stored: Profile) -> bool:
    """Whether the texts differ in how they ask, too. Where a word more is the only difference,
    it was put there to make one.
    """
    ways = []
    for text in (asked, stored):
        content = {item.text for item in text.items}
        ways.append(text.texts - content - _TRIVIAL)
    return ways[0] != ways[1]


def _measured(count: Profile, what: Profile) -> bool:
    """How many people live there: what is the population."""
    kinds = (count.frame.kind, what.frame.kind)
    return kinds == ("count", "what") and any(i.keys & _MEASURES for i in what.items)


def _found(where: Profile, how: Profile) -> bool:
    """Where can I find it: how do I get it."""
    kinds = (where.frame.kind, how.frame.kind)
    return kinds == ("where", "how") and bool(where.texts & _GETTING) and bool(how.texts & _GETTING)


def _formula(what: Profile, how: Profile) -> bool:
    """What is the formula for it: how do I calculate it."""
    kinds = (what.frame.kind, how.frame.kind)
    computing = how.texts & {"calculate", "compute", "find", "determine"}
    return kinds == ("what", "how") and "formula" in what.texts and bool(computing)


def _told(about: Profile, who: Profile) -> bool:
    """Tell me about her: who is she."""
    kinds = (about.frame.kind, who.frame.kind)
    return kinds == ("describe", "who") and bool(who.texts & {"is", "was"})


def _done(what: Profile, how: Profile) -> bool:
    """What to do it with: how to do it, where all the rest is the same."""
    kinds = (what.frame.kind, how.frame.kind)
    if kinds != ("what", "how") or min(len(what.items), len(how.items)) < 3:
        return False
    return all(
        any(i.keys & j.keys or i.near & j.near for j in how.items) for i in what.items
    ) and all(any(i.keys & j.keys or i.near & j.near for j in what.items) for i in how.items)


def _failing(said: Profile, why: Profile) -> bool:
    """It does not work: why does it not work."""
    kinds = (said.frame.kind, why.frame.kind)
    return kinds == ("other", "why") and said.negations == why.negations == 1


def _modality(a: Frame, b: Frame) -> Veto | None:
    if a.kind == b.kind == "whether":
        # Can you deliver it: do you deliver it.
        able = a.asker == b.asker == "you" and {a.modal, b.modal} == {"", "can"}
        differ = a.modal != b.modal and not able
    elif "how" in (a.kind, b.kind) or "works" in (a.kind, b.kind):
        differ = False
    else:
        # To need is to should, nearly.
        modals = {a.modal, b.modal} - {""}
        differ = len(modals) > 1 and ("can" in modals or "need" not in modals)
    return Veto("modality", f"{a.modal} / {b.modal}") if differ else None


def _tense(asked: Profile, stored: Profile) -> Veto | None:
    a, b = asked.frame, stored.frame
    tenses = {a.tense, b.tense}
    differ = tenses >= {"past", "future"}
    if tenses == {"past", "present"}:
        differ = a.question == b.question or not {a.question, b.question} & _WH
    if a.kind == "whether" and tenses >= {"present", "future"}:
        differ = True
    return Veto("tense", f"{a.tense} / {b.tense}") if differ else None


def _person(asked: Profile, stored: Profile) -> Veto | None:
    a, b = asked.frame, stored.frame
    if a.kind == b.kind == "whether" and a.asker and b.asker and a.asker != b.asker and not a.modal:
        return Veto("person", f"{a.asker} / {b.asker}")
    mine, yours = asked.owners - {"they"}, stored.owners - {"they"}
    if mine and yours and mine != yours:
        return _differ("person", tuple(sorted(mine)), tuple(sorted(yours)))
    return None
