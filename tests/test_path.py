"""The way of a request does not get longer, nor that of an event."""

from __future__ import annotations

from typing import Final

from tests.path import CASES, STREAMED, Way, further, walked

MOST_FILES: Final = dict(zip(CASES, (51, 51, 30, 28, 40, 40, 43, 43), strict=True))
MOST_FUNCTIONS: Final = dict(zip(CASES, (237, 217, 111, 96, 196, 163, 165, 147), strict=True))
MOST_CALLS: Final = dict(zip(CASES, (360, 273, 168, 117, 403, 193, 268, 168), strict=True))
"""What each way may pass, functions and calls with a few to spare. To be lowered when it has become
shorter.
"""

MOST_FURTHER: Final = dict(zip(STREAMED, (35, 36, 35), strict=True))
"""The calls that one further event of a stream may take."""


async def test_the_way_of_a_request_is_no_longer_than_before() -> None:
    for _ in range(5):  # what is done every second may fall into every walk of a busy machine
        ways = await walked()
        longer = {case: str(way) for case, way in ways.items() if _is_longer(case, way)}
        if not longer:
            break
    assert not longer
    assert all(way.calls.total() > len(way.calls) for way in ways.values())


async def test_the_way_of_an_event_is_no_longer_than_before() -> None:
    for _ in range(5):
        calls = await further()
        longer = {case: count for case, count in calls.items() if count > MOST_FURTHER[case]}
        if not longer:
            break
    assert not longer
    assert min(calls.values()) >= 1


def _is_longer(case: str, way: Way) -> bool:
    return (
        len(way.files) > MOST_FILES[case]
        or len(way.calls) > MOST_FUNCTIONS[case]
        or way.calls.total() > MOST_CALLS[case]
    )
