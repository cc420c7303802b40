"""An exact hit through the whole router, beside a miss: requests per second and CPU."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import Any, Final

import orjson

from .bodies import Request, make_requests, taken, wire
from .cache_report import Findings
from .cache_setup import Workshop
from .check import Checker
from .measure import Target
from .shapes import Shape

__all__ = ["CompletionsChecker", "Told", "as_completions", "door", "numbered"]

AT_ONCE: Final = 64
STREAMS_AT_ONCE: Final = 32
SURFACES: Final = ("native", "chat", "completions")
"""Responses through a ``responses`` endpoint, through a ``chat`` endpoint, and Chat Completions
through a ``chat`` endpoint.
"""

_ON_BOTH: Final = ("model", "stream", "temperature", "top_p")
_SETTLE: Final = 0.5


class Told(Shape):
    """An answer that may be told in other pieces than the mock's: what counts is the text."""

    __slots__ = ()

    @property
    def events(self) -> int:
        return 3


class CompletionsChecker(Checker):
    """Checks answers in the form of Chat Completions."""

    def __init__(self) -> None:
        super().__init__(own_ids=True)

    def stream(self, body: bytes, shape: Shape) -> str | None:
        """See ``Checker.stream``."""
        frames = [frame.removeprefix(b"data: ") for frame in body.split(b"\n\n") if frame]
        if frames[-1:] != [b"[DONE]"]:
            return "the stream does not end with [DONE]"
        chunks = [orjson.loads(frame) for frame in frames[:-1]]
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        text = "".join(delta.get("content") or "" for delta in deltas)
        return None if text == shape.text else f"the deltas make another text: {text[:60]!r}"

    def body(self, body: bytes, shape: Shape) -> str | None:
        """See ``Checker.body``."""
        try:
            text = orjson.loads(body)["choices"][0]["message"]["content"]
        except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
            return f"the body is no completion: {body[:60]!r}"
        return None if text == shape.text else f"another text: {str(text)[:60]!r}"


def numbered(requests: Sequence[Request], numbers: Iterator[int], wanted: int) -> list[Request]:
    """So many requests like these, that all ask something else: each has a number of its own."""
    parts = [(taken(request), request) for request in requests]
    made = []
    for place in range(wanted):
        (path, head, body), request = parts[place % len(parts)]
        more = {**body, "max_output_tokens": next(numbers)}
        if path.endswith("/completions"):
            more["max_completion_tokens"] = more.pop("max_output_tokens")
        made.append(Request(wire(path, head, more), request.shape, request.stream))
    return made


def as_completions(request: Request) -> Request:
    """The same asked as Chat Completions; what has to do with tools is left out."""
    _, head, body = taken(request)
    asked = body["input"]
    messages = [{"role": "system", "content": body.get("instructions", "Be brief.")}]
    turns = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    for turn in turns:
        if "role" in turn:
            content = turn["content"]
            if not isinstance(content, str):
                content = "\n".join(part["text"] for part in content)
            messages.append({"role": turn["role"], "content": content})
    kept: dict[str, Any] = {name: body[name] for name in _ON_BOTH if name in body}
    asked_again = wire("/v1/chat/completions", head, {**kept, "messages": messages})
    return Request(asked_again, request.shape, request.stream)


@dataclass(slots=True)
class _Door:
    """The routers of one surface: ``off`` without a cache, ``on`` by kind of store."""

    shop: Workshop
    surface: str
    off: Target
    on: dict[str, Target]
    numbers: Iterator[int]

    def requests(self, stream: bool) -> list[Request]:
        made = [
            Request(one.wire, Told(one.shape.deltas, 0, one.shape.variant), one.stream)
            for one in make_requests(Shape(64, 0), stream=stream, key=self.shop.bench.key)
        ]
        return list(map(as_completions, made)) if self.surface == "completions" else made

    async def prime(self) -> None:
        """Have every answer kept, and everything loaded that is loaded lazily."""
        for target in (self.off, *self.on.values()):
            for stream in (False, True):
                load = self.shop.bench.load
                asked = self.requests(stream)
                await load(target, "priming", asked, 8, sample_every=1, each=8, upstream=False)
            if target is not self.off:
                await asyncio.sleep(_SETTLE)

    async def one(self, target: Target, *, stream: bool, new: bool) -> dict[str, float]:
        """One load: requests/s, CPU in microseconds per request."""
        shop = self.shop
        plan = shop.bench.plan
        requests = self.requests(stream)
        if new:
            requests = numbered(requests, self.numbers, int(4000 * plan.whole_seconds) + 500)
        misses = new or target is self.off
        calls = await shop.calls(target)
        result, spent = await shop.bench.load(
            target,
            f"{self.surface}, {'stream' if stream else 'whole'}, {'miss' if misses else 'hit'}",
            requests,
            STREAMS_AT_ONCE if stream else AT_ONCE,
            sample_every=11,
            seconds=plan.whole_seconds,
            upstream=misses,
        )
        if not misses and (made := await shop.calls(target) - calls):
            shop.bench.failures[f"{target.name}: {made} hits were asked upstream"] += made
        if new and result.answers > len(requests):
            shop.bench.failures[f"{target.name}: requests were asked twice"] += 1
        shop.bench.foreign_shares.append(spent["foreign_share"])
        return {
            "per_s": result.answers / result.seconds,
            "cpu_us": spent["cpu_s"] / max(1, result.answers) * 1e6,
        }


async def door(shop: Workshop) -> None:
    """Measure every surface; adds to the findings."""
    numbers = count(1)
    for surface in SURFACES:
        stores = await shop.stores()
        dialect = "responses" if surface == "native" else "chat"
        off = await shop.router(f"{surface}-off", dialect, None, _checker(surface))
        on = {}
        for kind, url in stores.items():
            section = {"mode": "always", "store": url}
            on[kind] = await shop.router(f"{surface}-{kind}", dialect, section, _checker(surface))
        here = _Door(shop, surface, off, on, numbers)
        shop.say(f"door: {surface}")
        await here.prime()
        for stream in (False, True):
            _tell(shop.findings, here, await _rounds(here, stream), stream)
        shop.stop(off, *on.values())


def _checker(surface: str) -> Checker:
    return CompletionsChecker() if surface == "completions" else Checker(own_ids=True)


Values = dict[tuple[str, str], list[dict[str, float]]]
"""By (store or ``off``, ``hit`` or ``miss``): the rounds."""


async def _rounds(here: _Door, stream: bool) -> Values:
    """Everything in turn, and in the opposite order: a machine drifts."""
    order: list[tuple[str, str]] = [("off", "miss")]
    order += [(kind, what) for what in ("hit", "miss") for kind in here.on]
    values: Values = {each: [] for each in order}
    for number in range(2 * here.shop.rounds):
        for kind, what in order if number % 2 else order[::-1]:
            target = here.on.get(kind, here.off)
            new = what == "miss" and kind != "off"
            values[kind, what].append(await here.one(target, stream=stream, new=new))
    return values


def _tell(findings: Findings, here: _Door, values: Values, stream: bool) -> None:
    part = f"{here.surface}, {'streamed' if stream else 'not streamed'}"
    base = values["off", "miss"]
    findings.add(part, "miss, cache off", [v["per_s"] for v in base], "requests/s")
    findings.add(part, "  CPU", [v["cpu_us"] for v in base], "us/request")
    for (kind, what), rounds in values.items():
        if kind == "off":
            continue
        title = f"{what}, {kind}"
        times = [v["per_s"] / b["per_s"] for v, b in zip(rounds, base, strict=True)]
        cpu = [v["cpu_us"] / b["cpu_us"] for v, b in zip(rounds, base, strict=True)]
        note = f"{median(v['per_s'] for v in rounds):,.0f} requests/s"
        least = 1.5 if what == "hit" else None
        findings.add(part, f"{title}: requests/s", times, "x off", at_least=least, note=note)
        note = f"{median(v['cpu_us'] for v in rounds):,.0f} us"
        findings.add(part, f"{title}: CPU per request", cpu, "x off", note=note)
