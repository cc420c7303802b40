"""Whatever deployments there are, in whatever state, the choice is sound."""

from __future__ import annotations

from random import Random
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from router.balance.deployment_state import (
    COLD,
    COOLING,
    DRAINED,
    FULL,
    OPEN,
    PROBE,
    READY,
    WARMING,
    DeploymentState,
)
from router.balance.policies import NOTHING, QUEUE, Selection, make_policy
from router.settings.schema import PolicyName
from tests.support.deployments import NOW, busy, graded, spent, unreachable

LANES = st.lists(
    st.one_of(
        st.builds(
            graded,
            st.sampled_from([READY, WARMING, COLD, FULL, OPEN, PROBE, COOLING, DRAINED]),
            st.integers(0, 3),
            tier=st.integers(1, 2),
        ),
        st.builds(unreachable, st.integers(0, 4)),
        st.builds(busy),
        st.builds(spent, st.integers(0, 4)),
    ),
    max_size=8,
)


@settings(max_examples=400, deadline=None)
@given(
    LANES,
    st.sampled_from(get_args(PolicyName)),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_whatever_there_is_the_choice_is_sound(
    deployments: list[DeploymentState],
    policy: PolicyName,
    panic: float,
    probes: bool,
    desperate: bool,
    patient: bool,
    random: Random,
) -> None:
    chooser = Selection(make_policy(policy), panic, random.random)
    chosen, why = chooser.choose(
        deployments, NOW, probes=probes, desperate=desperate, patient=patient
    )
    grades = {each.grade for each in deployments}
    if chosen is None:
        awaited = chooser.awaited(deployments, desperate=desperate)
        assert why == (QUEUE if {each.grade for each in awaited} & {FULL, OPEN} else NOTHING)
        assert FULL not in grades or all(
            each.host.up and not each.free for each in awaited if each.grade == OPEN
        )
        assert not grades & {READY, WARMING}
        assert not (probes and PROBE in grades)
        assert COLD not in grades or (FULL in grades and patient)
        assert not (desperate and why == NOTHING and grades & {OPEN, PROBE})
        return
    assert chosen in deployments
    assert chosen.free
    assert chosen.grade not in (FULL, DRAINED)
    if chosen.grade == COOLING:
        assert desperate
        assert chosen.cool_until <= NOW < chosen.spent_until
        assert not grades & {READY, WARMING}
        assert FULL not in grades or not patient
    assert chosen.grade != OPEN or desperate
    assert chosen.grade != PROBE or probes or desperate
    if policy == "least-loaded" and not probes and panic == 1.0 and READY in grades:
        least = min(each.load for each in deployments if each.grade == READY)
        assert chosen.load <= least + 0.1
        assert chosen.grade in (READY, WARMING)
