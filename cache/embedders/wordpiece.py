"""Cuts English into the word pieces of BERT's uncased vocabulary, or says why it will not.

BERT's tokenizer makes one text of many: it drops control and zero-width characters and accents,
and cuts other scripts into letters that a model of English has no vectors worth comparing for.
Two texts that differ in these only would be the same text to it. Here such a text is refused. Any
two texts that are taken and have the same pieces differ in nothing but the case of letters and
in white space; for those that are taken, the pieces are what BERT's tokenizer makes of them.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["TOO_LONG", "UNKNOWN_TOKENS", "TextRefused", "WordPieces"]

TOO_LONG: Final = "too_long"
UNKNOWN_TOKENS: Final = "unknown_tokens"

_LONGEST_TEXT: Final = 8192  # characters; a window of ordinary words is far shorter
_LONGEST_WORD: Final = 100  # as in BERT's tokenizer, to which a longer word is unknown
_WORD_OR_MARK: Final = re.compile(r"[!-/:-@\[-`{-~]|[^\s!-/:-@\[-`{-~]+")


class TextRefused(Exception):
    """The text has no pieces; ``reason`` is TOO_LONG or UNKNOWN_TOKENS."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class WordPieces:
    """A vocabulary: one piece a line, its id the number of the line; ``##`` before pieces that
    continue a word. ``window`` is how many pieces a text may have, [CLS] and [SEP] among them.
    Raises ValueError for a vocabulary without those.
    """

    def __init__(self, vocabulary: str, window: int) -> None:
        self._window = window
        self._ids = {piece: number for number, piece in enumerate(vocabulary.split("\n"))}
        if not {"[CLS]", "[SEP]"} <= self._ids.keys():
            raise ValueError("the vocabulary has no [CLS] or no [SEP]")
        self._longest = max(map(len, self._ids))

    def ids(self, text: str) -> list[int]:
        """The ids of ``text`` with [CLS] and [SEP] around them; takes about a millisecond at
        worst. Raises Refused.
        """
        if len(text) > _LONGEST_TEXT:
            raise TextRefused(TOO_LONG)
        ids = [self._ids["[CLS]"]]
        for found in _WORD_OR_MARK.finditer(text.translate(_PLAIN).lower()):
            word = found.group()
            whole = self._ids.get(word)
            if whole is None or len(word) > _LONGEST_WORD:
                self._cut(word, ids)
            else:
                ids.append(whole)
            if len(ids) >= self._window:
                raise TextRefused(TOO_LONG)
        return [*ids, self._ids["[SEP]"]]

    def parts(self, text: str) -> list[str]:
        """The text in parts that ``ids`` takes, as few as there can be, without the words that it
        refuses: of accented letters the accents are left out, so that few are.
        """
        room = self._window - 2
        parts: list[str] = []
        words: list[str] = []
        used = length = 0
        plain = unicodedata.normalize("NFD", text)
        for word in "".join(c for c in plain if not unicodedata.combining(c)).split():
            try:
                size = len(self.ids(word)) - 2
            except TextRefused:
                continue
            if words and (used + size > room or length + len(word) >= _LONGEST_TEXT):
                parts.append(" ".join(words))
                words, used, length = [], 0, 0
            words.append(word)
            used += size
            length += len(word) + 1
        return [*parts, " ".join(words)] if words else parts

    def _cut(self, word: str, ids: list[int]) -> None:
        """Append the longest piece that ``word`` begins with, the longest that follows, ..."""
        if len(word) > _LONGEST_WORD:
            raise TextRefused(UNKNOWN_TOKENS)
        begin, prefix = 0, ""
        while begin < len(word):
            for end in range(min(len(word), begin + self._longest), begin, -1):
                found = self._ids.get(prefix + word[begin:end])
                if found is not None:
                    break
            else:
                raise TextRefused(UNKNOWN_TOKENS)
            ids.append(found)
            begin, prefix = end, "##"


class _Plain(dict[int, str]):
    """What stands for a character, by its number; found out when it is first met. Raises Refused
    for what would be lost: letters, accents and digits beyond ASCII, and what cannot be seen.
    """

    def __missing__(self, number: int) -> str:
        plain = self[number] = _plain(chr(number))
        return plain


_PLAIN: Final = _Plain()


def _plain(character: str) -> str:
    category = unicodedata.category(character)
    if character in "\t\n\r" or category == "Zs":
        return " "
    if character.isascii() and category != "Cc":
        return character
    known = category[0] in "PS" or category == "No"
    if not known or unicodedata.normalize("NFD", character) != character:
        raise TextRefused(UNKNOWN_TOKENS)
    return f" {character} " if category[0] == "P" else character
