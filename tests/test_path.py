"""The way of a request does not get longer."""

from __future__ import annotations

from typing import Final

from tests.path import CASES, Way, walked

MOST_FILES: Final = dict(zip(CASES, (55, 55, 35, 33), strict=True))
MOST_FUNCTIONS: Final = dict(zip(CASES, (244, 224, 119, 104), strict=True))
MOST_CALLS: Final = dict(zip(CASES, (368, 281, 175, 123), strict=True))
"""What each way may pass, functions and calls with a few to spare. To be lowered when it has become
shorter.
"""


async def test_the_way_of_a_request_is_no_longer_than_before() -> None:
    for _ in range(5):  # what is done every second may fall into every walk of a busy machine
        ways = await walked()
        longer = {case: str(way) for case, way in ways.items() if _is_longer(case, way)}
        if not longer:
            break
    assert not longer
    assert all(way.calls.total() > len(way.calls) for way in ways.values())


def _is_longer(case: str, way: Way) -> bool:
    return (
        len(way.files) > MOST_FILES[case]
        or len(way.calls) > MOST_FUNCTIONS[case]
        or way.calls.total() > MOST_CALLS[case]
    )
