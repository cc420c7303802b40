"""What a text asks for: a way, a reason, a time, a place, a person, yes or no, a thing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from cache.guard.asking import PLACES, TYPED, QuestionFrame, what
from cache.guard.lemmas import lemmas
from cache.guard.lexicon import lexicon
from cache.guard.reading import Word
from cache.guard.words import (
    ATTRIBUTES,
    AUXILIARIES,
    IRREGULAR,
    MODALS,
    WH,
    word_set,
)

__all__ = ["COMPATIBLE", "TYPED", "QuestionFrame", "frame_of", "opening"]

# Kinds that may ask for the same thing; of two others, never.
COMPATIBLE: Final = frozenset(
    {
        ("how", "other"), ("how", "works"), ("works", "describe"), ("describe", "what"),
        ("describe", "other"), ("what", "other"), ("works", "other"), ("count", "other"),
    }
)  # fmt: skip

_REQUESTS: Final = word_set(
    """tell explain describe help give show suggest recommend write summarize translate list
    provide define compare convert create make draft find calculate please name compose generate
    share teach walk"""
)
_LEADS: Final = """please|hi|hello|hey|can you please|could you please|i want to know|i need
i would like to know|i need to know|i am wondering|i was wondering|i wonder|i want to
i would like to|i need to|i am trying to|i need help with|i want|i am looking for
i have a question about|do you know|could you tell me|can you tell me|tell me|tell me about
let me know|show me|help me|help me to|give me"""
_OPENINGS: Final[dict[str, list[list[str]]]] = {}
for _lead in sorted(_LEADS.replace("\n", "|").split("|"), key=len, reverse=True):
    _OPENINGS.setdefault(_lead.split()[0], []).append(_lead.split())
_ASKS_YOU: Final = (["can", "you"], ["could", "you"], ["would", "you"], ["will", "you"])
_WAYS: Final = word_set(
    """way method step process procedure technique tip guide tutorial instruction command syntax
    strategy trick secret recipe advice"""
)
_BEST: Final = word_set("best right good ideal optimal perfect the a what which")
_PRICED: Final = word_set(
    "wage salary tax fee fare rent rate toll fine deposit tuition price cost duty interest"
)
_FOLK: Final = word_set("person human man woman astronaut president")
_HOURS: Final = word_set("opening_hours business_hours hours")
_TELLING: Final = word_set("explain describe know wonder me understand sure and")
_LEADING: Final = word_set("at in on by for from to with of")
_MOODS: Final = (
    ("possible", "can"), ("allowed", "can"), ("okay", "can"), ("ok", "can"), ("safe", "can"),
    ("able", "can"), ("permitted", "can"), ("need", "must"), ("have to", "must"),
    ("required", "must"), ("necessary", "must"), ("mandatory", "must"),
    ("good idea", "should"), ("advisable", "should"), ("recommended", "should"),
    ("legal for", "can"), ("legal to", "can"), ("worth", "should"), ("better to", "should"),
)  # fmt: skip


def opening(words: list[Word]) -> int:
    """How many words at the start only lead in."""
    at = 0
    while True:
        texts = [w.text for w in words[at : at + 6]]
        for lead in _OPENINGS.get(texts[0], ()) if texts else ():
            if texts[: len(lead)] == lead and len(words) > at + len(lead):
                at += len(lead)
                break
        else:
            if texts[:2] not in _ASKS_YOU or len(texts) < 3 or texts[2] not in _REQUESTS:
                return at
            at += 2


def frame_of(words: list[Word], begin: int) -> QuestionFrame:
    """The frame of a text whose first ``begin`` words only lead in."""
    at = _question(words, begin)
    if at is None:
        frame = _unasked(words, begin)
    else:
        frame = _ASKED[words[at].text](words, at)
        frame.question = words[at].text
        _verb(frame, words, at + 1)
    for i in range(1, len(words) - 1):
        if words[i].text == "going" and words[i + 1].text == "to" and frame.tense == "present":
            frame.tense = "future"
            frame.used.add(i)
    if frame.kind in ("what", "other", "describe") and not set(frame.added) - {TYPED}:
        _nouns(frame, words, begin)
    return frame


def _question(words: list[Word], begin: int) -> int | None:
    """Where the question word of the main clause stands."""
    for i in range(begin, len(words)):
        if words[i].text not in WH:
            continue
        if (
            words[i].text == "how"
            and words[i + 1 : i + 2]
            and words[i + 1].text in ("many", "much")
        ):
            return i
        if i == begin or words[i].start:
            return i
        before = words[i - 1]
        if before.text in _TELLING:
            return i
        if before.text in _LEADING and (i - 1 == begin or before.start):
            return i
    return None


def _unasked(words: list[Word], begin: int) -> QuestionFrame:
    texts = [w.text for w in words[begin:]]
    first = texts[0] if texts else ""
    if (
        first in AUXILIARIES
        and len(texts) > 1
        and texts[:2] not in (["do", "not"], ["have", "not"])
    ):
        return _whether(words, begin, texts)
    if first in ("explain", "describe", "discuss"):
        return QuestionFrame("describe", used={begin})
    if first in ("name", "identify") and len(texts) > 2:
        people = any(not lexicon().people.isdisjoint(lemmas(t)) for t in texts[1:5])
        return QuestionFrame("who" if people else "what", used={begin})
    if _first_to(words, begin):
        return QuestionFrame(
            "who", used={i for i in range(begin, len(words)) if _who(words[i].text)}
        )
    if first == "define" or (begin and words[begin - 1].text == "about"):
        return QuestionFrame("describe")
    return QuestionFrame("other")


def _who(text: str) -> bool:
    return not _FOLK.isdisjoint(lemmas(text))


def _first_to(words: list[Word], begin: int) -> bool:
    """``First person to walk on the Moon``, ``first US president``."""
    last = words[-1].text if words else ""
    short = begin + 1 < len(words) < begin + 6 and words[begin].text == "1"
    if short and not lexicon().people.isdisjoint(lemmas(last)):
        return True
    return any(
        words[i].kind == "num" and _who(words[i + 1].text) and words[i + 2].text in ("to", "who")
        for i in range(begin, len(words) - 2)
    )


def _whether(words: list[Word], begin: int, texts: list[str]) -> QuestionFrame:
    if texts[:2] == ["is", "there"] and {"way", "method"} & set(texts[2:6]):
        return QuestionFrame("how")
    frame = QuestionFrame("whether", modal=MODALS.get(texts[0], ""), question=texts[0])
    for sign, modal in _MOODS:
        parts = sign.split()
        for i in range(1, min(len(texts), 8)):
            if not frame.modal and texts[i : i + len(parts)] == parts:
                frame.modal = modal
                frame.used |= set(range(begin + i, begin + i + len(parts)))
    if frame.modal:
        frame.used |= {i for i, w in enumerate(words) if w.text in ("safe", "okay", "ok")}
    elif texts[0] in ("is", "are") and any(_able(t) for t in texts[2:]):
        frame.modal = "can"
    frame.tense = _tense(texts[0])
    frame.asker = texts[1] if texts[1] in ("i", "you", "he", "she", "they", "we") else ""
    return frame


def _able(text: str) -> bool:
    """Whether it says what can be done: drinkable."""
    if not text.endswith(("able", "ible")) or len(text) < 7:
        return False
    return any(base in lexicon().words for base in (text[:-4], text[:-4] + "e", text[:-5]))


def _tense(auxiliary: str) -> str:
    if auxiliary in ("was", "were", "did", "had"):
        return "past"
    if auxiliary in ("will", "shall", "would"):
        return "future"
    return "present" if auxiliary in ("is", "are", "am", "do", "does", "has", "have") else ""


def _verb(frame: QuestionFrame, words: list[Word], at: int) -> None:
    """The modal and the tense of the first verb after the question word."""
    texts = [w.text for w in words[at : at + 7]]
    for text in texts[:6]:
        if text in AUXILIARIES:
            frame.modal, frame.tense = MODALS.get(text, ""), _tense(text)
            break
    for text, after in pairwise(texts):
        if text in ("have", "need", "has", "needs") and after == "to" and not frame.modal:
            frame.modal = "need"


def _how(words: list[Word], at: int) -> QuestionFrame:
    texts = [w.text for w in words[at + 1 : at + 12]]
    bases = [set(lemmas(t)) for t in texts]
    first = texts[0] if texts else ""
    if first in ("many", "much"):
        return _how_much(words, at, texts, bases)
    if first == "come":
        return QuestionFrame("why", used={at + 1})
    if first in ATTRIBUTES and len(texts) > 1:
        if texts[1] in ("until", "till"):
            return QuestionFrame("when", used={at + 1, at + 2})
        lasting = first == "long" and texts[1] in ("is", "are", "was")
        return QuestionFrame(
            "what", used={at + 1}, added=["length" if lasting else ATTRIBUTES[first]]
        )
    told = _how_told(words, at, texts, bases) or _how_done(texts, bases)
    if told:
        return told
    if first in ("is", "are", "was", "were") and not any(_participle(t) for t in texts[1:]):
        return QuestionFrame("what")
    if first in ("do", "does", "did", "is", "are"):
        return _how_does(words, at, texts, bases)
    return QuestionFrame("how")


def _how_told(
    words: list[Word], at: int, texts: list[str], bases: list[set[str]]
) -> QuestionFrame | None:
    """How to tell whether, how to describe it, and a description of how."""
    for i, base in enumerate(bases[:5]):
        if base & {"know", "tell"} and texts[i + 1 : i + 2] in (["if"], ["when"], ["whether"]):
            return QuestionFrame("what", used={at + 1 + i}, added=["sign"])
        if base & {"describe", "define", "explain"} and i < 4:
            return QuestionFrame("describe", used={at + 1 + i})
    if at and words[at - 1].text in ("explain", "describe"):
        working = {at + len(texts)} if bases and "work" in bases[-1] else set()
        return QuestionFrame("works", used={at - 1} | working)
    return None


def _how_done(texts: list[str], bases: list[set[str]]) -> QuestionFrame | None:
    """How it is done, and how somebody died: of what."""
    if texts[-1:] == ["done"] and "it" in texts:
        return QuestionFrame("how")
    return QuestionFrame("why") if texts[:1] == ["did"] and bases[-1] & {"die"} else None


def _participle(text: str) -> bool:
    """Whether it may be one: the weather is not made."""
    return text in IRREGULAR or (text.endswith(("ed", "ing", "en")) and len(lemmas(text)) > 1)


def _how_does(words: list[Word], at: int, texts: list[str], bases: list[set[str]]) -> QuestionFrame:
    """How something works or differs, or what it does to another: no way to do it."""
    mine = texts[1:2] in (["i"], ["you"], ["we"], ["one"])
    for i, base in enumerate(bases):
        if base & {"differ", "different", "compare"} and not mine:
            return QuestionFrame("what")
        if base & {"affect", "influence", "impact"} and not mine:
            return QuestionFrame("what")
        if base & {"spell", "pronounce", "say", "translate", "call"} and i < 4:
            return QuestionFrame("what")
        if base & {"work", "function"} and (i == len(bases) - 1 or not mine):
            return QuestionFrame("works", used={at + 1 + i})
    return QuestionFrame("how")


def _how_much(words: list[Word], at: int, texts: list[str], bases: list[set[str]]) -> QuestionFrame:
    if texts[0] == "many":
        # Hours of sleep are no other than sleep.
        spent = texts[1:3] in (["hours", "of"], ["hour", "of"])
        return QuestionFrame("count", used={at + 1, at + 2} if spent else {at + 1})
    if texts[1:2] == ["time"]:
        return QuestionFrame("what", used={at + 1, at + 2}, added=["duration"])
    if any(b & {"cost", "weigh", "pay", "charge"} for b in bases):
        return QuestionFrame("what", used={at + 1})
    if texts[1:2] in (["is"], ["are"]):
        priced = not any(w.kind == "num" or not _PRICED.isdisjoint(lemmas(w.text)) for w in words)
        return QuestionFrame("what", used={at + 1}, added=["price"] if priced else [])
    return QuestionFrame("count", used={at + 1})


def _simple(kind: str) -> Callable[[list[Word], int], QuestionFrame]:
    return lambda words, at: QuestionFrame(kind)


_ASKED: Final[dict[str, Callable[[list[Word], int], QuestionFrame]]] = {
    "how": _how, "what": what, "which": what, "why": _simple("why"), "when": _simple("when"),
    "where": _simple("where"), "who": _simple("who"), "whom": _simple("who"),
    "whose": _simple("who"),
}  # fmt: skip


def _nouns(frame: QuestionFrame, words: list[Word], begin: int) -> None:
    """A thing asked for that is a way, a reason, a time or a number says what is asked."""
    for i in range(begin, len(words)):
        after = words[i + 1].text if i + 1 < len(words) else ""
        before = words[i - 1].text if i else ""
        kind = _noun_kind(frame.kind, set(lemmas(words[i].text)), after, before)
        if not kind:
            continue
        frame.kind = kind
        if words[i].text not in _HOURS | {"birthplace", "address"}:
            frame.used.add(i)
        if kind == "when" and words[i + 1 : i + 3] and after == "of":
            frame.used |= {i + 2} if words[i + 2].text in ("year", "day", "month") else set()
        return


def _noun_kind(asked: str, noun: set[str], after: str, before: str) -> str:
    caused = "cause" in noun and (after in ("of", "for") or (not after and before == "the"))
    if "reason" in noun or caused:
        return "why"
    counted = noun & {"number", "amount", "quantity"} and after == "of"
    if counted or ("count" in noun and after in ("", "of")):
        return "count"
    if noun & _WAYS and after in ("to", "of", "for", "on", "in", "by", "that", ""):
        return "works" if asked == "describe" and "process" in noun else "how"
    if "deadline" in noun:
        return "when"
    best = noun & {"time", "season"} and before == "best"
    if asked in ("other", "what") and best:
        return "when"
    return _what_kind(noun, after, before) if asked == "what" else ""


def _what_kind(noun: set[str], after: str, before: str) -> str:
    if "time" in noun and after in ("to", "of", "for") and before in _BEST:
        return "when"
    if noun & PLACES and after in ("of", "", "for"):
        return "where"
    return "when" if noun & _HOURS and not before.isdigit() else ""
