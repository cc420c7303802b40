"""The key in an Authorization header."""

from __future__ import annotations

import pytest

from router.wire.bearer import bearer_token


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer sk-1", "sk-1"),
        ("bearer  sk-1 ", "sk-1"),
        ("BEARER a b", "a b"),
        ("", None),
        ("Bearer", None),
        ("Bearer ", None),
        ("Basic sk-1", None),
        ("sk-1", None),
    ],
)
def test_the_token(header: str, token: str | None) -> None:
    assert bearer_token(header) == token
