"""The guard: whom it lets in, as whom, and what it tells the others."""

from __future__ import annotations

import pytest

from router.core.key import AccountKeyResolver, Key
from router.errors import AuthenticationFailed, StateUnavailable
from tests.support.keys import admitted, configured

RING = AccountKeyResolver(
    [configured("ann"), configured("old", expires="2027-01-31T12:00Z", models=["m"])]
)
END = 1801396800.0
"""When ``old`` expires."""


async def test_who_is_let_in_is_known_with_its_key() -> None:
    exchange = await admitted(RING, "sk-ann", 0.0)
    assert (exchange.context.caller, exchange.context.key) == ("ann", Key("ann"))
    exchange = await admitted(RING, "sk-old", END - 1)
    assert exchange.context.caller == "old"
    assert exchange.context.key is not None
    assert exchange.context.key.models == ("m",)


@pytest.mark.parametrize("now", [END, END + 1, 1e10])
async def test_an_expired_key_is_told_when(now: float) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        await admitted(RING, "sk-old", now)
    assert (caught.value.status, caught.value.code) == (401, "expired_api_key")
    assert caught.value.message == "This API key expired at 2027-01-31 12:00:00 UTC."
    assert caught.value.headers == {"WWW-Authenticate": "Bearer"}


@pytest.mark.parametrize("secret", ["sk-bob", "sk-ann ", "sk-an", "SK-ANN", "sk-\udcff", "ann"])
async def test_a_wrong_key(secret: str) -> None:
    if secret.strip() == "sk-ann":
        secret = "sk-ann sk-ann"
    with pytest.raises(AuthenticationFailed) as caught:
        await admitted(RING, secret, 0.0)
    assert (caught.value.code, caught.value.message) == (
        "invalid_api_key",
        "Incorrect API key provided.",
    )


@pytest.mark.parametrize("secret", [None, "", " "])
async def test_no_key(secret: str | None) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        await admitted(RING, secret, 0.0)
    assert "No API key was given" in caught.value.message


async def test_where_nobody_can_tell_nobody_is_let_in() -> None:
    class Away:
        async def find(self, presented: str, now: float) -> Key | None:
            raise StateUnavailable("away")

    with pytest.raises(StateUnavailable):
        await admitted(Away(), "sk-ann", 0.0)
