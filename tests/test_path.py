"""The way of a request does not get longer, nor that of an event."""

from __future__ import annotations

from typing import Final

from tests.path import CASES, STREAMED, Way, further, walked

MOST_FILES: Final = dict(zip(CASES, (66, 64, 41, 38, 51, 46, 53, 51), strict=True))
MOST_FUNCTIONS: Final = dict(zip(CASES, (284, 246, 137, 122, 229, 173, 201, 163), strict=True))
MOST_CALLS: Final = dict(zip(CASES, (416, 307, 196, 145, 400, 190, 302, 178), strict=True))
"""What each way may pass, functions and calls with a few to spare. To be lowered when it has become
shorter.
"""

MOST_FURTHER: Final = dict(zip(STREAMED, (18, 10, 12), strict=True))
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
