"""The fleet that is simulated, what is asked of it, and what befalls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.simulation.box import Box, Machine, Price

__all__ = ["FAULTS", "FLEET", "MODELS", "RATE", "SIZES", "Fault"]

MODELS: Final[Mapping[str, float]] = {
    "general": 0.75, "coder": 0.12, "writer": 0.06, "vision": 0.045, "small": 0.025,
}  # fmt: skip
"""The models, and their shares of the conversations: few get most, as in Zipf's law."""

SIZES: Final[Mapping[str, float]] = {
    "general": 18.0, "coder": 12.0, "writer": 14.0, "vision": 9.0, "small": 5.0,
}  # fmt: skip
"""What they take in memory, in GB."""

RATE: Final = 3.0
"""Requests per second, on the average."""

_OWN: Final = ("coder", "writer", "vision", "small")

FLEET: Final = (
    Machine(
        "vllm-a", "chat", ("general",), limit=64, parallel=128, kept=400,
        prefill=12_000, step=0.020, share=0.0008,
    ),
    Machine(
        "vllm-b", "chat", ("general",), limit=32, parallel=64, kept=200,
        prefill=5_000, step=0.035, share=0.0020,
    ),
    Machine(
        "spark", "chat", ("general",), limit=16, parallel=32, kept=50,
        prefill=1_500, step=0.045, share=0.0040,
    ),
    Machine(
        "ollama-a", "ollama", ("general", *_OWN), limit=4, parallel=4, kept=4,
        prefill=3_000, step=0.015, share=0.0030, room=24.0, disk=1.6,
    ),
    Machine(
        "ollama-b", "ollama", _OWN, limit=4, parallel=4, kept=4,
        prefill=1_800, step=0.022, share=0.0050, room=24.0, disk=1.0,
    ),
    Machine(
        "ollama-c", "ollama", _OWN, limit=4, parallel=4, kept=4,
        prefill=600, step=0.035, share=0.0080, room=32.0, disk=0.4,
    ),
    Machine(
        "api", "chat", ("general", "coder"), limit=32, parallel=1_000, kept=1_000,
        prefill=15_000, step=0.014, share=0.0, readers=1_000, latency=0.35,
        tier=2, per_minute=90, price=Price(input=2.5, cached=1.25, output=10.0),
    ),
)  # fmt: skip
"""Three machines that always have their model in memory, of very different speed; three that have
to load theirs and have room for two or three of them; and a paid API that limits its rate.
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """What befalls an endpoint, from and until shares of the run."""

    name: str
    endpoint: str
    begins: float
    ends: float
    begin: Callable[[Box], None]
    end: Callable[[Box], None]


FAULTS: Final = (
    Fault("dies", "vllm-b", 0.20, 0.235, Box.die, Box.start),
    Fault("stalls", "ollama-b", 0.38, 0.415, Box.stall, Box.go_on),
    Fault("slows", "vllm-b", 0.55, 0.62, lambda b: b.slow_down(5.0), lambda b: b.slow_down(1.0)),
    Fault("fails", "vllm-a", 0.76, 0.81, lambda b: b.fail(0.3), lambda b: b.fail(0.0)),
    Fault("limits", "api", 0.90, 0.95, lambda b: b.limit(True), lambda b: b.limit(False)),
)
"""In an hour: one is dead for two minutes and one stalls as long, one takes five times as long for
four minutes, the largest answers 500 to 30 % for three, and the API 429 to everything for three.
"""
