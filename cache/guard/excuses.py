"""Words that only one of two texts says, though the other means them as well."""

from __future__ import annotations

from typing import Final

from cache.guard.lexicon import lexicon
from cache.guard.profile import ContentWord, Profile
from cache.guard.words import word_set

__all__ = ["excused"]

_TERMS: Final = word_set(
    """word term phrase idiom expression saying proverb keyword acronym abbreviation noun verb
    adjective slang operator"""
)
_FOLK: Final = word_set("person people woman man human individual patient")
_SOUNDS: Final = word_set("noise sound")
_REPAIRS: Final = word_set(
    """fix repair solve resolve stop prevent handle troubleshoot get_rid_of help deal_with avoid
    remedy cure clear"""
)
_PICKS: Final = word_set("pick choose select use get buy go_with take need")
_BEGINS: Final = word_set("start trigger")
_OFFERS: Final = word_set("sell offer carry stock provide have")
_TELLING: Final = word_set("report say show display get give tell receive see stuck")
_EASING: Final = word_set("soothe relieve treat ease cure help")
_NORMAL: Final = word_set("usual typical normal")
_TOOLS: Final = word_set("browser language programming_language database editor spreadsheet app")
_USING: Final = word_set("in on with for using")
_CONSUMING: Final = word_set("drinking eating using having")
# What says the same as a little word of the other text.
_SAID: Final = (
    (word_set("all_time"), word_set("keep keeps constantly")),
    (word_set("legal"), word_set("can must allowed")),
    (word_set("cook bake ready"), word_set("done")),
)
# What says the same as the question.
_ASKED: Final = (
    ("works", word_set("rule")), ("when", word_set("frequency deadline")),
    ("why", word_set("purpose")),
)  # fmt: skip
_JOINING: Final = word_set("of called named known as the a an is to")
# What a question that asks for so many of a unit asks for.
_MEASURED: Final = {
    **dict.fromkeys(word_set("minute hour day week month year second_of_time"), "duration length"),
    **dict.fromkeys(
        word_set("mile kilometer meter foot inch centimeter"), "distance height length"
    ),
    **dict.fromkeys(word_set("pound kilogram gram ounce ton"), "weight"),
    **dict.fromkeys(word_set("degree celsius fahrenheit"), "temperature"),
    **dict.fromkeys(word_set("dollar euro usd eur"), "price cost"),
}


def excused(
    mine: list[ContentWord], yours: list[ContentWord], text: Profile, other: Profile
) -> list[ContentWord]:
    """My items that are alone, without those that say nothing the other text does not mean."""
    alone = set(map(id, mine))
    return [
        item
        for item in mine
        if not (
            _kind(item, text, alone)
            or _folk(item, text, alone)
            or _unit(item, yours, text, other)
            or _idle(item, yours, text, other)
            or _about(item, yours, text, other)
        )
    ]


def _beside(item: ContentWord, text: Profile, alone: set[int]) -> list[ContentWord]:
    """The items next to it that the other text has, too."""
    at = text.items.index(item)
    found = []
    if at and set(item.link) <= _JOINING:
        found.append(text.items[at - 1])
    after = [i for i in text.items[at + 1 :] if i.text not in ("known", "called", "named")]
    if after and set(after[0].link) <= _JOINING:
        found.append(after[0])
    return [mate for mate in found if id(mate) not in alone]


def _kind(item: ContentWord, text: Profile, alone: set[int]) -> bool:
    """Whether it only says what the word beside it is: an Android phone, the word "serene"."""
    if item.kind == "number":
        return False
    kinds = lexicon().kinds
    quoted = {word for quotation in text.quoted for word in quotation.split()}
    used = [i for i in text.items if i.prep in _USING and id(i) not in alone]
    if item.keys & _TOOLS and any(
        not mate.keys.isdisjoint(kinds.get(key, ())) for mate in used for key in item.keys
    ):
        return True
    for mate in _beside(item, text, alone):
        if any(not mate.keys.isdisjoint(kinds.get(key, ())) for key in item.keys):
            return True
        if mate.text in quoted and item.text not in quoted and item.keys & _TERMS:
            return True
    return False


def _folk(item: ContentWord, text: Profile, alone: set[int]) -> bool:
    """Pregnant women, a squealing noise, the amount of money: the word before says it."""
    at = text.items.index(item)
    before = text.items[at - 1] if at else None
    if "money" in item.keys and text.texts & {"amount", "much"}:
        return True
    if before is None or id(before) in alone or item.kind != "word":
        return False
    if item.link or before.kind != "word":
        return False
    after = text.items[at + 1 : at + 2]
    if after and not (after[0].link or after[0].verb or after[0].mild):
        return False
    return bool(item.keys & _FOLK) or (bool(item.keys & _SOUNDS) and before.text.endswith("ing"))


def _unit(item: ContentWord, yours: list[ContentWord], text: Profile, other: Profile) -> bool:
    """How many hours does it take: how long does it take."""
    if item.asked:
        if "much" in other.texts and other.frame.kind == "count":
            return True
        measures = {m for key in item.keys for m in _MEASURED.get(key, "").split()}
        return any(j.text in measures for j in yours)
    counted = [j for j in yours if j.asked]
    return any(item.text in _MEASURED.get(key, "").split() for j in counted for key in j.keys)


def _idle(item: ContentWord, yours: list[ContentWord], text: Profile, other: Profile) -> bool:
    """A verb that a question of this form needs, and one of another form does not."""
    frame = text.frame
    if frame.kind == "what" and item.keys & _PICKS and frame.modal == "should":
        return frame.question in ("what", "which")
    if frame.kind == "whether" and (item.text in _CONSUMING or frame.asker == "you"):
        offered = item.keys & _OFFERS and not any(j.verb or j.mild for j in yours)
        return item.text in _CONSUMING or bool(offered)
    if item.keys & _EASING and frame.kind == "how" and other.texts & {"helps", "help"}:
        return True
    if item.text == "without":
        return text.negations == other.negations and bool(other.texts & {"no", "not"})
    if item.text == "translate":
        return bool(text.quoted) and other.frame.kind == "what"
    return any(item.keys & said and other.texts & there for said, there in _SAID)


def _about(item: ContentWord, yours: list[ContentWord], text: Profile, other: Profile) -> bool:
    """What the other text says by being the question, or the complaint, that it is."""
    kind = other.frame.kind
    if text.frame.question == "what" and text.frame.kind == "why" and item.keys & _BEGINS:
        return True
    if text.stated and item.keys & _TELLING and kind in ("how", "why"):
        return True
    if item.keys & _REPAIRS and text.frame.kind == "how" and (other.stated or text.stated):
        return not any(j.keys & _REPAIRS for j in yours)
    if item.text == "earth" and item.prep == "on":
        return any(i.degree == 2 for i in text.items) or "most" in text.texts
    if item.keys & {"person", "human"} and text.frame.kind == kind == "who":
        return True
    if item.keys & _NORMAL and other.frame.question == "how":
        return True
    if text.frame.kind == "why" and kind == "what":
        return bool(item.keys & {"build", "make", "create", "invent", "construct", "exist"})
    return any(kind == asked and item.keys & said for asked, said in _ASKED)
