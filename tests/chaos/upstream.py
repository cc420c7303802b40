"""A backend that fails as it is told.

    python -m tests.chaos.upstream --port PORT --log FILE --pause 0.05 --seed 1

It speaks every dialect. POST /fault with the fields of a Fault changes how generation requests are
answered from then on. Every request, and how it ended, is a line of the log, written at once: a
SIGKILL loses none.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import time
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import uvloop

from tests.chaos.faults import HEALTHY, Fault
from tests.support.speech import SPEECH, Speech
from tests.support.upstream import Received, Upstream, Wire, json_answer, whole

__all__ = ["BUSY", "MODELS", "Backend"]

MODELS = ("m", "n")

BUSY = MODELS[0]
"""The model that most requests are for."""

_NAMES = [
    {"id": name, "name": name, "model": name, "expires_at": "2099-01-01T00:00:00Z"}
    for name in MODELS
]
_LISTING = json_answer({"object": "list", "data": _NAMES, "models": _NAMES})
"""The models, all of them in memory."""

_SLOWER = 8
_MARK = re.compile(rb"request (\d+)")
_SPEECH = {speech.path: speech for speech in SPEECH.values()}


class Backend(Upstream):
    """Speaks with ``pause`` seconds before each word, and before the end."""

    def __init__(self, port: int, pause: float, log: Path, rng: random.Random) -> None:
        super().__init__(default=self._play, on_get=self._get, port=port)
        self.fault = HEALTHY
        self._pause = pause
        self._log = log.open("ab", buffering=0)
        self._rng = rng
        self._numbers = count()

    async def _get(self, wire: Wire) -> None:
        self.probes.clear()  # minutes of load
        self._note(event="listing", path=wire.request.path)
        await _LISTING(wire)

    async def _play(self, wire: Wire) -> None:
        self.requests.clear()  # minutes of load
        request = wire.request
        if request.path == "/fault":
            self.fault = Fault(**request.json)
            await json_answer({})(wire)
        elif request.path in _SPEECH:
            await self._generate(request)
        else:
            self._note(event="other", path=request.path)
            await json_answer({"error": "no such path"}, 404)(wire)

    async def _generate(self, request: Received) -> None:
        number = next(self._numbers)
        body = request.json
        mark = _MARK.search(request.body)
        # The router may send a request of its own making.
        told = int(mark[1]) if mark else None
        self._note(event="begun", number=number, model=body["model"], request=told)
        how = await self._answer(request.wire, _SPEECH[request.path], body)
        self._note(event="ended", number=number, how=how)

    async def _answer(self, wire: Wire, speech: Speech, body: dict[str, Any]) -> str:
        """Answer as the fault of the moment wants it; how it ended."""
        fault = self.fault
        spared = fault.model not in (None, body["model"]) or self._rng.random() >= fault.share
        if spared:
            fault = HEALTHY
        if fault.kind == "error":
            await whole(b'{"error": {"message": "the GPU is on fire"}}', 500)(wire)
            return "error"
        if fault.kind == "limit":
            headers = {"Retry-After": str(fault.retry_after)}
            await whole(b'{"error": {"message": "too much"}}', 429, headers)(wire)
            return "limit"
        stream = bool(body.get("stream", False))
        pieces = _pieces(speech, stream=stream)
        if fault.kind in ("reset", "stall"):
            pieces = pieces[: {"head": 0, "output": 1, "middle": len(pieces) // 2}[fault.point]]
        pause = self._pause * (_SLOWER if fault.kind == "slow" else 1)
        for number, piece in enumerate(pieces):
            if number:
                await asyncio.sleep(pause)
            else:
                wire.head(200, {"Content-Type": speech.kind if stream else "application/json"})
            if wire.gone.is_set():
                return "left"
            if piece:
                wire.piece(piece)
        if fault.kind == "reset":
            wire.reset()
            return "reset"
        if fault.kind == "stall":
            await wire.gone.wait()
            return "left"
        wire.end()
        return "whole"

    def _note(self, **line: Any) -> None:
        self._log.write(orjson.dumps({"at": time.monotonic(), **line}) + b"\n")


def _pieces(speech: Speech, *, stream: bool) -> list[bytes]:
    """What is sent of an answer, piece by piece; one in one piece takes as long as a stream."""
    if stream:
        return list(speech.pieces)
    body = speech.whole
    half = len(body) // 2
    return [b"", b"", body[:half], b"", b"", body[half:]]


def main() -> None:
    """Serve one backend."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.upstream")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--pause", type=float, required=True, help="in seconds")
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    uvloop.run(Backend(options.port, options.pause, options.log, rng).serve_forever())


if __name__ == "__main__":
    main()
