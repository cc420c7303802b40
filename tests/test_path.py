"""The way of a request does not get longer."""

from __future__ import annotations

from typing import Final

from tests.path import CASES, walked

MOST_FILES: Final = dict(zip(CASES, (68, 68, 50, 47), strict=True))
"""What each way may pass. To be lowered when it has become shorter."""


async def test_the_way_of_a_request_passes_no_more_files_than_before() -> None:
    for _ in range(5):  # what is done every second may fall into every walk of a busy machine
        ways = await walked()
        found = {case: len(way.files) for case, way in ways.items()}
        if all(found[case] <= most for case, most in MOST_FILES.items()):
            break
    assert all(found[case] <= most for case, most in MOST_FILES.items()), found
    assert all(way.calls.total() > len(way.calls) for way in ways.values())
