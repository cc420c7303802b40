"""The key in the headers of a request."""

from __future__ import annotations

import pytest

from router.core.key import bearer_token, presented_key


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


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({}, None),
        ({"X-Api-Key": " sk-1 "}, "sk-1"),
        ({"X-Api-Key": " "}, None),
        ({"Authorization": "Bearer sk-2"}, "sk-2"),
        ({"Authorization": "Bearer sk-2", "X-Api-Key": "sk-1"}, "sk-2"),
        ({"Authorization": "Bearer ", "X-Api-Key": "sk-1"}, "sk-1"),
        ({"Authorization": "Basic sk-2", "X-Api-Key": "sk-1"}, "sk-1"),
    ],
)
def test_where_the_key_may_stand(headers: dict[str, str], key: str | None) -> None:
    assert presented_key(headers) == key
