"""Whoever waits for whatever: turns are fair."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.clock import run_in_virtual_time
from tests.support.queueing import Yard, dismiss

ARRIVALS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sets(st.sampled_from("stu"), min_size=1), st.booleans()),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(ARRIVALS, st.lists(st.sampled_from("stu"), max_size=40))
def test_turns_are_fair_whatever_is_waited_for(
    arrivals: list[tuple[str, set[str], bool]], offers: list[str]
) -> None:
    """Each slot goes to the caller served longest ago of those who can use it, and there to the
    request that came first; nobody who can use it is passed over when it is refused.
    """

    async def main() -> None:
        yard = Yard()
        left = iter(offers)
        waiting: dict[str, set[str]] = {}
        turns: defaultdict[str, int] = defaultdict(int)
        tasks = []

        async def offer_next() -> None:
            if (slot := next(left, None)) is None:
                return
            able = [name for name, slots in waiting.items() if slot in slots]
            assert await yard.offer(slot) == bool(able)
            if able:
                oldest = min(turns[name[0]] for name in able)
                expected = next(name for name in able if turns[name[0]] == oldest)
                assert yard.served[-1] == expected
                assert yard.got[expected] == slot
                turns[expected[0]] = len(yard.served)
                del waiting[expected]

        for number, (caller, slots, then_offer) in enumerate(arrivals):
            name = f"{caller}{number}"
            waiting[name] = slots
            tasks.append(await yard.stand(name, slots, 1e9))
            if then_offer:
                await offer_next()
        for _ in offers:
            await offer_next()
        assert len(yard.queue) == len(waiting)
        await dismiss(tasks)
        assert len(yard.queue) == 0

    run_in_virtual_time(main())
