"""Differences that show without aligning the words: numbers, signs, negation, what is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cache.guard.frames import COMPATIBLE, QuestionFrame
from cache.guard.lexicon import lexicon
from cache.guard.profile import Profile
from cache.guard.words import word_set

__all__ = ["Veto", "facts", "litotes"]

_MEASURES: Final = word_set(
    """population allowance amount total count number budget capacity quantity limit length
    distance age"""
)
_GETTING: Final = word_set(
    """find get see access view locate download change update check enter edit set manage reset
    track upload cancel apply submit"""
)
_WH: Final = word_set("who what where why how which")


@dataclass(frozen=True, slots=True)
class Veto:
    """``reason`` is one of a few words, ``detail`` names what differs (words of the texts: not
    for logs). ``one_sided``: only one of the texts says anything there.
    """

    reason: str
    detail: str
    one_sided: bool = False


def facts(asked: Profile, stored: Profile) -> Veto | None:
    """Why not, as far as it can be told without aligning the words; what is certain first."""
    if certain := _contradicting(asked, stored):
        return certain
    if asked.quantifiers != stored.quantifiers:
        return Veto("quantifier", " ".join(sorted(asked.quantifiers ^ stored.quantifiers)))
    found = _modality(asked.frame, stored.frame)
    if found or _same_question(asked, stored):
        return found
    return Veto("question", f"{asked.frame.kind} / {stored.frame.kind}")


def _contradicting(asked: Profile, stored: Profile) -> Veto | None:
    """What can be a way of putting it in no text."""
    if asked.quoted != stored.quoted and asked.quoted and stored.quoted:
        return _differ("quoted", asked.quoted, stored.quoted)
    if bool(asked.quoted) != bool(stored.quoted) and not _mentioned(asked, stored):
        return _differ("quoted", asked.quoted, stored.quoted)
    if asked.numbers != stored.numbers and sorted(asked.numbers) != sorted(stored.numbers):
        dated = _has_date(asked) or _has_date(stored)
        return _differ("date" if dated else "number", asked.numbers, stored.numbers)
    if asked.signs != stored.signs:
        return _differ("operator", asked.signs, stored.signs)
    if asked.negations != stored.negations and not litotes(asked, stored):
        return Veto("negation", f"{asked.negations} / {stored.negations}")
    return _tense(asked, stored) or _person(asked, stored)


def _mentioned(asked: Profile, stored: Profile) -> bool:
    """Whether the word that the one quotes is in the other."""
    one, other = (asked, stored) if asked.quoted else (stored, asked)
    there = {text for item in other.items for text in (item.text, *item.text.split("_"))}
    return all(" " in quoted or quoted in other.texts | there for quoted in one.quoted)


def litotes(asked: Profile, stored: Profile) -> frozenset[str]:
    """The words by which the one denies what the other says: not online, offline. Empty where
    there are none.
    """
    if abs(asked.negations - stored.negations) != 1:
        return frozenset()
    one, other = (asked, stored) if asked.negations > stored.negations else (stored, asked)
    for denied in one.negated:
        for item in other.items:
            if any(_complements(x, y) for x in denied for y in item.keys):
                return denied | item.keys
    return frozenset()


def _complements(first: str, second: str) -> bool:
    """Whether what is not the one is the other."""
    if any(second == prefix + first for prefix in ("un", "in", "im", "il", "ir", "dis", "non")):
        return True
    return second in lexicon().complements.get(first, ())


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
        alike(one, other) for one, other in ((asked, stored), (stored, asked)) for alike in _ALIKE
    )


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
    return kinds == ("other", "why") and (said.stated or said.negations == why.negations == 1)


def _lasting(count: Profile, what: Profile) -> bool:
    """How many hours does it take: how long does it take."""
    asked = any(i.asked for i in count.items)
    return (count.frame.kind, what.frame.kind) == ("count", "what") and asked


def _meant(what: Profile, why: Profile) -> bool:
    """What was the purpose of it: why was it built."""
    kinds = (what.frame.kind, why.frame.kind)
    built = why.texts & {"built", "made", "created", "invented", "constructed"}
    return kinds == ("what", "why") and "purpose" in what.texts and bool(built)


def _worn(often: Profile, when: Profile) -> bool:
    """How often should it be replaced: when does it need replacing."""
    kinds = (often.frame.kind, when.frame.kind)
    asked = any(i.text == "frequency" for i in often.items)
    changed = any(i.keys & {"replace", "change", "renew"} for i in when.items)
    return kinds == ("what", "when") and asked and changed


_ALIKE: Final = (
    _measured, _found, _formula, _told, _failing, _done, _lasting, _meant, _worn
)  # fmt: skip


def _modality(a: QuestionFrame, b: QuestionFrame) -> Veto | None:
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
    advice = "how" in (a.kind, b.kind) and {a.kind, b.kind} <= {"how", "other"}
    advice = advice and mine | yours == {"i", "you"}
    if mine and yours and mine != yours and not advice:
        return _differ("person", tuple(sorted(mine)), tuple(sorted(yours)))
    return None
