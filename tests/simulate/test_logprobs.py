"""How sure simulated models say they were, in every dialect's form."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from router.simulate.logprobs import entries, legacy
from tests.simulate.conftest import Start

ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Say exactly: é!"}]}


def test_an_entry_for_each_piece() -> None:
    made = entries("é!", 2)
    assert [entry["token"] for entry in made] == ["é", "!"]
    assert made[0]["bytes"] == [195, 169]
    assert [len(entry["top_logprobs"]) for entry in made] == [2, 2]
    assert made[0]["top_logprobs"][0]["token"] == "é"
    assert made[0]["top_logprobs"][1]["logprob"] < made[0]["logprob"] < 0
    assert entries("é", 0)[0]["top_logprobs"] == []


def test_the_legacy_form_has_a_place_for_each_piece() -> None:
    made = legacy(["one", ", ", "two"], 1)
    assert made["tokens"] == ["one", ", ", "two"]
    assert made["text_offset"] == [0, 3, 5]
    assert {len(value) for value in made.values()} == {3}
    assert legacy(["two"], 1, 5)["text_offset"] == [5]


@pytest.mark.parametrize("top", [0, 2])
async def test_nothing_is_told_that_was_not_asked_for(
    start: Start, http: aiohttp.ClientSession, top: int
) -> None:
    url = await start("chat", "m")
    for asked in (False, True):
        fields = {"logprobs": True, "top_logprobs": top} if asked else {}
        async with http.post(f"{url}/v1/chat/completions", json={**ASKED, **fields}) as response:
            [choice] = (await response.json())["choices"]
        sure = choice["logprobs"]
        assert sure == ({"content": entries("é!", top), "refusal": None} if asked else None)
