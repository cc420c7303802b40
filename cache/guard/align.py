"""Which words of two texts say the same, and what is left that only one of them says."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from cache.guard.excuses import excused
from cache.guard.facts import Veto, litotes
from cache.guard.lexicon import lexicon
from cache.guard.profile import ContentWord, Profile, worded
from cache.guard.words import word_set

__all__ = ["Pairs", "akin", "align", "equal", "leftovers"]

Pairs = list[tuple[int, int]]

_IDLE: Final = word_set("a an the of my")
_OPEN: Final = word_set("how when where why other")
_SUGGESTED: Final = word_set("recommend suggest recommendation suggestion idea tip")
_PRAISE: Final = word_set(
    """good great nice best top better recommended popular effective common normal typical usual
    main own right"""
)


def equal(a: ContentWord, b: ContentWord) -> bool:
    """Whether they are forms of one word."""
    return not a.keys.isdisjoint(b.keys)


def akin(a: ContentWord, b: ContentWord) -> bool:
    """Whether they mean the same."""
    return not a.near.isdisjoint(b.near)


def _done(a: ContentWord, b: ContentWord) -> bool:
    return not a.doers.isdisjoint(b.doers)


def align(asked: Profile, stored: Profile) -> Pairs:
    """Which item of the one is which of the other, by their places."""
    pairs: Pairs = []
    left = list(range(len(asked.items)))
    free = list(range(len(stored.items)))
    who = "who" in (asked.frame.kind, stored.frame.kind)
    for same in (equal, akin, _done) if who else (equal, akin):
        for i in tuple(left):
            item = asked.items[i]
            for j in free:
                if same(item, stored.items[j]):
                    pairs.append((i, j))
                    left.remove(i)
                    free.remove(j)
                    break
    pairs.sort()
    return pairs


def leftovers(asked: Profile, stored: Profile, pairs: Pairs) -> Veto | None:
    """Why not, for what the one says and the other does not."""
    mine = _alone(asked, stored, pairs)
    yours = _alone(stored, asked, [(j, i) for i, j in pairs])
    denied = litotes(asked, stored)
    mine = [i for i in mine if denied.isdisjoint(i.keys)]
    yours = [j for j in yours if denied.isdisjoint(j.keys)]
    contrary = _contrary(mine, stored.items) or _contrary(yours, asked.items)
    if contrary:
        return contrary
    if not mine and not yours:
        return None
    mine, yours = _composed(mine, yours), _composed(yours, mine)
    mine, yours = _apart(mine, yours, stored.items), _apart(yours, mine, asked.items)
    mine, yours = excused(mine, yours, asked, stored), excused(yours, mine, stored, asked)
    if any(i.typed for i in mine) and any(j.typed for j in yours):
        return Veto("content", f"{_said(mine)} / {_said(yours)}")
    praised = _praised(asked, stored)
    telling = "describe" in (asked.frame.kind, stored.frame.kind)
    hard = [[i for i in side if _hard(i, praised, telling)] for side in (mine, yours)]
    soft = [[i for i in side if (i.verb or i.mild) and not i.light] for side in (mine, yours)]
    if hard[0] or hard[1]:
        return _named(hard[0], hard[1])
    if soft[0] and soft[1]:
        return Veto("content", f"{_said(soft[0])} / {_said(soft[1])}")
    return None


def _alone(text: Profile, other: Profile, pairs: Pairs) -> list[ContentWord]:
    """The items without a mate, but those that say again what is said already."""
    paired = {i for i, _ in pairs}
    found = []
    for i, item in enumerate(text.items):
        if i in paired or _afterwards(i, text, other, pairs):
            continue
        again = item.kind == "word" and any(
            mate.kind == "word" and (equal(item, mate) or akin(item, mate)) for mate in other.items
        )
        if not again:
            found.append(item)
    return found


def _afterwards(i: int, text: Profile, other: Profile, pairs: Pairs) -> bool:
    """``after cooking`` where the other says ``cooked``, or ``once``."""
    if text.items[i].text != "after":
        return False
    if other.texts & {"once", "following", "upon"}:
        return True
    return any(
        k == i + 1 and other.items[j].text.endswith("ed") and equal(text.items[k], other.items[j])
        for k, j in pairs
    )


def _apart(
    mine: list[ContentWord], yours: list[ContentWord], there: list[ContentWord]
) -> list[ContentWord]:
    """Mine, without what the other text only writes apart or together."""
    joined = {j.text.replace("_", "") for j in yours}
    joined |= {a.text + b.text for a, b in pairwise(yours)}
    drop = {i.text for i in mine if i.text.replace("_", "") in joined}
    said = {key for j in yours for key in j.keys}
    drop |= {i.text for i in mine if "_" in i.text and said.issuperset(i.text.split("_"))}
    parts = {part for j in there if "_" in j.text for part in j.text.split("_")}
    drop |= {i.text for i in mine if not i.keys.isdisjoint(parts)}
    for a, b in pairwise(mine):
        if a.text + b.text in joined:
            drop |= {a.text, b.text}
    return [i for i in mine if i.text not in drop]


def _composed(mine: list[ContentWord], yours: list[ContentWord]) -> list[ContentWord]:
    """Mine, without the expressions of several words that the other text has in other words, and
    without the words that are such an expression of the other text.
    """

    def there(part: ContentWord, others: list[ContentWord]) -> bool:
        return any(equal(part, other) or akin(part, other) for other in others)

    said = [part for item in yours for part in _parts(item)]
    own = [part for item in mine for part in _parts(item)]
    joined = [_parts(j) for j in yours if "_" in j.text]
    theirs = [part for parts in joined if all(there(p, own) for p in parts) for part in parts]
    return [
        item
        for item in mine
        if not ("_" in item.text and all(there(part, said) for part in _parts(item)))
        and not there(item, theirs)
    ]


def _parts(item: ContentWord) -> list[ContentWord]:
    if "_" not in item.text or item.text.startswith("per_"):
        return [item]
    return [worded(part) for part in item.text.split("_") if part not in _IDLE]


def _contrary(mine: list[ContentWord], yours: list[ContentWord]) -> Veto | None:
    opposed = lexicon().opposed
    for a in mine:
        for b in yours:
            if any(opposed(x, y) for x in a.keys for y in b.keys):
                return Veto("negation", f"{a.text} / {b.text}")
    return None


def _praised(asked: Profile, stored: Profile) -> bool:
    """Whether ``good`` and the like change what is asked for."""
    if asked.frame.kind in _OPEN and stored.frame.kind in _OPEN:
        return False
    if "should" in (asked.frame.modal, stored.frame.modal) or "can" in (
        asked.frame.modal,
        stored.frame.modal,
    ):
        return False
    items = (*asked.items, *stored.items)
    return not any(item.keys & _SUGGESTED for item in items)


def _hard(item: ContentWord, praised: bool, telling: bool) -> bool:
    """Whether the word may not be missing from the other text."""
    if item.typed:
        return False
    if praised and (item.degree == 2 or item.keys & _PRAISE):
        return True
    return not (item.light or item.verb or (item.mild and not telling))


def _said(items: list[ContentWord]) -> str:
    return " ".join(item.text for item in items)


def _named(mine: list[ContentWord], yours: list[ContentWord]) -> Veto:
    """The difference under its name."""
    detail = f"{_said(mine)} / {_said(yours)}"
    kinds = {item.kind for item in (*mine, *yours)}
    if any(item.text.startswith("per_") for item in (*mine, *yours)):
        kinds.add("unit")
    for kind, reason in (("date", "date"), ("unit", "unit"), ("name", "entity")):
        if kind in kinds:
            return Veto(reason, detail, one_sided=not (mine and yours))
    return Veto("content" if mine and yours else "scope", detail)
