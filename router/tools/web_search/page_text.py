"""The text of a page, as a model is to read it.

HTML is parsed in a process of its own, which is killed past its time: no thread could be, and some
pages take a parser minutes.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import orjson

from router.settings.words import install_extra
from router.tools.web_search.outcome import SearchFailed

__all__ = ["HTML_TYPES", "TEXT_TYPES", "PageText", "PageTextExtractor", "missing_extractor"]

HTML_TYPES: Final = frozenset({"application/xhtml+xml", "text/html"})
TEXT_TYPES: Final = frozenset(
    {"application/json", "text/csv", "text/markdown", "text/plain", "text/x-markdown"}
)

_CHILD: Final = Path(__file__).with_name("page_text_child.py")
_MOST_CHARACTERS: Final = 1_000_000
_ENVIRONMENT: Final = ("LD_LIBRARY_PATH",)
"""What the process gets of the router's environment, which has keys in it."""

_SECONDS: Final = 5.0
_MEMORY_MIB: Final = 1024
_AT_ONCE: Final = 2
_CHARSET: Final = re.compile(r"[\w.:+-]{1,40}", re.ASCII)
_PLAIN_CHARSET: Final = re.compile(
    r"us-ascii|utf-?(8|16)|iso-8859-(1?[1-9]|10)|windows-125\d|koi8-[ru]|gb(k|2312|18030)|big5|"
    r"euc-(jp|kr)|shift_jis",
    re.ASCII | re.IGNORECASE,
)
"""Encodings of plain text. Python has others, some of which (``punycode``) take quadratic time."""

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_GAP: Final = re.compile(r"\n{3,}")


@dataclass(frozen=True, slots=True)
class PageText:
    """A page: its title, on one line, and its text."""

    title: str
    text: str


def missing_extractor() -> str | None:
    """What to install so that pages can be opened; None where nothing is missing."""
    if find_spec("resiliparse") is None:
        return f"web pages cannot be opened; {install_extra('tools')}"
    return None


class PageTextExtractor:
    """Extracts the text of ``_AT_ONCE`` pages at a time, each within ``seconds``."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._threads: ThreadPoolExecutor | None = None

    async def extract(self, media_type: str, body: bytes, charset: str) -> PageText:
        """The text of a file of one of ``HTML_TYPES`` or ``TEXT_TYPES``; raises SearchFailed."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_AT_ONCE, "page-text")
        loop = asyncio.get_running_loop()
        if media_type in TEXT_TYPES:
            return await loop.run_in_executor(self._threads, _plain, body, charset)
        known = charset if _CHARSET.fullmatch(charset) else ""
        extraction = _Extraction(body, known, self._seconds)
        try:
            return await loop.run_in_executor(self._threads, extraction.run)
        except asyncio.CancelledError:
            extraction.kill()
            raise

    def close(self) -> None:
        """Extract nothing any more; what is under way ends with its time."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


class _Extraction:
    """One page's process, watched by a thread: event loops take far longer to start one."""

    def __init__(self, body: bytes, charset: str, seconds: float) -> None:
        self._body = body
        self._seconds = seconds
        limits = (_MOST_CHARACTERS, int(seconds) + 1, _MEMORY_MIB)
        # -I: without what the environment and the working directory add to the path.
        self._command = [sys.executable, "-I", str(_CHILD), charset, *map(str, limits)]
        self._starting = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = True

    def run(self) -> PageText:
        """Start it and wait for its end; raises SearchFailed."""
        process = self._started()
        try:
            answer, _ = process.communicate(self._body, self._seconds)
        except subprocess.TimeoutExpired:
            raise SearchFailed(
                f"The page's text could not be extracted within {self._seconds:g} s.",
                "page_failed",
            ) from None
        finally:
            process.kill()
            process.communicate()
        if process.returncode != 0:
            raise SearchFailed("The page's text could not be extracted.", "page_failed")
        return _page(answer)

    def kill(self) -> None:
        """End it: nobody waits for it."""
        with self._starting:
            self._wanted = False
            if self._process is not None:
                self._process.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._starting:
            if not self._wanted:
                raise SearchFailed("Nobody waits for the page.", "page_failed")
            try:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
                )
            except OSError as error:
                raise SearchFailed(
                    "The router can start no process to extract the page's text.", "page_failed"
                ) from error
            return self._process


def _page(answer: bytes) -> PageText:
    found = orjson.loads(answer)
    return PageText(" ".join(_tidied(found["title"]).split()), _tidied(found["text"]))


def _plain(body: bytes, charset: str) -> PageText:
    known = _PLAIN_CHARSET.fullmatch(charset) is not None
    text = body.decode(charset if known else "utf-8", "replace")
    return PageText("", _tidied(text[:_MOST_CHARACTERS]))


def _tidied(text: str) -> str:
    text = _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    lines = [line.rstrip() for line in text.split("\n")]
    return _GAP.sub("\n\n", "\n".join(lines)).strip()
