"""How long the way of one request is: the files, functions and calls that it passes.

``python -m tests.path`` prints them, with a key and SQLite, streamed and not streamed:

- ``miss``, ``hit``: Responses in front of a chat endpoint, with the cache;
- ``native``: Responses in front of a ``responses`` endpoint, without the cache, ``store: false``;
- ``chat``: Chat Completions in front of a chat endpoint, without the cache;

and the calls that one further event of a stream takes, when events arrive one by one. What a reader
has to follow and a processor has to run is counted, so that it can be kept short; nothing of it
depends on time. A coroutine that goes on after it waited counts as one more call.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, Final, Literal

import aiohttp

from tests.bench import shapes
from tests.bench.shapes import Shape
from tests.support.fleet import http_client, routed
from tests.support.upstream import Script, Upstream, Wire

__all__ = ["CASES", "STREAMED", "Way", "further", "walked"]

_ROOT: Final = Path(__file__).parents[1]
_PACKAGES: Final = tuple(f"{_ROOT / name}/" for name in ("router", "plugins", "cache"))
_KEY: Final = "sk-path"
_WALKS: Final = 5
_AFTER: Final = 0.03
"""Seconds that are left to what a request does when its answer is out."""
_WORDS: Final = 5
_FURTHER: Final = 10
_MOST: Final = 10.0
"""Seconds for an answer."""
_MODEL: Final = Shape(_WORDS, 0).model
_DELTA: Final = re.compile(rb'"(?:delta|content)":"(?:\\")?a')
"""A word of the answer, in an event of either API."""


@dataclass(frozen=True, slots=True)
class _Case:
    """``path`` is what is asked, of an endpoint with this dialect."""

    path: str
    dialect: Literal["responses", "chat"]
    stream: bool
    cache: bool = False
    hit: bool = False


def _cases() -> Iterator[tuple[str, _Case]]:
    for name, path, dialect, cache in (
        ("miss", "/v1/responses", "chat", True),
        ("hit", "/v1/responses", "chat", True),
        ("native", "/v1/responses", "responses", False),
        ("chat", "/v1/chat/completions", "chat", False),
    ):
        for stream in (True, False):
            form = "streamed" if stream else "not streamed"
            kind: Literal["responses", "chat"] = "chat" if dialect == "chat" else "responses"
            yield f"{name}, {form}", _Case(path, kind, stream, cache, name == "hit")


_CASES: Final = dict(_cases())

CASES: Final = tuple(_CASES)
STREAMED: Final = tuple(name for name, case in _CASES.items() if case.stream and not case.hit)
"""The cases in which events arrive one by one."""


class Way:
    """The calls of the product's functions, by function."""

    def __init__(self, calls: Counter[CodeType] | None = None) -> None:
        self.calls = Counter[CodeType]() if calls is None else calls

    @property
    def files(self) -> list[str]:
        """The files that were passed, from the root of the repository."""
        names = {code.co_filename for code in self.calls}
        return sorted(str(Path(name).relative_to(_ROOT)) for name in names)

    def __str__(self) -> str:
        files, functions, calls = len(self.files), len(self.calls), self.calls.total()
        return f"{files} files, {functions} functions, {calls} calls"

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what is called, in every thread that begins meanwhile and in this one."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        ours = event == "call" and frame.f_code.co_filename.startswith(_PACKAGES)
        if ours and not _by_timer(frame):
            self.calls[frame.f_code] += 1


def _by_timer(frame: FrameType) -> bool:
    """Whether a timer of the event loop called it: when it fires is no matter of the request."""
    caller = frame.f_back
    return caller is not None and isinstance(caller.f_locals.get("self"), asyncio.TimerHandle)


async def walked() -> dict[str, Way]:
    """The way of a request in each of the cases: what all of some walks have in common, since what
    the router does every second may fall into one of them.
    """
    return {name: await _common(case, _WORDS, apart=False) for name, case in _CASES.items()}


async def further() -> dict[str, float]:
    """How many calls one further event takes, in each of the cases ``STREAMED``."""
    found = {}
    for name in STREAMED:
        few, many = [
            (await _common(_CASES[name], words, apart=True)).calls.total()
            for words in (_WORDS, _WORDS + _FURTHER)
        ]
        found[name] = (many - few) / _FURTHER
    return found


async def _common(case: _Case, words: int, *, apart: bool) -> Way:
    with TemporaryDirectory() as directory:
        walks = [
            await _walked(case, words, Path(directory, f"{number}.db"), apart=apart)
            for number in range(_WALKS)
        ]
    return Way(reduce(and_, (walk.calls for walk in walks)))


async def _walked(case: _Case, words: int, database: Path, *, apart: bool) -> Way:
    """The second miss, or the second hit, since the first one does what is done once."""
    cache: dict[str, Any] = {"mode": "always", "semantic": {"enabled": False}}
    settings: dict[str, Any] = {
        "auth": {"keys": [{"name": "one", "key": _KEY}]},
        "cache": cache if case.cache else {},
        "state": {"url": f"sqlite:///{database}"},
        "balance": {"health_interval": 3600},
    }
    heard = asyncio.Semaphore(0)
    answer = _answer(case, Shape(words, 0), heard if apart else None)
    async with Upstream(default=answer) as upstream, http_client() as http:
        endpoint = {"name": "one", "dialect": case.dialect, "models": [_MODEL]}
        async with routed({**endpoint, "url": upstream.address + "/v1"}, **settings) as url:
            for _ in range(2 if case.hit else 1):
                await _ask(http, url, case, "First", heard)
            way = Way()
            with way.counting():
                await _ask(http, url, case, "First" if case.hit else "Second", heard)
                await asyncio.sleep(_AFTER)
            return way


async def _ask(
    http: aiohttp.ClientSession, url: str, case: _Case, text: str, heard: asyncio.Semaphore
) -> None:
    """Ask, and release ``heard`` for each word of the answer's stream."""
    body: dict[str, Any] = {"model": _MODEL, "stream": case.stream}
    if case.path == "/v1/responses":
        body |= {"input": text} if case.cache else {"input": text, "store": False}
    else:
        body["messages"] = [{"role": "user", "content": text}]
    headers = {"Authorization": f"Bearer {_KEY}"}
    answer, words = b"", 0
    async with (
        asyncio.timeout(_MOST),
        http.post(url + case.path, json=body, headers=headers) as got,
    ):
        async for piece in got.content.iter_any():
            answer += piece
            for _ in range(words, words := len(_DELTA.findall(answer))):
                heard.release()
    if got.status != 200:
        raise RuntimeError(f"HTTP {got.status}: {answer[:500]!r}")


def _answer(case: _Case, shape: Shape, heard: asyncio.Semaphore | None) -> Script:
    """The answer, whole or as a stream of events that arrive together; with ``heard``, each word
    comes when the one before it has reached the client.
    """
    native = case.dialect == "responses"
    if not case.stream:
        pieces = [shapes.responses_body(shape) if native else shapes.chat_body(shape)]
    elif native:
        pieces = shapes.responses_writes(shape)
    else:
        pieces = shapes.chat_writes(shape, True)

    async def script(wire: Wire) -> None:
        kind = "text/event-stream" if case.stream else "application/json"
        wire.head(200, {"Content-Type": kind}, framing="length", length=sum(map(len, pieces)))
        if heard is None:
            wire.raw(b"".join(pieces))
            return
        for place, piece in enumerate(pieces):
            if place:
                async with asyncio.timeout(_MOST):
                    await heard.acquire()
            wire.raw(piece)

    return script


def main() -> None:
    """Print the ways; with ``--files``, the files of each as well."""
    parser = argparse.ArgumentParser(prog="python -m tests.path", description=__doc__)
    parser.add_argument("--files", action="store_true", help="name the files")
    args = parser.parse_args()
    for case, way in asyncio.run(walked()).items():
        print(f"{case + ':':<21} {way}")
        if args.files:
            print("".join(f"    {name}\n" for name in way.files))
    for case, calls in asyncio.run(further()).items():
        print(f"{case + ':':<21} {calls:.1f} calls for a further event")


if __name__ == "__main__":
    main()
