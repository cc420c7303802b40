"""Where a text cites which source: the ``url_citation`` annotations of an answer. Pure.

A citation is a Markdown link to a source, with the parentheses around it where there are any
(``([title](url))`` is how OpenAI's models cite), or the bare URL of one. Offsets count code points,
and the end is the place behind the last one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, TypedDict
from urllib.parse import urlsplit, urlunsplit

from router.tools.web_search.outcome import WebSource

__all__ = ["CitationFinder", "UrlCitation", "plain_url", "url_citations"]

_MOST_LABEL: Final = 500
_DEEPEST: Final = 8
"""Brackets in brackets, or parentheses in those of a URL. Without a limit a text of nothing else
would be read again for each.
"""

_MOST_URL: Final = 2048
_MOST_TITLE: Final = 500
_MARK: Final = re.compile(r"\[|https?://", re.IGNORECASE)
_SCHEMES: Final = ("https://", "http://")
_IN_LABEL: Final = re.compile(r"[\[\]\n]|\\.", re.DOTALL)
_IN_URL: Final = re.compile(r"[()\s]")
_URL_END: Final = re.compile(r"[\s<>\[\]{}|\\^`\"\u3000-\u303f\uff01-\uff60]")
"""What ends a bare URL: the punctuation of Chinese and Japanese as well, which has no blank before
it.
"""
_TRAILING: Final = ".,;:!?'*_~"
_TRACKING: Final = re.compile(r"utm_[a-z]+=[^&]*(&|\Z)", re.IGNORECASE)
_PORTS: Final = {"http": ":80", "https": ":443"}


class UrlCitation(TypedDict):
    """An annotation of a text of an answer."""

    type: Literal["url_citation"]
    start_index: int
    end_index: int
    url: str
    title: str


class _Unfinished(Exception):
    """The text may go on in a way that decides of what has begun in it."""


def plain_url(url: str) -> str:
    """The URL without what makes no difference to which page it is: its fragment, a slash at the
    end, the port that its scheme implies, and what says where a reader came from (``utm_source``).
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    scheme = parts.scheme.lower()
    host = parts.netloc.lower().removesuffix(_PORTS.get(scheme, ":"))
    query = _TRACKING.sub("", parts.query).rstrip("&")
    return urlunsplit((scheme, host, parts.path.rstrip("/"), query, ""))


def url_citations(text: str, sources: Iterable[WebSource]) -> list[UrlCitation]:
    """The citations of a whole text, in its order and without overlap."""
    finder = CitationFinder(sources)
    return [*finder.feed(text), *finder.finish()]


class CitationFinder:
    """Finds the citations of a text that arrives in pieces: the same, whatever the pieces.

    What is kept of the text is bounded: one character before what is not decided yet.
    """

    def __init__(self, sources: Iterable[WebSource]) -> None:
        self._sources = {plain_url(source.url): source for source in reversed(list(sources))}
        self._text = ""
        self._offset = 0  # of ``_text`` in the whole
        self._place = 0  # in ``_text``: all before is decided
        self._free = 0  # in ``_text``: where the last citation ends

    def feed(self, delta: str) -> list[UrlCitation]:
        """The citations that are certain now, each given once."""
        if not self._sources:
            return []
        self._text += delta
        return self._scan(final=False)

    def finish(self) -> list[UrlCitation]:
        """The rest, at the end of the text."""
        return self._scan(final=True)

    def _scan(self, *, final: bool) -> list[UrlCitation]:
        found: list[UrlCitation] = []
        while (mark := _MARK.search(self._text, self._place)) is not None:
            start = mark.start()
            try:
                end, citation = (
                    self._link(start, final=final)
                    if mark[0] == "["
                    else self._bare(start, final=final)
                )
            except _Unfinished:
                self._place = start
                break
            self._place = end
            if citation is not None:
                self._free = citation["end_index"] - self._offset
                found.append(citation)
        else:
            self._place = len(self._text) if final else self._undecided()
        self._forget()
        return found

    def _undecided(self) -> int:
        """Where a URL may have begun at the end of the text."""
        most = min(len(self._text) - self._place, len(_SCHEMES[0]) - 1)
        for size in range(most, 0, -1):
            if any(scheme.startswith(self._text[-size:].lower()) for scheme in _SCHEMES):
                return len(self._text) - size
        return len(self._text)

    def _forget(self) -> None:
        done = max(self._place - 1, 0)
        self._text = self._text[done:]
        self._offset += done
        self._place -= done
        self._free -= done

    def _link(self, start: int, *, final: bool) -> tuple[int, UrlCitation | None]:
        """A Markdown link, and the place behind it; behind its bracket where it is none."""
        reader = _LinkReader(self._text, final=final)
        parsed = reader.read(start)
        if parsed is None:
            return start + 1, None
        url, end = parsed
        source = self._sources.get(plain_url(url))
        if source is None:
            return end, None
        opened = start > max(self._free, 0) and self._text[start - 1] == "("
        if opened and reader.at(end) == ")":
            return end + 1, self._citation(start - 1, end + 1, source)
        return end, self._citation(start, end, source)

    def _bare(self, start: int, *, final: bool) -> tuple[int, UrlCitation | None]:
        stop = _URL_END.search(self._text, start, start + _MOST_URL)
        if stop is None and len(self._text) < start + _MOST_URL and not final:
            raise _Unfinished
        url = self._text[start : stop.start() if stop else start + _MOST_URL]
        url = _without_trailing(url)
        end = start + len(url)
        source = self._sources.get(plain_url(url))
        return end, None if source is None else self._citation(start, end, source)

    def _citation(self, start: int, end: int, source: WebSource) -> UrlCitation:
        return {
            "type": "url_citation",
            "start_index": self._offset + start,
            "end_index": self._offset + end,
            "url": source.url,
            "title": source.title,
        }


def _without_trailing(url: str) -> str:
    """A URL without the punctuation of the sentence that it stands in."""
    while url:
        if url[-1] in _TRAILING or (url[-1] == ")" and url.count(")") > url.count("(")):
            url = url[:-1]
        else:
            break
    return url


class _LinkReader:
    """Reads Markdown links. What runs against the end of a text that is not ``final`` raises
    ``_Unfinished``.
    """

    def __init__(self, text: str, *, final: bool) -> None:
        self._text = text
        self._final = final

    def at(self, place: int) -> str:
        """The character there; none at the end."""
        if place >= len(self._text) and not self._final:
            raise _Unfinished
        return self._text[place : place + 1]

    def read(self, start: int) -> tuple[str, int] | None:
        """The URL of the link whose bracket is at ``start``, and the place behind it."""
        label_end = self._behind_label(start)
        if label_end is None or self.at(label_end) != "(":
            return None
        begin = label_end + 1
        if self.at(begin) == "<":
            end = self._until(">", begin + 1, _MOST_URL)
            if end is None:
                return None
            return self._closed(self._text[begin + 1 : end], end + 1)
        end = self._behind_url(begin)
        return None if end is None else self._closed(self._text[begin:end], end)

    def _behind_label(self, start: int) -> int | None:
        depth = 0
        place = start
        while True:
            match = _IN_LABEL.search(self._text, place, start + _MOST_LABEL)
            if match is None:
                self._check_all_there(start + _MOST_LABEL)
                return None
            depth += {"[": 1, "]": -1}.get(match[0], 0)
            if match[0] == "\n" or depth > _DEEPEST:
                return None
            place = match.end()
            if depth == 0:
                return place

    def _behind_url(self, begin: int) -> int | None:
        depth = 0
        place = begin
        while True:
            match = _IN_URL.search(self._text, place, begin + _MOST_URL)
            if match is None:
                self._check_all_there(begin + _MOST_URL)
                return None
            if match[0] == "(":
                depth += 1
                if depth > _DEEPEST:
                    return None
            elif match[0] != ")":
                return match.start() if depth == 0 else None
            elif depth == 0:
                return match.start()
            else:
                depth -= 1
            place = match.end()

    def _closed(self, url: str, place: int) -> tuple[str, int] | None:
        """Behind the parenthesis that ends the link, over a title where there is one."""
        blanks = 0
        while self.at(place + blanks) in (" ", "\t") and blanks < _MOST_TITLE:
            blanks += 1
        place += blanks
        if blanks and (quote := self.at(place)) in ('"', "'"):
            end = self._until(quote, place + 1, _MOST_TITLE)
            if end is None:
                return None
            place = end + 1
        return (url, place + 1) if self.at(place) == ")" else None

    def _until(self, sign: str, begin: int, most: int) -> int | None:
        """Where the sign is, on the same line."""
        end = self._text.find(sign, begin, begin + most)
        line = self._text.find("\n", begin, begin + most if end < 0 else end)
        if line >= 0:
            return None
        if end < 0:
            self._check_all_there(begin + most)
            return None
        return end

    def _check_all_there(self, limit: int) -> None:
        """What was not found before ``limit`` may still come, where the text ends before that."""
        if len(self._text) < limit and not self._final:
            raise _Unfinished
