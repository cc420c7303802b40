"""Where one request may be sent: its plan, the fallback models, and its place in the queue.

``Plan`` has the deployments that can and may serve it, as far as that is known before and between
its attempts. ``Fallbacks`` names the models that stand in for one that cannot be served.

``Queue`` stands in front of the slots: bounded, fair, with a deadline. A slot that is given back
goes straight to a waiter that can use it, so that nobody who came later overtakes. Callers take
turns: the slot goes to the one who was served longest ago, so that a caller's hundredth request
waits behind the first of another (fair queueing by round-robin, Nagle 1985, RFC 970). Of one
caller, the order is that of arrival. Callers of a lower ``rank`` go first, as long as there are
any.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from math import inf
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from router.balance.capability import Unmet, missing_features, needs, too_long
from router.balance.overflow import CONTEXT_EXCEEDED
from router.core.exchange import Exchange
from router.core.key import Key
from router.dialects.responses.sealing import unseal
from router.endpoints.deployment import Deployment
from router.endpoints.registry import Group
from router.errors import InvalidRequest, no_access
from router.response.tokens import estimate_tokens, longest_prompt_chars
from router.settings.fallbacks import FallbackSettings
from router.settings.model_names import Patterns, by_either_name

__all__ = [
    "LACKS_CONTEXT",
    "LACKS_FEATURE",
    "Fallbacks",
    "Plan",
    "Queue",
    "QueueFull",
    "QueueTimeout",
    "Ticket",
    "able",
    "issuers",
    "reached",
]

LACKS_FEATURE: Final = "unsupported_feature"
LACKS_CONTEXT: Final = CONTEXT_EXCEEDED

_SURE: Final = 0.8
"""What of an estimate of tokens is sure: text of more than five characters to a token is rare."""


class Plan:
    """The candidates for one request and one model.

    ``tried`` are those that failed it. ``exchange`` has the request, where the plan is to follow
    changes of who serves the model, ``key`` is the caller's, where it has one. ``preferred`` are
    wanted first, with at most ``bound`` more load than the least loaded; ``prints`` are what the
    request is recognised by the next time. With ``probes`` it may try a half-open breaker,
    ``desperate`` it goes to what is known to be sick where nothing else is left. ``corrected``: the
    last refusal told another context of its model than was known. ``loaded_by`` is until when the
    request waits for what endpoints load of their own accord, on the monotonic clock; None: it does
    not yet.
    """

    preferred: Sequence[Deployment] = ()
    bound = inf
    prints: Sequence[bytes] = ()
    probes = True
    desperate = True
    corrected = False
    loaded_by: float | None = None

    def __init__(
        self,
        group: Group,
        deployments: Sequence[Deployment],
        caller: str,
        exchange: Exchange | None = None,
        key: Key | None = None,
    ) -> None:
        self.group = group
        self.deployments = deployments
        self.caller = caller
        self.exchange = exchange
        self.key = key
        self.tried: list[Deployment] = []
        self._dropped: Sequence[Deployment] = ()

    @property
    def left(self) -> Sequence[Deployment]:
        """Where it has not been tried."""
        return [deployment for deployment in self.deployments if deployment not in self.tried]

    def drop(self, deployment: Deployment) -> None:
        """This one cannot serve it."""
        self._dropped = (*self._dropped, deployment)
        self.deployments = [other for other in self.deployments if other is not deployment]

    def follow(self, group: Group) -> None:
        """Others serve the model now; raises InvalidRequest where none of them can serve this."""
        if self.exchange is not None:
            deployments = able(group, self.exchange, truncates=self.exchange.truncates)
            self.deployments = [
                deployment for deployment in deployments if deployment not in self._dropped
            ]
            self.group = group


def reached(group: Group, key: Key | None) -> Sequence[Deployment]:
    """Those of a group that may serve a key; raises ModelNotFound where there is none."""
    if key is None or key.endpoints is None:
        return group.deployments
    deployments = [
        deployment for deployment in group.deployments if key.may_reach(deployment.endpoint.name)
    ]
    if not deployments:
        raise no_access(group.model)
    return deployments


def able(group: Group, exchange: Exchange, *, truncates: bool) -> Sequence[Deployment]:
    """Those of a group that can, and may, serve a request. One that ``truncates`` goes where it
    fits whole, and where it fits nowhere, to any of them.

    A prompt is held against the context by its characters alone: what a model was seen to add to
    others may be more than it adds to this one, which would then be refused although it fits.

    Raises InvalidRequest, naming what is missing, and ModelNotFound.
    """
    key = exchange.context.key
    deployments = reached(group, key)
    if group.lacks and (needed := needs(exchange.responses_body, group.lacks)):
        deployments = [deployment for deployment in deployments if not deployment.lacks & needed]
        if not deployments:
            lacks = [deployment.lacks for deployment in reached(group, key)]
            unmet = missing_features(group.model, needed, lacks)
            raise _refusal(exchange, unmet, LACKS_FEATURE)
    if group.contexts:
        size = int(estimate_tokens(longest_prompt_chars(exchange.body)) * _SURE)
        fitting = [t for t in deployments if t.context is None or size <= t.context]
        if not fitting and truncates:
            return deployments
        if not fitting:
            largest = max(t.context or 0 for t in deployments)
            unmet = too_long(exchange.responses_body, group.model, size, largest)
            raise _refusal(exchange, unmet, LACKS_CONTEXT)
        deployments = fitting
    return deployments


def _refusal(exchange: Exchange, unmet: Unmet, code: str) -> InvalidRequest:
    return InvalidRequest(unmet.message, code=code, param=exchange.named(unmet.param))


def issuers(group: Group, body: dict[str, Any]) -> Sequence[Deployment]:
    """The deployments whose account issued encrypted reasoning that a request brings back."""
    items = body.get("input")
    if not isinstance(items, list):
        return ()
    for item in reversed(items):
        blob = item.get("encrypted_content") if isinstance(item, dict) else None
        if isinstance(blob, str) and (account := unseal(blob)[0]) is not None:
            return [t for t in group.deployments if t.endpoint.account == account]
    return ()


class Fallbacks:
    """The configured fallbacks. A model's own name counts for more than a pattern that fits it."""

    def __init__(self, given: Mapping[str, FallbackSettings]) -> None:
        self._named = by_either_name(given)
        self._patterns = Patterns(given)

    def has(self, model: str) -> bool:
        """Whether there are any for this model."""
        return self._find(model) is not None

    def of(self, model: str, key: Key | None) -> tuple[str, Sequence[str]]:
        """The name or pattern that a model's fallbacks are configured by, and those of them that
        may stand in for it when ``key`` asks; None is nobody in particular.
        """
        found = self._find(model)
        if found is None:
            return model, ()
        name, fallback = found
        others = [other for other in fallback.models if other != model]
        if key is not None and fallback.for_keys == "allowed":
            others = [other for other in others if key.may_use(other)]
        return name, others

    def _find(self, model: str) -> tuple[str, FallbackSettings] | None:
        named = self._named.get(model)
        return self._patterns.find(model) if named is None else (model, named)


S = TypeVar("S")

_MAX_CALLERS: Final = 1024


class QueueFull(Exception):
    """As many wait as may."""


class QueueTimeout(Exception):
    """No slot came in time."""


class Ticket(Generic[S]):
    """A place in the queue, kept when its holder looks around and comes back.

    ``slots`` are those that its holder can use, ``granted`` the one that it got.
    """

    __slots__ = ("caller", "due", "granted", "number", "rank", "slots", "woken")

    woken: asyncio.Future[None]

    def __init__(self, caller: str, number: int, due: float, rank: int) -> None:
        self.caller = caller
        self.rank = rank
        self.number = number
        self.due = due
        self.slots: frozenset[S] = frozenset()
        self.granted: S | None = None


class Queue(Generic[S]):
    """Requests that wait for one of several slots: ``waiting``, ``size`` of them at most.

    ``give_back`` gets the slot of a waiter that was cancelled with it already in hand.
    """

    def __init__(self, size: int, give_back: Callable[[S], None]) -> None:
        self.size = size
        self._give_back = give_back
        self.waiting: list[Ticket[S]] = []
        self._arrivals = count()
        self._turns = count(1)
        self._turn: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.waiting)

    def ticket(self, caller: str, seconds: float, rank: int = 1) -> Ticket[S]:
        """A place for this caller, good for so many seconds; raises QueueFull."""
        if len(self.waiting) >= self.size:
            raise QueueFull
        due = asyncio.get_running_loop().time() + seconds
        return Ticket(caller, next(self._arrivals), due, rank)

    async def wait(self, ticket: Ticket[S], slots: Iterable[S]) -> S | None:
        """Wait for one of these slots; None when it is time to look around again.

        The slot has been taken by whoever offered it. Raises QueueTimeout.
        """
        ticket.woken = woken = asyncio.get_running_loop().create_future()
        ticket.slots = frozenset(slots)
        insort(self.waiting, ticket, key=_NUMBER)
        try:
            async with asyncio.timeout_at(ticket.due):
                await woken
        except TimeoutError:
            if woken.cancelled():
                raise QueueTimeout from None
        except asyncio.CancelledError:
            if ticket.granted is not None:
                self._give_back(ticket.granted)
            raise
        finally:
            if ticket in self.waiting:
                self.waiting.remove(ticket)
        return ticket.granted

    def offer(self, slot: S) -> bool:
        """Hand a slot to the waiter whose turn it is; False when there is none that can use it."""
        first, next_in_turn = None, (inf, inf)
        for ticket in self.waiting:
            if slot in ticket.slots and not ticket.woken.cancelled():
                turn = (ticket.rank, self._turn.get(ticket.caller, 0))
                if turn < next_in_turn:
                    first, next_in_turn = ticket, turn
        if first is None:
            return False
        self.waiting.remove(first)
        self.served(first)
        first.granted = slot
        if not first.woken.done():
            first.woken.set_result(None)
        return True

    def served(self, ticket: Ticket[S]) -> None:
        """The holder of this ticket has got a slot: it is the turn of other callers."""
        self._turn.pop(ticket.caller, None)
        self._turn[ticket.caller] = next(self._turns)
        if len(self._turn) > _MAX_CALLERS:
            del self._turn[next(iter(self._turn))]

    def look_again(self) -> None:
        """Have everybody look around, in turn: something has changed."""
        before: Counter[str] = Counter()
        order = []
        for ticket in self.waiting:
            caller = ticket.caller
            turn = self._turn.get(caller, 0)
            order.append((ticket.rank, before[caller], turn, ticket.number, ticket))
            before[caller] += 1
        for *_, ticket in sorted(order):
            if not ticket.woken.done():
                ticket.woken.set_result(None)


_NUMBER: Final = attrgetter("number")
