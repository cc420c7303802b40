"""What choosing an endpoint costs.

    python -m tests.bench.selection [--rounds N]

For each policy and number of candidates, in microseconds of CPU time, the least of the rounds:

- ``choose``: choose, take a slot, give it back; half as many requests are in flight as there are
  candidates. ``sick``: the same while every third of them has an open breaker.
- ``request``: all that a request has to do with it: the plan, the choice, the news that it was
  answered, the slot given back. ``affinity``: the same for a conversation of some turns that is
  recognised.

``fingerprints`` alone are in the last line, and do not depend on the candidates.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, get_args

from router.balance.affinity import fingerprints
from router.core.exchange import Exchange
from router.endpoints.plan import Plan
from router.endpoints.selector import SlotReservation
from router.settings.schema import PolicyName
from tests.support.depot import Depot, asking, backend

__all__ = ["main"]

COUNTS: Final = (1, 8, 100, 500)
GOALS: Final = {8: 20.0, 500: 200.0}
"""What ``choose`` may cost at most."""

_TURNS: Final = 10
_SECONDS: Final = 0.02
"""So long is one round of one measurement."""


def main() -> None:
    """Measure everything and print a table."""
    parser = argparse.ArgumentParser(description="What choosing an endpoint costs.")
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    columns = ("choose", "sick", "request", "affinity")
    print(f"{'policy':14}{'candidates':>11}" + "".join(f"{name:>10}" for name in columns))
    for policy in get_args(PolicyName):
        for count in COUNTS:
            costs = [
                best(rounds, choosing(fleet(policy, count))),
                best(rounds, choosing(fleet(policy, count, sick=True))),
                best(rounds, requesting(fleet(policy, count, affinity=0.0))),
                best(rounds, requesting(fleet(policy, count))),
            ]
            missed = costs[0] > GOALS.get(count, costs[0]) or costs[1] > GOALS.get(count, costs[1])
            shown = "".join(f"{cost:10.1f}" for cost in costs)
            print(f"{policy:14}{count:11}{shown}{'  misses its goal' if missed else ''}")
    body = conversation().body
    print(f"fingerprints of {2 * _TURNS + 1} messages: ", end="")
    print(f"{best(rounds, lambda: fingerprints(body)):.1f}")


def best(rounds: int, work: Callable[[], object]) -> float:
    """The least CPU time of one call, in microseconds."""
    work()
    calls, spent = 1, 0.0
    while spent < _SECONDS:
        calls *= 2
        spent = cpu_seconds(work, calls)
    return min(cpu_seconds(work, calls) for _ in range(rounds)) / calls * 1e6


def cpu_seconds(work: Callable[[], object], calls: int) -> float:
    began = time.thread_time()
    for _ in range(calls):
        work()
    return time.thread_time() - began


def conversation() -> Exchange:
    """A request that resends its history."""
    history = []
    for turn in range(_TURNS):
        history.append({"role": "user", "content": f"Question {turn}: " + "why is that? " * 20})
        history.append({"role": "assistant", "content": f"Answer {turn}: " + "because. " * 200})
    return asking(input=[*history, {"role": "user", "content": "And then?"}])


def fleet(policy: PolicyName, count: int, *, sick: bool = False, **balance: Any) -> Depot:
    """So many endpoints of the model ``m``; with ``sick``, every third has an open breaker."""
    backends = (backend(f"e{number}", "m", priority=1 + number % 2) for number in range(count))
    depot = Depot(*backends, policy=policy, breaker={"open_seconds": 3600}, **balance)
    for endpoint in depot.registry.endpoints[2::3] if sick else ():
        for _ in range(9):
            endpoint.deployment("m").failed(time.monotonic())
    return depot


def plan_of(depot: Depot, exchange: Exchange) -> Plan:
    group = depot.registry.find(exchange.model or "")
    assert group is not None
    return depot.selector.plan(group, exchange)


def choosing(depot: Depot) -> Callable[[], object]:
    """A choice among what is there, with others in flight."""
    selector = depot.selector
    plan = plan_of(depot, asking())
    under_way: deque[SlotReservation] = deque()
    for _ in range(len(plan.deployments) // 2):
        under_way.append(taken(depot, plan))

    def work() -> None:
        under_way.append(taken(depot, plan))
        selector.release(under_way.popleft())

    return work


def requesting(depot: Depot) -> Callable[[], object]:
    """All that one request of a conversation has to do with the choice."""
    selector = depot.selector
    exchange = conversation()

    def work() -> None:
        reservation = taken(depot, plan_of(depot, exchange))
        selector.answered(reservation, 0.2)
        selector.release(reservation)

    return work


def taken(depot: Depot, plan: Plan) -> SlotReservation:
    reservation = depot.selector.try_reserve(plan)
    assert reservation is not None
    return reservation


if __name__ == "__main__":
    asyncio.run(asyncio.to_thread(main))
