"""Whatever is done with keys: a secret that is revoked, expired or rotated out opens nothing."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import AuthenticationFailed, Conflict
from tests.support.keys import Here, admitted, here, secret_of
from tests.support.state import opened

NAMES = ("ann", "bob", "cy")
FAR = 1000.0
MOMENTS = (0.0, FAR / 2, FAR * 1.5, FAR * 3)
"""When secrets are presented, in seconds from now; grace and expiry end between them."""

_step = st.one_of(
    st.tuples(st.just("create"), st.sampled_from(NAMES), st.sampled_from((None, FAR, 2 * FAR))),
    st.tuples(st.just("rotate"), st.sampled_from(NAMES), st.sampled_from((None, FAR, 2 * FAR))),
    st.tuples(st.just("expire"), st.sampled_from(NAMES), st.sampled_from((None, -FAR, FAR))),
    st.tuples(st.just("revoke"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("look"), st.just(""), st.none()),
    st.tuples(st.just("use"), st.just(""), st.none()),
)


@dataclass
class Secret:
    """What is expected of one secret; times are in seconds from now."""

    owner: str
    until: float = float("inf")


class Model:
    """Keys as they should be."""

    def __init__(self) -> None:
        self.expires: dict[str, float] = {}
        self.gone: set[str] = set()
        self.current: dict[str, str] = {}
        self.secrets: dict[str, Secret] = {}

    def issued(self, name: str, secret: str, grace: float | None) -> None:
        for held in self.secrets.values():
            if held.owner == name and held.until != float("inf"):
                held.until = float("-inf")
        old = self.current.get(name)
        if old is not None:
            self.secrets[old].until = float("-inf") if grace is None else grace
        self.current[name] = secret
        self.secrets[secret] = Secret(name)

    def opens(self, secret: str, at: float) -> bool:
        held = self.secrets[secret]
        alive = held.owner not in self.gone and at < self.expires.get(held.owner, float("inf"))
        return alive and at < held.until


async def done(one: Here, model: Model, what: str, name: str, how: float | None) -> None:
    """Take a step here, and in the model; what cannot be done is refused by both."""
    day = None if how is None else datetime.fromtimestamp(time.time() + how, UTC).isoformat()
    known = name in model.current and name not in model.gone
    if what == "create" and name not in model.current:
        model.issued(name, secret_of(await one.store.create(name, {"expires": day})), None)
        model.expires[name] = float("inf") if how is None else how
    elif what == "create":
        try:
            await one.store.create(name, {})
        except Conflict:
            return
        raise AssertionError("a name was given twice")
    elif what == "rotate" and known:
        model.issued(name, secret_of(await one.store.rotate(name, how or 0.0)), how)
    elif what == "expire" and known:
        await one.store.update(name, {"expires": day})
        model.expires[name] = float("inf") if how is None else how
    elif what == "revoke" and name in model.current:
        await one.store.revoke(name)
        model.gone.add(name)
    elif what == "look":
        await one.virtual.refresh()


async def check(one: Here, model: Model) -> None:
    for secret, held in model.secrets.items():
        for at in MOMENTS:
            if model.opens(secret, at):
                exchange = await admitted(one.key_resolver, secret, time.time() + at)
                assert exchange.context.caller == held.owner
                continue
            with pytest.raises(AuthenticationFailed) as caught:
                await admitted(one.key_resolver, secret, time.time() + at)
            assert secret not in str(caught.value.envelope())


@settings(max_examples=40, deadline=None)
@given(st.lists(_step, max_size=14))
def test_only_good_secrets_open(steps: list[tuple[str, str, float | None]]) -> None:
    async def run() -> None:
        async with (
            opened("sqlite:///:memory:") as database,
            here(database) as one,
            here(database) as other,
        ):
            model = Model()
            for what, name, how in steps:
                await done(one, model, what, name, how)
                if what == "use":
                    for secret in model.secrets:  # so that the other one knows it, or knows not
                        await other.name(secret)
                await check(one, model)
            await other.virtual.refresh()
            await check(other, model)
            for secret in model.secrets:
                assert secret not in repr(log)

    with structlog.testing.capture_logs() as log:
        asyncio.run(run())
