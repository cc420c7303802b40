"""What is put together of a stream is what the endpoint says in one piece, whatever the APIs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import orjson
import pytest

from tests.matrix.asking import BODIES, OVER_WEBSOCKET, PATHS, Ask
from tests.matrix.cases import FEATURES
from tests.matrix.said import timeless
from tests.matrix.stand import COLUMNS, Stand, standing
from tests.support.router import Reply

ASKS: dict[str, Ask] = {name: replace(ask, stream=False) for name, (ask, _) in FEATURES.items()}
ACCOUNT = re.compile(rb"pm1\.[0-9a-f]{12}")
"""The mark of an endpoint, and so of the port that it listens on."""
LOADING = "/api/generate"


def without_nulls(value: Any) -> Any:
    """A null says what is said by leaving the field out, which streams do more often."""
    if isinstance(value, list):
        return [without_nulls(one) for one in value]
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return value


def compared(reply: Reply) -> tuple[int, Any]:
    body = orjson.loads(ACCOUNT.sub(b"", reply.body))
    return reply.status, without_nulls(timeless(body))


NOT_ASKED = (("Completions", "responses only"), ("Completions", "messages"))


async def answers(stand: Stand, surface: str) -> dict[str, tuple[int, Any]]:
    path, body = PATHS[surface], BODIES[surface]
    socket = surface == OVER_WEBSOCKET
    return {
        name: compared(await stand.post(path, body(ask), socket=socket))
        for name, ask in ASKS.items()
    }


@pytest.mark.parametrize("cached", [False, True], ids=["", "cached"])
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("surface", PATHS)
async def test_the_answers_are_the_same(surface: str, column: str, cached: bool) -> None:
    async with standing(column, cached=cached) as stand:
        expected = await answers(stand, surface)
    fields = {"stream_whole_answers": True}
    async with standing(column, cached=cached, fields=fields) as stand:
        found = await answers(stand, surface)
        asked = [body for path, body in stand.received if path != LOADING]
    for name in ASKS:
        assert found[name] == expected[name], name
    if (surface, column) == ("Anthropic Messages", "messages") and not cached:
        assert not any(body["stream"] for body in asked)  # they pass as they come
    else:
        assert all(body["stream"] is True for body in asked)
    assert asked or (surface, column) in NOT_ASKED
