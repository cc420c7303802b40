"""What is known of a run. Times are of ``time.monotonic``, which all processes share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tests.chaos.faults import Fault

__all__ = [
    "Api",
    "Arrival",
    "Episode",
    "Evidence",
    "Limits",
    "Outcome",
    "Record",
    "Reload",
]

Api = Literal["responses", "chat"]

Outcome = Literal["ok", "refused", "cut", "left", "mute", "lost", "hung"]
"""How a request ended for its client: well; with an error before any output; with an error event
after output; because the client left; without a last event; by a broken connection; not at all."""


@dataclass(slots=True)
class Record:
    """One request of a client.

    ``first_output`` and ``ended`` are infinite until they happen. ``silence`` is the longest time
    without an event after the first output, in seconds. ``endpoint`` and ``attempts`` are what
    the answer's headers say; ``faults`` are what was wrong with the answer itself. A client that
    does not wait for the end ``leaves`` after so many seconds.
    """

    number: int
    api: Api
    stream: bool
    model: str
    started: float
    leaves: float | None = None
    first_output: float = float("inf")
    ended: float = float("inf")
    status: int = 0
    outcome: Outcome = "hung"
    error: str = ""
    silence: float = 0.0
    endpoint: str = ""
    attempts: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        what = f"request {self.number} ({self.api}{', stream' * self.stream}, {self.model})"
        took = f"{self.ended - self.started:.2f} s, {self.attempts} attempts, at {self.endpoint}"
        return f"{what}: {self.outcome}, HTTP {self.status}, {took}: {self.error}"


@dataclass(slots=True)
class Arrival:
    """A generation request that came to a backend; ``request`` is the number of its record.

    ``ended`` stays infinite when the backend was killed meanwhile. ``how`` it ended: ``whole``,
    ``left`` by the router, ``error``, ``limit`` or ``reset``.
    """

    box: str
    at: float
    model: str
    request: int | None
    ended: float = float("inf")
    how: str = ""


@dataclass(slots=True)
class Episode:
    """A time of sickness: all that comes to ``box`` between ``began`` and ``ended`` meets it.

    ``fault`` is None where the process was killed; it is well again, for sure, from ``well`` on.
    """

    box: str
    fault: Fault | None
    began: float
    ended: float = float("inf")
    well: float = float("inf")

    @property
    def cuts(self) -> bool:
        """Whether answers ended in the middle."""
        return self.fault is None or self.fault.cuts

    def __str__(self) -> str:
        return f"{self.box} ({self.fault or 'killed'})"


@dataclass(frozen=True, slots=True)
class Reload:
    """The router was told to reload; from then on it has these endpoints."""

    at: float
    endpoints: frozenset[str]


@dataclass(frozen=True, slots=True)
class Limits:
    """The configured limits that what was seen is held to. Seconds, but for the attempts."""

    connect: float
    first_byte: float
    idle: float
    total: float
    queue_timeout: float
    max_attempts: int
    open_seconds: float
    max_open_seconds: float
    slow_start: float


@dataclass(slots=True)
class Evidence:
    """All of it. ``boxes`` are the backends that the router has from its start to its end;
    ``left`` is what should have been nothing in the end.
    """

    limits: Limits
    boxes: tuple[str, ...]
    began: float = 0.0
    ended: float = 0.0
    records: list[Record] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)
    reloads: list[Reload] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
