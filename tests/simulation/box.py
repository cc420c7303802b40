"""A simulated endpoint: a machine with a speed, a memory and a prompt cache, that can fall ill."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, OrderedDict
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from math import ceil, inf
from typing import Final

from router.errors import UpstreamFailure, UpstreamRateLimited, UpstreamUnavailable
from router.settings.schema import Dialect
from tests.simulation.decoding import Decoding
from tests.simulation.line import Line
from tests.simulation.memory import Memory
from tests.simulation.trace import Request

__all__ = ["Box", "Machine", "Price"]

_WINDOW: Final = 60.0


@dataclass(frozen=True, slots=True)
class Price:
    """What an API takes, in dollars per million tokens."""

    input: float
    cached: float
    output: float


@dataclass(frozen=True, slots=True)
class Machine:
    """What an endpoint is made of.

    It reads a prompt at ``prefill`` tokens per second, ``readers`` at a time, and writes a token
    in ``step`` seconds, and ``share`` more for each other answer that it writes; reading gets
    slower by the same factor, since it shares the machine with what is being written. It works on
    ``parallel`` requests per model, the others wait inside. The prompts of ``kept`` conversations
    per model stay cached. ``latency`` is what the network takes. With ``room`` (GB) and ``disk``
    (GB/s) models have to be loaded. ``per_minute`` requests are taken at most.
    """

    name: str
    dialect: Dialect
    models: tuple[str, ...]
    limit: int
    prefill: float
    step: float
    share: float
    parallel: int
    kept: int
    readers: int = 1
    latency: float = 0.002
    room: float = inf
    disk: float = inf
    tier: int = 1
    per_minute: int | None = None
    price: Price | None = None


class Box:
    """One endpoint at run time. What it is ill with is said by the methods named for it."""

    def __init__(self, machine: Machine, sizes: Mapping[str, float], seed: int) -> None:
        self.machine = machine
        self.memory: Memory | None = None
        if machine.room < inf:
            self.memory = Memory(sizes, machine.room, machine.disk, self._evicted)
        self.down = False
        self.spent = 0.0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.answers: Counter[str] = Counter()
        self._chance = random.Random(f"{seed} {machine.name}")
        self._error_rate = 0.0
        self._limited = False
        self._slowdown = 1.0
        self._moves = asyncio.Event()
        self._moves.set()
        self._decoding = Decoding(machine.step, machine.share)
        self._reading = asyncio.Semaphore(machine.readers)
        self._places: dict[str, asyncio.Semaphore] = {}
        self._cache: dict[str, OrderedDict[int, int]] = {}
        self._lines: dict[Line, None] = {}
        self._taken: list[float] = []

    def die(self) -> None:
        """Every connection breaks, and no other can be made."""
        self.down = True
        for line in list(self._lines):
            line.cut()

    def start(self) -> None:
        """It is there again, with nothing in memory."""
        self.down = False
        self._cache.clear()
        if self.memory is not None:
            self.memory.clear()

    def stall(self) -> None:
        """It takes requests, and says nothing."""
        self._moves.clear()
        self._decoding.slow_down(inf)
        for line in list(self._lines):
            line.silent()

    def go_on(self) -> None:
        """The stall is over."""
        self._moves.set()
        self._decoding.slow_down(self._slowdown)
        for line in list(self._lines):
            line.speaks()

    def fail(self, share: float) -> None:
        """It answers so many of the requests with HTTP 500."""
        self._error_rate = share

    def slow_down(self, factor: float) -> None:
        """Everything takes so many times as long as usual."""
        self._slowdown = factor
        self._decoding.slow_down(factor)

    def limit(self, limited: bool) -> None:
        """It answers every request with HTTP 429."""
        self._limited = limited

    async def reach(self) -> None:
        """What the network takes; raises UpstreamUnavailable where nobody listens."""
        await asyncio.sleep(self.machine.latency)
        if self.down:
            raise UpstreamUnavailable("Connection refused.", again=True)

    async def load(self, model: str) -> float:
        """Bring a model into memory; the seconds that it took. Raises UpstreamError."""
        await self.reach()
        assert self.memory is not None
        began = asyncio.get_running_loop().time()
        async with self.memory.using(model):
            return asyncio.get_running_loop().time() - began

    async def answer(self, request: Request, model: str, line: Line) -> None:
        """Answer a request, or raise UpstreamError."""
        await self.reach()
        self._check_rate()
        if self._chance.random() < self._error_rate:
            raise UpstreamFailure("HTTP 500")
        self._lines[line] = None
        try:
            await line.carry(self._work(request, model, line))
        finally:
            del self._lines[line]

    async def _work(self, request: Request, model: str, line: Line) -> None:
        place = self._places.setdefault(model, asyncio.Semaphore(self.machine.parallel))
        async with self._in_memory(model), place:
            cached = await self._read(request, model)
            await self._decoding.tokens(1)
            line.output()
            self.prompt_tokens += request.prompt
            self.cached_tokens += cached
            self.answers[model] += 1
            if (price := self.machine.price) is not None:
                self.spent += (request.prompt - cached) * price.input / 1e6
                self.spent += (cached * price.cached + request.output * price.output) / 1e6
            if request.output > 1:
                await self._decoding.tokens(request.output - 1)
            self._remember(request, model, request.prompt + request.output)

    def _in_memory(self, model: str) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self.memory is None else self.memory.using(model)

    async def _read(self, request: Request, model: str) -> int:
        """Read the prompt; how many tokens of it were in the cache."""
        async with self._reading:
            await self._moves.wait()
            known = self._cached(model).get(request.conversation, 0)
            cached = min(known, request.history)
            seconds = (request.prompt - cached) / self.machine.prefill
            await asyncio.sleep(seconds * self._decoding.pace)
        self._remember(request, model, request.prompt)
        return cached

    def _cached(self, model: str) -> OrderedDict[int, int]:
        """How many tokens of which conversations are in the cache."""
        return self._cache.setdefault(model, OrderedDict())

    def _remember(self, request: Request, model: str, tokens: int) -> None:
        cache = self._cached(model)
        cache[request.conversation] = max(tokens, cache.get(request.conversation, 0))
        cache.move_to_end(request.conversation)
        while len(cache) > self.machine.kept:
            cache.popitem(last=False)

    def _evicted(self, model: str) -> None:
        self._cache.pop(model, None)

    def _check_rate(self) -> None:
        """Take one more request of this minute, or raise UpstreamRateLimited."""
        now = asyncio.get_running_loop().time()
        if self._limited:
            raise UpstreamRateLimited("HTTP 429", headers={"Retry-After": "10"})
        if self.machine.per_minute is None:
            return
        self._taken = [at for at in self._taken if at > now - _WINDOW]
        if len(self._taken) >= self.machine.per_minute:
            seconds = ceil(self._taken[0] + _WINDOW - now)
            raise UpstreamRateLimited("HTTP 429", headers={"Retry-After": str(seconds)})
        self._taken.append(now)
