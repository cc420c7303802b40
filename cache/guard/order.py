"""The same words in other places: who does what to whom, and from where to where."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from cache.guard.align import Pairs, akin, equal
from cache.guard.facts import Veto
from cache.guard.lexicon import lexicon
from cache.guard.profile import ContentWord, Profile
from cache.guard.words import word_set

__all__ = ["order"]

_OPPOSED: Final = {
    frozenset(pair)
    for pair in (
        ("to", "from"), ("into", "from"), ("into", "out"), ("with", "without"), ("above", "below"),
        ("over", "under"), ("for", "against"), ("inside", "outside"), ("in", "outside"),
        ("up", "down"), ("since", "until"), ("on", "off"), ("on", "under"), ("by", "to"),
    )
}  # fmt: skip
_WAYS: Final = (("in", "out"), ("up", "down"), ("on", "off"), ("above", "below"), ("over", "under"))
_BOUNDS: Final = word_set("over under above below until since than within")
_AMOUNTS: Final = word_set("exactly more less fewer least most maximum minimum only")
_MUTUAL: Final = word_set("and or with versus between nor among")
_CONTRAST: Final = word_set("difference differ versus compare")
_EITHER_WAY: Final = word_set(
    """distance far differ difference different versus compare comparison similar similarity plus
    times multiply multiplied add sum product average mean mix combine merge between near
    relationship connection"""
)


def order(asked: Profile, stored: Profile, pairs: Pairs) -> Veto | None:
    """Why not, for how the words that are in both texts stand."""
    found = _each(asked, stored, pairs)
    if found:
        return found
    bounded = _bounded(asked) ^ _bounded(stored)
    numbered = asked.numbers or stored.numbers or {"one", "two"} & asked.texts
    if bounded and numbered:
        return Veto("operator", " ".join(sorted(bounded)))
    for one, other in _WAYS:
        mine, yours = asked.texts - stored.texts, stored.texts - asked.texts
        if (one in mine and other in yours) or (other in mine and one in yours):
            return Veto("negation", f"{one} {other}")
    denied = _denied(asked, stored, pairs)
    if denied:
        return denied
    if asked.texts & _EITHER_WAY and stored.texts & _EITHER_WAY:
        return None
    return _crossed(asked, stored, pairs) or _counted(asked, stored)


def _each(asked: Profile, stored: Profile, pairs: Pairs) -> Veto | None:
    """The first two mates of which the one says more, or another, than the other."""
    compared = "than" in asked.texts ^ stored.texts
    contrasted = asked.texts & _CONTRAST and stored.texts & _CONTRAST
    for i, j in pairs:
        a, b = asked.items[i], stored.items[j]
        if frozenset((a.prep, b.prep)) in _OPPOSED:
            return Veto("order", f"{a.prep} {a.text} / {b.prep} {b.text}")
        if contrasted and not equal(a, b) and max(a.near & b.near, default=0) < lexicon().trusted:
            return Veto("content", f"{a.text} / {b.text}")
        if "name" in (a.kind, b.kind) and _plural(a, b):
            return Veto("entity", f"{a.text} / {b.text}")
        if a.kind == "number" and a.prep != b.prep and {a.prep, b.prep} & _BOUNDS:
            return Veto("operator", f"{a.prep} {a.text} / {b.prep} {b.text}")
        if _steeper(a, b, compared) and "how" not in (asked.frame.kind, stored.frame.kind):
            return Veto("quantifier", f"{a.text} / {b.text}")
    return None


def _plural(a: ContentWord, b: ContentWord) -> bool:
    """Whether the one is more of the other: names have no plural but as other names."""
    return a.text != b.text and a.text.removesuffix("s") == b.text.removesuffix("s")


def _bounded(text: Profile) -> frozenset[str]:
    """What it says of a number beside the number itself."""
    return text.texts & _AMOUNTS


def _steeper(a: ContentWord, b: ContentWord, compared: bool) -> bool:
    """Whether the one says ``most`` of what the other only says."""
    if a.degree == b.degree or a.kind != "word" or not equal(a, b):
        return False
    return 2 in (a.degree, b.degree) or compared


def _denied(asked: Profile, stored: Profile, pairs: Pairs) -> Veto | None:
    """Both say ``not``, of different words."""
    if not asked.negated or not stored.negated:
        return None
    a, b = asked.negated[0], stored.negated[0]
    there = any(stored.items[j].keys == b for _, j in pairs)
    for i, j in pairs:
        if asked.items[i].keys == a and stored.items[j].keys != b and there:
            return Veto("negation", f"not {min(a)} / not {min(b)}")
    return None


def _crossed(asked: Profile, stored: Profile, pairs: Pairs) -> Veto | None:
    """Two words changed places, where their place says what they are to each other."""
    passive = _passive(asked) != _passive(stored)
    for at, (i, j) in enumerate(pairs):
        for k, m in pairs[at + 1 :]:
            a, b = asked.items[i], asked.items[k]
            inverted = m < j
            if inverted and _swapped(asked, stored, (i, k), (j, m)):
                return Veto("order", f"{a.text} {b.text}")
            if not _peers(asked, i, k) or not _peers(stored, j, m):
                continue
            listed = _listed(asked, i, k) or _listed(stored, m, j)
            if inverted != passive and not listed:
                return Veto("order", f"{a.text} {b.text}")
    return None


def _peers(text: Profile, i: int, k: int) -> bool:
    """Whether the two could stand for one another."""
    kinds = {text.items[i].kind, text.items[k].kind}
    if kinds == {"unit"}:
        return not any(n and text.items[n - 1].kind == "number" for n in (i, k))
    return kinds in ({"name"}, {"number"}) and abs(i - k) > 0 and not _one_name(text, i, k)


def _one_name(text: Profile, i: int, k: int) -> bool:
    """Whether they are parts of one name."""
    first, last = min(i, k), max(i, k)
    items = text.items[first + 1 : last + 1]
    return text.items[last].kind == "name" and all(
        n.kind == "name" and not n.link and not n.prep for n in items
    )


def _passive(text: Profile) -> bool:
    return any(item.prep == "by" and item.kind == "name" for item in text.items)


def _listed(text: Profile, i: int, k: int) -> bool:
    """Whether the two stand side by side as equals."""
    return abs(k - i) == 1 and bool(set(text.items[max(i, k)].link) & _MUTUAL)


def _swapped(a: Profile, b: Profile, ik: tuple[int, int], jm: tuple[int, int]) -> bool:
    """Whether what stands between two words is the same, though they changed places."""
    (i, k), (j, m) = ik, jm
    x, y = a.items[i], a.items[k]
    u, v = b.items[j], b.items[m]  # the mates of x and y: v stands before u
    if y.prep and y.prep == u.prep and y.prep not in (v.prep, x.prep) and y.prep not in _MUTUAL:
        return True
    if k == i + 1 and j == m + 1:
        return bool(y.link) and y.link == u.link and not set(y.link) & _MUTUAL
    if k == i + 2 and j == m + 2:
        return y.link == u.link and equal(a.items[i + 1], b.items[m + 1])
    return False


def _counted(asked: Profile, stored: Profile) -> Veto | None:
    """A number belongs to the unit that follows it."""
    theirs = _heads(stored)
    for number, head in _heads(asked).items():
        mate = theirs.get(number)
        if mate is None or "unit" not in (head.kind, mate.kind):
            continue
        if not equal(head, mate) and not akin(head, mate):
            return Veto("unit", f"{number} {head.text} / {mate.text}")
    return None


def _heads(text: Profile) -> dict[str, ContentWord]:
    return {
        number.text: head
        for number, head in pairwise(text.items)
        if number.kind == "number" and not head.link
    }
