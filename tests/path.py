"""How long the way of one request is: the files, functions and calls that it passes.

``python -m tests.path`` prints them for Responses in front of a chat endpoint, with a key, SQLite
and the cache: streamed, not streamed, and answered from the cache. What a reader has to follow and
a processor has to run is counted, so that it can be kept short; nothing of it depends on time. A
coroutine that goes on after it waited counts as one more call.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from operator import and_
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, Final

import aiohttp
import orjson

from tests.support.fleet import http_client, routed
from tests.support.upstream import Script, Upstream, Wire

__all__ = ["CASES", "Way", "walked"]

CASES: Final = ("miss, streamed", "miss, not streamed", "hit, streamed", "hit, not streamed")

_ROOT: Final = Path(__file__).parents[1]
_PACKAGES: Final = tuple(f"{_ROOT / name}/" for name in ("router", "plugins", "cache"))
_KEY: Final = "sk-path"
_WALKS: Final = 5
_AFTER: Final = 0.03
"""Seconds that are left to what a request does when its answer is out."""
_WORDS: Final = ("One", " two", " three", " four", " five")


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
    ways = {}
    with TemporaryDirectory() as directory:
        for case in CASES:
            walks = [await _walked(case, Path(directory, f"{case} {n}.db")) for n in range(_WALKS)]
            ways[case] = Way(reduce(and_, (walk.calls for walk in walks)))
    return ways


async def _walked(case: str, database: Path) -> Way:
    """The second miss, or the second hit, since the first one does what is done once."""
    settings: dict[str, Any] = {
        "auth": {"keys": [{"name": "one", "key": _KEY}]},
        "cache": {"mode": "always", "semantic": {"enabled": False}},
        "state": {"url": f"sqlite:///{database}"},
        "balance": {"health_interval": 3600},
    }
    stream, hit = not case.endswith("not streamed"), case.startswith("hit")
    async with Upstream(default=_answer(stream=stream)) as upstream, http_client() as http:
        endpoint = {"name": "one", "dialect": "chat", "models": ["m"]}
        async with routed({**endpoint, "url": upstream.address + "/v1"}, **settings) as url:
            for _ in range(2 if hit else 1):
                await _ask(http, url, "First", stream=stream)
            way = Way()
            with way.counting():
                await _ask(http, url, "First" if hit else "Second", stream=stream)
                await asyncio.sleep(_AFTER)
            return way


async def _ask(http: aiohttp.ClientSession, url: str, text: str, *, stream: bool) -> None:
    body = {"model": "m", "input": text, "stream": stream}
    headers = {"Authorization": f"Bearer {_KEY}"}
    async with http.post(f"{url}/v1/responses", json=body, headers=headers) as response:
        answer = await response.read()
    if response.status != 200:
        raise RuntimeError(f"HTTP {response.status}: {answer[:500]!r}")


def _answer(*, stream: bool) -> Script:
    """Five words, whole or as a stream of events that arrive together."""
    base = {"id": "chatcmpl-1", "created": 1, "model": "m"}
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {**base, "object": "chat.completion.chunk", "choices": [choice]}

    chunks = [chunk({"role": "assistant", "content": ""})]
    chunks += [chunk({"content": word}) for word in _WORDS]
    chunks += [chunk({}, "stop"), {**chunk({}), "choices": [], "usage": usage}]
    events = b"".join(b"data: %b\n\n" % orjson.dumps(one) for one in chunks) + b"data: [DONE]\n\n"
    message = {"role": "assistant", "content": "".join(_WORDS)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    completion = {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
    body = events if stream else orjson.dumps(completion)

    async def script(wire: Wire) -> None:
        kind = "text/event-stream" if stream else "application/json"
        wire.head(200, {"Content-Type": kind}, framing="length", length=len(body))
        wire.raw(body)

    return script


def main() -> None:
    """Print the ways; with ``--files``, the files of each as well."""
    parser = argparse.ArgumentParser(prog="python -m tests.path", description=__doc__)
    parser.add_argument("--files", action="store_true", help="name the files")
    args = parser.parse_args()
    for case, way in asyncio.run(walked()).items():
        print(f"{case + ':':<20} {way}")
        if args.files:
            print("".join(f"    {name}\n" for name in way.files))


if __name__ == "__main__":
    main()
