"""How often the semantic tier is right, measured through a running router.

    python -m tests.cache.quality.run [PAIRS.json ...] [--unrelated 10000] [--threshold 0.8]

Every question is in one namespace. First the unrelated questions are asked, then each pair's ``a``,
then each pair's ``b``, which is not kept. What counts is what the upstream was asked, and whose
answer came: each answer of the upstream repeats its question. The files are like ``pairs.json``
beside this module, which is the default.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import uvloop

from router.app import create_app
from router.settings.schema import Settings
from tests.cache.quality.unrelated import unrelated
from tests.support.fleet import listening
from tests.support.upstream import Upstream, Wire, json_answer

__all__ = ["Outcome", "main", "measured"]

_OWN: Final = Path(__file__).with_name("pairs.json")
_AT_ONCE: Final = 16
_PATIENCE: Final = 120.0
_ADMIN: Final = "admin-key-of-the-run"
_KEEP_OUT: Final = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two questions, and whether one answer serves both."""

    kind: str
    a: str
    b: str
    same: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a pair. ``answered``: the question whose answer ``b`` got without the
    upstream being asked, None where it was asked.
    """

    pair: Pair
    answered: str | None
    similarity: str

    @property
    def right(self) -> bool:
        """A hit with the answer of ``a`` where one answer serves both, and none where not."""
        if self.pair.same:
            return self.answered == self.pair.a
        return self.answered is None


def _answer(question: str) -> dict[str, Any]:
    """The question."""
    part = {"type": "output_text", "text": question, "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    answer = {"id": "resp_1", "object": "response", "status": "completed", "model": "m"}
    return {**answer, "output": [{**item, "content": [part]}], "usage": usage}


async def _echo(wire: Wire) -> None:
    await json_answer(_answer(wire.request.json["input"]))(wire)


def read(paths: Iterable[Path]) -> list[Pair]:
    """The pairs of these files."""
    pairs = []
    for path in paths:
        for name, same in (("should_hit", True), ("should_miss", False)):
            for one in json.loads(path.read_text())[name]:
                pairs.append(Pair(one["kind"], one["a"], one["b"], same))
    return pairs


async def measured(pairs: Sequence[Pair], beside: int, threshold: float | None) -> list[Outcome]:
    """Ask everything of a router of its own."""
    semantic: dict[str, Any] = {"enabled": True, "self_check": {"share": 0}}
    if threshold is not None:
        semantic["threshold"] = threshold
    async with Upstream(default=_echo) as upstream:
        settings = Settings.model_validate(
            {
                "endpoints": [
                    {"name": "one", "url": f"{upstream.address}/v1", "dialect": "responses"}
                ],
                "cache": {"mode": "always", "semantic": semantic},
                "admin": {"key": _ADMIN},
                "logging": {"access": False},
                "state": {"url": "sqlite:///:memory:"},
            }
        )
        async with (
            listening(create_app(settings)) as router,
            aiohttp.ClientSession(router) as client,
        ):
            await _fill(client, unrelated(beside))
            await _fill(client, [pair.a for pair in pairs])
            await _settled(router, beside + len({pair.a for pair in pairs}))
            return [await _outcome(client, upstream, pair) for pair in pairs]


async def _fill(client: aiohttp.ClientSession, questions: Sequence[str]) -> None:
    """Have the answers to these questions kept; none of them may come from a similar one."""
    waiting = iter(questions)

    async def work() -> None:
        for question in waiting:
            await _asked(client, question, {"Cache-Control": "no-cache"})

    await asyncio.gather(*(work() for _ in range(_AT_ONCE)))


async def _settled(router: str, count: int) -> None:
    """Wait until every question that may be matched is in the index: nobody waits for that else."""
    headers = {"Authorization": f"Bearer {_ADMIN}"}
    deadline, before = time.monotonic() + _PATIENCE, -1
    async with aiohttp.ClientSession(router, headers=headers) as admin:
        while time.monotonic() < deadline:
            async with admin.get("/admin/cache") as response:
                now = (await response.json())["semantic"]["index"]["entries"]
            if now >= count or now == before:
                print(f"{now} of {count} questions can be found by similar ones")
                return
            before = now
            await asyncio.sleep(2)


async def _outcome(client: aiohttp.ClientSession, upstream: Upstream, pair: Pair) -> Outcome:
    before = len(upstream.requests)
    answer, headers = await _asked(client, pair.b, _KEEP_OUT)
    hit = len(upstream.requests) == before
    return Outcome(pair, answer if hit else None, headers.get("X-Cache-Similarity", ""))


async def _asked(
    client: aiohttp.ClientSession, question: str, headers: dict[str, str]
) -> tuple[str, dict[str, str]]:
    body = {"model": "m", "input": question, "store": False}
    async with client.post("/v1/responses", json=body, headers=headers) as response:
        response.raise_for_status()
        answer = await response.json()
        text: str = answer["output"][0]["content"][0]["text"]
        return text, dict(response.headers)


def _report(outcomes: Sequence[Outcome]) -> None:
    for same, what in ((True, "hits that should be"), (False, "hits that should not be")):
        of = [outcome for outcome in outcomes if outcome.pair.same is same]
        hits = [outcome for outcome in of if outcome.answered is not None]
        for outcome in hits if not same else [o for o in of if not o.right]:
            pair = outcome.pair
            told = f" <- {outcome.answered!r} {outcome.similarity}" if outcome.answered else ""
            print(f"  {pair.kind:10} {pair.a!r} | {pair.b!r}{told}")
        right = [outcome for outcome in hits if outcome.right] if same else hits
        share = 100 * len(right) / max(1, len(of))
        print(f"{what}: {len(right)} of {len(of)} ({share:.1f} %)")
        kinds = Counter(outcome.pair.kind for outcome in of)
        got = Counter(outcome.pair.kind for outcome in right)
        print("  " + ", ".join(f"{kind} {got[kind]}/{count}" for kind, count in kinds.items()))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0 where the figures could be taken."""
    parser = argparse.ArgumentParser(prog="python -m tests.cache.quality.run")
    parser.add_argument("pairs", nargs="*", type=Path, default=[_OWN])
    parser.add_argument("--unrelated", type=int, default=10_000)
    parser.add_argument("--threshold", type=float, default=None)
    options = parser.parse_args(arguments)
    outcomes = uvloop.run(measured(read(options.pairs), options.unrelated, options.threshold))
    _report(outcomes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
