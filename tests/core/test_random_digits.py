"""Digits that nobody else has."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from router.core.random_digits import DIGITS, random_digits


def test_no_digits_come_twice() -> None:
    with ThreadPoolExecutor(8) as threads:
        given = [one for some in threads.map(lambda _: _some(), range(50)) for one in some]
    assert len(set(given)) == len(given)
    assert all(re.fullmatch(f"[0-9a-f]{{{DIGITS}}}", one) for one in given)


def _some() -> list[str]:
    return [random_digits() for _ in range(200)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="does not apply: nothing forks here")
def test_a_forked_process_has_its_own() -> None:
    random_digits()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, random_digits().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, DIGITS).decode() != random_digits()
    os.close(reading)
    os.close(writing)
