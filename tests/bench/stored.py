"""What storing costs: stored against unstored, chains, runs against streams."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final

import orjson

from router.state.responses import ResponseStore

from .bodies import Request, get, make_requests, post
from .check import Checker
from .children import BenchError
from .databases import opened
from .load import Result, ask
from .measure import AT_ONCE, PACED_STREAMS, UNPACED_STREAMS, Bench, Target, Values
from .report import Figures
from .routers import OWNER
from .shapes import VARIANTS, Shape

__all__ = ["TURNS", "Store", "Stored"]

TURNS: Final = (1, 20, 200)

_ANSWER: Final = Shape(64, 0)
_PACED: Final = Shape(64, 20)
_QUESTION: Final = "How does the router choose an endpoint for a request? " * 4
_ID = re.compile(rb'"id":\s*"(resp_[^"]+)"')
_READS: Final = 20
_LOOKED_AT: Final = 20
_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Store:
    """A router with its database; ``target.name`` is the kind of the database."""

    target: Target
    url: str


@dataclass(slots=True)
class Stored:
    """Measures routers with databases, and adds to ``figures``, round by round."""

    bench: Bench
    figures: Figures

    async def store(self, store: Store, number: int) -> None:
        """The same requests with ``store: true`` and ``store: false``."""
        for stream in (False, True):
            for at_once in (AT_ONCE, 1):
                spent: dict[bool, float] = {}
                for kept in (True, False) if number % 2 else (False, True):
                    measure = partial(self._answers, stream=stream, at_once=at_once, kept=kept)
                    values = await self.bench.quiet(measure, store.target)
                    spent[kept] = values["cpu_us"]
                case = f"{'stream' if stream else 'whole'}{at_once}"
                self.figures.add(
                    store.target.name,
                    number,
                    {
                        f"unstored_{case}_us": spent[False],
                        f"stored_{case}_us": spent[True],
                        f"stored_{case}_x": spent[True] / max(1e-9, spent[False]),
                    },
                )

    async def _answers(self, target: Target, *, stream: bool, at_once: int, kept: bool) -> Values:
        requests = self.requests(stream=stream, store=kept)
        what = f"{'stream' if stream else 'non-stream'}, store: {kept}".lower()
        return await self.cost(target, what, requests, at_once, kept=kept)

    def requests(
        self, *, stream: bool = False, store: bool = True, more: Mapping[str, Any] = _NOTHING
    ) -> list[Request]:
        return make_requests(_ANSWER, stream=stream, key=self.bench.key, store=store, more=more)

    async def cost(
        self,
        target: Target,
        what: str,
        requests: Sequence[Request],
        at_once: int,
        *,
        kept: bool | None = None,
        upstream: bool = True,
    ) -> Values:
        """CPU per request, and the time that one takes: the median.

        ``kept`` says whether the answers have to be stored afterwards, or must not be.
        """
        result, spent = await self.bench.load(
            target,
            what,
            requests,
            at_once,
            sample_every=11,
            seconds=self.bench.plan.stored_seconds,
            upstream=upstream,
        )
        if kept is not None:
            await self._check_kept(target, what, result, kept)
        return {
            "cpu_us": spent["cpu_s"] / max(1, result.answers) * 1e6,
            "ms": median(result.whole_ms),
            "foreign_share": spent["foreign_share"],
        }

    async def _check_kept(self, target: Target, what: str, result: Result, kept: bool) -> None:
        """Ask for some of the answers again."""
        checker = Checker(own_ids=False)
        for sample in result.samples[:_LOOKED_AT]:
            found = _ID.search(sample.body)
            if found is None:
                continue  # which has been noted
            status, body = await self._get(target, f"/v1/responses/{found[1].decode()}")
            if status != (200 if kept else 404):
                fault = f"a response is retrieved with status {status}"
            else:
                fault = (kept and checker.body(body, sample.request.shape)) or ""
            if fault:
                self.bench.failures[f"{target.name}, {what}: {fault}"] += 1

    async def _get(self, target: Target, path: str) -> tuple[int, bytes]:
        try:
            return await ask(("127.0.0.1", target.port), get(path, self.bench.key))
        except OSError as error:
            raise BenchError(f"{target.name}: GET {path}: {error}") from None

    async def make_chain(self, store: Store, turns: int) -> list[str]:
        """The ids of a chain of so many turns, the oldest first."""
        chain: list[str] = []
        for number in range(turns):
            body = {
                "model": Shape(_ANSWER.deltas, _ANSWER.delay_ms, number % VARIANTS).model,
                "input": _QUESTION,
                "previous_response_id": chain[-1] if chain else None,
            }
            wire = post(body, self.bench.key)
            status, answer = await ask(("127.0.0.1", store.target.port), wire)
            if status != 200:
                raise BenchError(f"{store.target.name}: turn {number} of a chain: status {status}")
            chain.append(orjson.loads(answer)["id"])
        return chain

    async def chains(self, store: Store, heads: Mapping[int, str], number: int) -> None:
        """The next turn of chains, ``heads`` by length: read by itself, and asked for."""
        values: Values = {}
        for turns, seconds in (await _read(store.url, heads)).items():
            values[f"chain{turns}_read_ms"] = seconds * 1000
        asked: dict[int, Values] = {}
        for turns in (0, *TURNS) if number % 2 else (*reversed(TURNS), 0):
            more = {"previous_response_id": heads[turns]} if turns else _NOTHING
            measure = partial(self.turn, turns=turns, requests=self.requests(more=more))
            asked[turns] = await self.bench.quiet(measure, store.target)
        for turns in TURNS:
            values[f"chain{turns}_added_ms"] = asked[turns]["ms"] - asked[0]["ms"]
            values[f"chain{turns}_us"] = asked[turns]["cpu_us"]
        values["chain_growth_us"] = (asked[200]["cpu_us"] - asked[20]["cpu_us"]) / 180
        values["chain_start_us"] = (asked[20]["cpu_us"] - asked[1]["cpu_us"]) / 19
        self.figures.add(store.target.name, number, values)

    async def turn(self, target: Target, *, turns: int, requests: Sequence[Request]) -> Values:
        return await self.cost(target, f"turn after {turns}", requests, 1)

    async def runs(self, store: Store, number: int) -> None:
        """Streams of background runs against stored streams in the foreground."""
        cases = {
            "paced": (_PACED, PACED_STREAMS),
            "unpaced": (_ANSWER, UNPACED_STREAMS),
        }
        for case, (shape, at_once) in cases.items():
            spent: dict[bool, float] = {}
            for background in (True, False) if number % 2 else (False, True):
                measure = partial(
                    self._streams, shape=shape, at_once=at_once, background=background
                )
                values = await self.bench.quiet(measure, store.target)
                spent[background] = values["cpu_us"]
            self.figures.add(
                store.target.name,
                number,
                {
                    f"foreground_{case}_us": spent[False],
                    f"background_{case}_us": spent[True],
                    f"background_{case}_x": spent[True] / max(1e-9, spent[False]),
                },
            )

    async def _streams(
        self, target: Target, *, shape: Shape, at_once: int, background: bool
    ) -> Values:
        key = self.bench.key
        more = {"background": True} if background else _NOTHING
        requests = make_requests(shape, stream=True, key=key, store=True, more=more)
        what = f"{'background' if background else 'foreground'} streams"
        result, spent = await self.bench.load(
            target, what, requests, at_once, sample_every=3, each=1, spread=0.1
        )
        return {
            "cpu_us": spent["cpu_s"] / max(1, result.events) * 1e6,
            "foreign_share": spent["foreign_share"],
        }


async def _read(url: str, heads: Mapping[int, str]) -> dict[int, float]:
    """Seconds in which the store reads each chain, in this process: the median."""
    times: dict[int, list[float]] = {turns: [] for turns in heads}
    async with opened(url) as database:
        responses = ResponseStore(database)
        for _ in range(_READS):
            for turns, head in heads.items():
                began = time.perf_counter()
                chain = await responses.history(OWNER, head)
                times[turns].append(time.perf_counter() - began)
                if chain is None or len(chain.items) != 2 * turns:
                    raise BenchError(f"a chain of {turns} turns is not read whole from {url}")
    return {turns: median(taken) for turns, taken in times.items()}
