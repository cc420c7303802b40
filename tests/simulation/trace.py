"""Arrivals as they are recorded in front of chat services, made from a seed.

What published traces (Azure's LLM inference traces, BurstGPT) have in common: the load follows
the day, conversations begin in bursts (gaps of a gamma distribution with a coefficient of
variation well above 1), prompts and answers have lognormal lengths, few models get most of the
requests, and a conversation sends its whole history again with every turn.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Request", "make_trace"]

_BURSTINESS: Final = 0.25
"""The shape of the gamma distribution of the gaps: their coefficient of variation is 2."""

_MORE_TURNS: Final = 0.6
_MAX_TURNS: Final = 12
_MEAN_TURNS: Final = (1 - _MORE_TURNS**_MAX_TURNS) / (1 - _MORE_TURNS)
_CALLERS: Final = 20


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a trace: ``at`` in seconds, lengths in tokens.

    ``history`` is what of ``prompt`` was in the turn before, its answer included.
    """

    at: float
    conversation: int
    turn: int
    caller: str
    model: str
    prompt: int
    history: int
    output: int
    body: Mapping[str, Any]


def make_trace(
    seed: int, minutes: float, rate: float, shares: Mapping[str, float]
) -> list[Request]:
    """About ``rate`` requests per second, in the order of their arrival.

    ``shares`` are the models' shares of the conversations. One day's wave, lowest at both ends,
    is pressed into the minutes.
    """
    chance = random.Random(seed)
    seconds = minutes * 60.0
    models, weights = list(shares), list(shares.values())
    requests: list[Request] = []
    at, conversation = 0.0, 0
    while True:
        starts = rate / _MEAN_TURNS * (1.0 - 0.5 * math.cos(2.0 * math.pi * at / seconds))
        at += chance.gammavariate(_BURSTINESS, 1.0 / _BURSTINESS) / starts
        if at >= seconds:
            break
        conversation += 1
        model = chance.choices(models, weights)[0]
        turns = _conversation(chance, at, conversation, model)
        requests += (turn for turn in turns if turn.at < seconds)
    requests.sort(key=lambda request: (request.at, request.conversation, request.turn))
    return requests


def _conversation(
    chance: random.Random, at: float, conversation: int, model: str
) -> Iterator[Request]:
    caller = f"caller-{int(_CALLERS * chance.random() ** 2)}"
    said: list[dict[str, str]] = []
    history = 0
    prompt = _tokens(chance, 450, 1.0)
    for turn in range(_MAX_TURNS):
        output = _tokens(chance, 150, 0.9)
        said.append({"role": "user", "content": f"question {conversation}.{turn}"})
        body = {"model": model, "stream": True, "input": list(said)}
        yield Request(at, conversation, turn, caller, model, prompt, history, output, body)
        if chance.random() >= _MORE_TURNS:
            return
        said.append({"role": "assistant", "content": f"answer {conversation}.{turn}"})
        history = prompt + output
        prompt = history + _tokens(chance, 90, 1.0)
        # As it was recorded: the answer was read, and then the next question was written.
        at += 0.04 * output + chance.lognormvariate(math.log(15.0), 0.8)


def _tokens(chance: random.Random, median: float, sigma: float) -> int:
    return min(max(int(chance.lognormvariate(math.log(median), sigma)), 4), 8000)
