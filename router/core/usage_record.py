"""One attempt, as the usage ledger keeps it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

__all__ = [
    "NANO",
    "NO_SESSION",
    "NO_TOKENS",
    "Kind",
    "Provenance",
    "Session",
    "Spent",
    "Tokens",
    "UsageRecord",
    "session_of",
    "tokens_of",
]

NANO: Final = 1_000_000_000
"""Money is counted in whole billionths of a US dollar (nano-USD): sums of it are exact."""

_MOST: Final = 10**12
"""An endpoint's number of tokens above it is no number of tokens."""


class Provenance(Enum):
    """Where a row's numbers come from: the endpoint, an estimate of ours, or an answer that was
    there already.
    """

    REPORTED = "reported"
    ESTIMATED = "estimated"
    CACHED = "cached"


class Kind(Enum):
    """Why the attempt was made; ``TURN``: to go on after tools were run. A ``CACHE`` row is an
    answer from the cache: nobody was asked. A ``TOOL`` row is a call of a tool that the router ran.
    An ``INDEX`` row is a request for embeddings of a vector store's files, or of a search in them.
    """

    FIRST = "first"
    RETRY = "retry"
    FALLBACK = "fallback"
    HEDGE = "hedge"
    CACHE = "cache"
    TURN = "turn"
    TOOL = "tool"
    INDEX = "index"


class Tokens(NamedTuple):
    """Token counts; ``cached`` is part of ``input``, ``reasoning`` of ``output``."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        """Input and output together."""
        return self.input + self.output


NO_TOKENS: Final = Tokens()


class Session(NamedTuple):
    """Which of a client's sessions a request is of, and which of the agents in it asks, on behalf
    of which other one; '' where the client does not say.
    """

    id: str = ""
    agent: str = ""
    parent: str = ""


NO_SESSION: Final = Session()

_NAME: Final = re.compile(r"[A-Za-z0-9._:/@=+-]{1,128}")
_SESSION: Final = (
    "x-claude-code-session-id",
    "session-id",  # Codex, and earlier versions of it
    "session_id",
    "conversation_id",
    "x-openwebui-chat-id",
)
_AGENT: Final = ("x-claude-code-agent-id", "thread-id")
_PARENT: Final = ("x-claude-code-parent-agent-id", "x-codex-parent-thread-id")


def session_of(headers: Mapping[str, str], body: Mapping[str, Any]) -> Session:
    """What a client's headers say of its session; without such a header ``prompt_cache_key`` in the
    body names it. What does not look like a name of up to 128 characters is none.
    """
    given = body.get("prompt_cache_key")
    for name in _SESSION:
        if name in headers:
            given = headers[name]
            break
    if given is None or not (ident := _named(given)):
        return NO_SESSION
    agent = _first(headers, _AGENT)
    return Session(ident, "" if agent == ident else agent, _first(headers, _PARENT))


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((_named(headers[name]) for name in names if name in headers), "")


def _named(value: Any) -> str:
    return value if isinstance(value, str) and _NAME.fullmatch(value) else ""


@dataclass(slots=True)
class UsageRecord:
    """One attempt.

    ``id`` is its own and never another's: a row that is written twice counts once. ``at`` is when
    the attempt began, in Unix time. ``key`` is the name of the caller's key and ``tags`` are its
    tags, ``model`` the model that was asked for and ``served`` the one that answered, both by the
    client's name for it. ``cost`` is in nano-USD, None where no price is known; for a row of the
    cache tokens and cost are what was saved, for one of a tool ``served`` is the tool's name, and
    ``request`` is a file's id where the router embedded that in the background.
    ``duration`` and ``first_token`` are in seconds.
    ``outcome`` is ``ok``, ``failed``, ``cancelled`` or ``refused`` (by the endpoint), ``error`` a
    code.
    """

    id: str
    at: float
    request: str
    key: str
    tags: tuple[str, ...]
    operation: str
    kind: Kind
    model: str
    served: str
    endpoint: str
    tokens: Tokens
    cost: int | None
    duration: float
    first_token: float | None
    outcome: str
    error: str | None
    provenance: Provenance
    response: str | None
    stream: bool
    session: Session = NO_SESSION

    def values(self) -> tuple[str | int | float | None, ...]:
        """What the ledger keeps, in the order of ``router.state.usage.COLUMNS``. The same tags are
        the same text, whatever their order.
        """
        return (
            self.id,
            self.at,
            self.request,
            self.key,
            f",{','.join(sorted(set(self.tags)))}," if self.tags else "",
            self.operation,
            self.kind._value_,
            self.model,
            self.served,
            self.endpoint,
            *self.tokens,
            self.cost,
            self.duration,
            self.first_token,
            self.outcome,
            self.error,
            self.provenance._value_,
            self.response,
            int(self.stream),
            *self.session,
        )


@dataclass(slots=True)
class Spent:
    """What an exchange has come to so far. ``unpriced`` counts attempts that used tokens and have
    no price; ``seconds`` is how long endpoints were waited for, two at once counted once.
    """

    tokens: Tokens = NO_TOKENS
    cost: int = 0
    unpriced: int = 0
    seconds: float = 0.0
    _until: float = 0.0

    def add(self, record: UsageRecord) -> None:
        """Count an attempt."""
        began, tokens = record.at, record.tokens
        end = began + record.duration
        if end > self._until:
            self.seconds += end - (began if began > self._until else self._until)
            self._until = end
        if self.tokens is NO_TOKENS:
            self.tokens = tokens
        else:
            self.tokens = Tokens(*map(sum, zip(self.tokens, tokens, strict=True)))
        if record.cost is not None:
            self.cost += record.cost
        elif tokens.input or tokens.output:
            self.unpriced += 1


def tokens_of(usage: dict[str, Any] | None) -> Tokens:
    """The counts of a Responses ``usage`` object; an endpoint's numbers are whatever it sent."""
    if usage is None:
        return NO_TOKENS
    read, written = usage.get("input_tokens_details"), usage.get("output_tokens_details")
    inputs, outputs = usage.get("input_tokens"), usage.get("output_tokens")
    cached = read.get("cached_tokens") if type(read) is dict else 0
    reasoning = written.get("reasoning_tokens") if type(written) is dict else 0
    counts: tuple[Any, Any, Any, Any] = (inputs, cached, outputs, reasoning)
    for count in counts:
        if type(count) is not int or not 0 <= count <= _MOST:
            return Tokens(*map(_number, counts))
    return Tokens(*counts)


def _number(count: Any) -> int:
    return count if type(count) is int and 0 <= count <= _MOST else 0
