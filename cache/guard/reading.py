"""From a text to its words: contractions spelled out, numbers as digits, known phrases joined."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cache.guard.lemmas import degree, lemmas
from cache.guard.lexicon import lexicon
from cache.guard.words import CURRENCIES, NUMBERS, ORDINALS, SCALES, word_set

__all__ = ["Reading", "Word", "plain", "read"]


@dataclass(slots=True)
class Word:
    """One word, number (``num``) or sign (``op``), in lower case. ``name``: written like a name;
    ``start``: first of a clause; ``ordinal``: a number that counts off.
    """

    text: str
    kind: str = "word"
    name: bool = False
    start: bool = False
    ordinal: bool = False


@dataclass(slots=True)
class Reading:
    """A text's words, and what stood in quotation marks."""

    words: list[Word]
    quoted: tuple[str, ...]


_PLAIN = str.maketrans(
    # Curly and other quotation marks, hyphens and dashes, the ellipsis, the hard space.
    "\u2018\u2019\u00b4`\u201c\u201d\u201e\u00ab\u00bb\u2010\u2011\u2013\u2014\u2212\u2026\u00a0",
    "''''" + 5 * '"' + 5 * "-" + ". ",
)
_QUOTED = re.compile(r'"([^"]+)"|(?<![\w])\'([^\']+)\'(?![\w])')
_TOKEN = re.compile(
    r"""(?P<known>2[fF][aA]\b)
    |(?P<num>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)*)(?P<tail>(?:st|nd|rd|th|s)\b)?
    |(?P<special>[cC]\+\+|[cCfF]\#|\.(?:NET|net)\b|(?:[A-Za-z]\.){2,}|km/h\b|w/o\b)
    |(?P<word>[^\W\d_]+(?:'[^\W\d_]+)*)
    |(?P<sign>[$€£¥%°+*/=<>≤≥≠×÷^|&~#@\\_])
    |(?P<minus>-)
    |(?P<mark>[.,:;?!()\n])""",
    re.VERBOSE,
)
_SHORT = {
    "can't": "can not", "cannot": "can not", "won't": "will not", "shan't": "shall not",
    "let's": "let us", "i'm": "i am", "ain't": "is not", "gonna": "going to",
    "wanna": "want to", "whats": "what is", "dont": "do not", "doesnt": "does not",
    "cant": "can not", "wont": "will not", "didnt": "did not", "isnt": "is not",
    "hows": "how is", "o'clock": "oclock", "unable": "not able", "impossible": "not possible",
    "w/o": "without", "e-mail": "email", "vs": "versus",
}  # fmt: skip
# What a verb and the particle after its object are together.
_SPLIT = {
    "get": {"out": "remove", "off": "remove"},
    "take": {"out": "remove"},
    "turn": {"on": "turn_on", "off": "turn_off"},
    "switch": {"on": "turn_on", "off": "turn_off"},
    "set": {"up": "set_up"},
    "look": {"up": "look_up"},
    "speed": {"up": "speed_up"},
    "slow": {"down": "slow_down"},
    "back": {"up": "backup"},
    "send": {"back": "return"},
    "give": {"back": "return"},
    "put": {"off": "postpone"},
}
_KEEPING = ("keep", "keeping", "keeps", "stop", "prevent", "stopping", "preventing")
_AFTER = ("of", "on", "in", "from", "for", "at")
_TAILS = {"n't": " not", "'re": " are", "'ve": " have", "'ll": " will", "'d": " would",
          "'m": " am"}  # fmt: skip
_IS = word_set("what how who where when why that it there here he she which this everything")
_ROMAN = re.compile(r"X{0,3}(?:IX|IV|V?I{0,3})\Z")
_PLURAL_OF_LETTERS = re.compile(r"[A-Z]{2,5}'?s\Z")
_EARLIEST = word_set("sign signs symptom symptoms stage indication warning")
_NUMBERED = word_set("war part chapter act volume type phase level book title grade")
_NUMERALS = {"I": 1, "V": 5, "X": 10}


def plain(text: str) -> str:
    """The text with typewriter quotation marks, apostrophes and hyphens."""
    return text.translate(_PLAIN)


def read(text: str) -> Reading:
    """Its words and quotations; of any text."""
    text = plain(text)
    quoted = [a or b for a, b in _QUOTED.findall(text)]
    quoted = [re.sub(r"^(?:to|an?|the) (?=\w)", "", q, flags=re.IGNORECASE) for q in quoted]
    words = _gathered(_numbers(_joined(_tokens(text.replace('"', " ")))))
    return Reading(words, tuple(" ".join(q.casefold().split()).strip(" .,!?") for q in quoted))


def _tokens(text: str) -> list[Word]:
    found: list[Word] = []
    start, end = True, -1
    shouting = _title_case(text)
    for match in _TOKEN.finditer(text):
        kind, piece = match.lastgroup, match.group()
        touching, end = match.start() == end, match.end()
        if kind == "mark":
            start = True
            continue
        if kind in ("num", "tail"):
            number = match["num"].replace(",", "")
            tail = match["tail"]
            found.append(Word(number + ("s" if tail == "s" else ""), "num", start=start))
            found[-1].ordinal = tail not in (None, "s")
        elif kind == "known":
            found.append(Word(piece.lower(), start=start))
        elif kind == "sign":
            found += _sign(piece, start)
        elif kind == "minus":
            # Between two letters it is a hyphen.
            if (not touching and text[end : end + 1].isdigit()) or text[end : end + 1] == " ":
                found.append(Word("-", "op", start=start))
        else:
            name = (
                piece != piece.lower()
                and not shouting
                and (not start or piece[1:] != piece[1:].lower())
            )
            found += _word(piece, name, start, found)
        start = False
    return found


def _title_case(text: str) -> bool:
    words = re.findall(r"[A-Za-z]{2,}", text)
    return len(words) > 4 and sum(w[0].isupper() for w in words) > 0.8 * len(words)


def _sign(piece: str, start: bool) -> list[Word]:
    if piece in CURRENCIES:
        return [Word(CURRENCIES[piece], start=start)]
    return [] if piece in "°#@_\\" else [Word(piece, "op", start=start)]


def _word(piece: str, name: bool, start: bool, before: list[Word]) -> list[Word]:
    """The words of one piece of text: a contraction is several."""
    lower = piece.lower()
    if lower in _SHORT:
        parts = _SHORT[lower].split()
    elif len(lower) > 2 and lower.endswith("."):
        lower = lower.replace(".", "")
        parts = [{"us": "usa"}.get(lower, lower)]
    elif piece in ("US", "USA"):
        parts = ["usa"]
    elif _roman(piece, before):
        number = sum(
            -_NUMERALS[a] if _NUMERALS[a] < _NUMERALS.get(b, 0) else _NUMERALS[a]
            for a, b in zip(piece, piece[1:] + " ", strict=True)
        )
        return [Word(str(number), "num")]
    elif _PLURAL_OF_LETTERS.match(piece):
        parts = [lower.rstrip("s").rstrip("'")]
    else:
        parts = _apart(lower)
    return [
        Word(part, name=name and i == 0 and lower != "i", start=start and i == 0)
        for i, part in enumerate(parts)
    ]


def _apart(lower: str) -> list[str]:
    for tail, full in _TAILS.items():
        if lower.endswith(tail) and len(lower) > len(tail):
            return (lower[: -len(tail)] + full).split()
    if lower.endswith("'s"):
        stem = lower[:-2]
        return [stem, "is"] if stem in _IS else [stem]
    return [lower.replace("'", "")]


def _roman(piece: str, before: list[Word]) -> bool:
    if len(piece) == 1:
        return piece in _NUMERALS and bool(before) and before[-1].text in _NUMBERED
    return _ROMAN.match(piece) is not None and bool(before)


def _numbers(words: list[Word]) -> list[Word]:
    """Spelled numbers as digits; ``one`` only where it counts."""
    found: list[Word] = []
    for i, word in enumerate(words):
        after = words[i + 1].text if i + 1 < len(words) else ""
        value = _value(word, found[-1] if found else None, after)
        if value is None:
            found.append(word)
            continue
        ordinal = word.ordinal or word.text in ORDINALS
        last = found[-1] if found else None
        if last is not None and last.kind == "num" and word.kind == "word" and "s" not in last.text:
            together = _together(float(last.text), value, word.text) if _floats(last.text) else None
            if together is not None:
                found[-1] = Word(_spell(together), "num", start=last.start, ordinal=ordinal)
                continue
        found.append(Word(_spell(value), "num", start=word.start, ordinal=ordinal))
    return found


def _floats(text: str) -> bool:
    return text.count(".") < 2 and text[-1] != "s"


def _spell(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _value(word: Word, last: Word | None, after: str) -> float | None:
    if word.kind != "word" or (word.text == "k" and (last is None or last.kind != "num")):
        return None
    text = word.text
    if text == "one":
        counts = after in ("hundred", "thousand", "million", "plus", "minus", "times", "divided")
        near = last is not None and (
            last.kind == "num" or last.text in ("plus", "minus", "times", "by")
        )
        return 1 if counts or near else None
    if text == "first" and after in _EARLIEST:
        return None
    if text == "half":
        return 0.5
    if text == "second" and (
        not after
        or after in ("in", "of", "is", "are", "and", "to", "for", "does")
        or (last is not None and last.text in ("per", "every", "each"))
    ):
        return None
    if text in NUMBERS:
        return NUMBERS[text]
    if text in ORDINALS:
        return ORDINALS[text]
    return SCALES.get(text)


def _together(last: float, value: float, word: str) -> float | None:
    """What two numbers that stand side by side are together, where they are one."""
    if word in SCALES:
        return last * value
    if last >= 20 and last % 100 % 10 == 0 and 0 < value < 10 and last % 100:
        return last + value
    if last >= 100 and last % 100 == 0 and value < 100:
        return last + value
    return None


def _joined(words: list[Word]) -> list[Word]:
    """Known expressions of several words as one word."""
    phrases = lexicon().phrases
    found: list[Word] = []
    at = 0
    while at < len(words):
        first = words[at]
        taken = 1
        future = first.text == "going" and (
            (at and words[at - 1].text in ("is", "are", "am"))
            or any(w.text == "be" for w in words[at + 2 : at + 3])
        )
        if first.kind == "word" and not future:
            for base in lemmas(first.text):
                for parts in phrases.get(base, ()):
                    length = _stands(words, at, parts)
                    if length > taken:
                        taken, text = length, "_".join(parts)
        if taken > 1:
            found.append(Word(text, name=False, start=first.start))
        else:
            found.append(first)
        at += taken
    return found


def _gathered(words: list[Word]) -> list[Word]:
    """``keep it from turning`` as ``prevent it turning``, ``turn it on`` as ``turn_on it``."""
    for i, word in enumerate(words):
        if word.kind != "word":
            continue
        if word.text in _KEEPING:
            for j in range(i + 1, min(i + 7, len(words) - 1)):
                if words[j].text == "from" and words[j + 1].text.endswith("ing"):
                    word.text = "prevent"
                    return words[:j] + words[j + 1 :]
        for verb in _SPLIT.keys() & set(lemmas(word.text)):
            for j in range(i + 2, min(i + 5, len(words))):
                joined = _SPLIT[verb].get(words[j].text)
                last = j + 1 == len(words) or words[j + 1].text in _AFTER
                last = last or (joined == "remove" and words[j].text == "off")
                if joined and last and not words[j].start:
                    word.text = joined
                    return words[:j] + words[j + 1 :]
    return words


def _stands(words: list[Word], at: int, parts: tuple[str, ...]) -> int:
    """How many words from ``at`` on are this expression, 0 for none; an article may be in it."""
    place = at
    for i, part in enumerate(parts):
        if i and place < len(words) and words[place].text in ("a", "the", "my", "your"):
            place += 1
        if place >= len(words) or words[place].kind != "word" or (i and words[place].start):
            return 0
        text = words[place].text
        if text != part and (part not in lemmas(text) or degree(text)):
            return 0
        place += 1
    return place - at
