"""What each feature is: how it is asked for, and when it was had."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import orjson
from jsonschema import validate

from router.dialects.dropped import DROPPED_PARAMETERS
from tests.matrix.asking import BODIES, OVER_WEBSOCKET, PATHS, PNG, SCHEMA, Ask
from tests.matrix.said import Said, read, reported, trouble
from tests.matrix.stand import Stand

__all__ = ["FEATURES", "HIDDEN", "PASSED_ON", "YES", "outcome", "outcomes"]

YES: Final = "yes"
HIDDEN: Final = "counted"
PASSED_ON: Final = "passed on"

_FOREIGN: Final = {
    "tools": "tools",
    "parallel tools": "tools",
    "images": "images",
    "structured output": "response_format",
    "reasoning": "reasoning_effort",
}
"""What Completions have no field for, and the field that asks for it elsewhere."""

_WEATHER: Final = "What is the weather in Paris?"
_SURE: Final = "Say exactly: as sure as can be"

Check = Callable[[Stand, str, Said], Awaitable[str]]


async def _text(stand: Stand, surface: str, said: Said) -> str:
    assert said.text == "Grüß dich, 🌍!", said
    return YES


async def _stream(stand: Stand, surface: str, said: Said) -> str:
    assert said.text == ", ".join(map(str, range(1, 13))), said
    assert said.pieces > 5, said
    return YES


async def _tools(stand: Stand, surface: str, said: Said) -> str:
    assert said.calls == [("get_weather", {"city": "Paris"})], said
    ask = Ask(_WEATHER, tools=True, result="Sunny, 21 degrees")
    for stream in (False, True):
        told = await _asked(stand, surface, replace(ask, stream=stream))
        assert told.text == "According to get_weather: Sunny, 21 degrees", told
        assert not told.calls, told
    return YES


async def _parallel(stand: Stand, surface: str, said: Said) -> str:
    cities = [{"city": "Paris"}, {"city": "Rome"}]
    assert said.calls == [("get_weather", city) for city in cities], said
    return YES


async def _image(stand: Stand, surface: str, said: Said) -> str:
    assert said.text.startswith("I see 1 image. "), said
    assert PNG in orjson.dumps(stand.received[-1][1]).decode()
    return YES


async def _schema(stand: Stand, surface: str, said: Said) -> str:
    validate(orjson.loads(said.text), SCHEMA)
    return YES


async def _reasoning(stand: Stand, surface: str, said: Said) -> str:
    assert said.text == "so it is", said
    if not said.reasoning:
        assert said.thought, said
        return HIDDEN
    assert "I am a simulated model" in said.reasoning, said
    return YES


async def _usage(stand: Stand, surface: str, said: Said) -> str:
    path = stand.received[-1][0]
    assert said.usage == reported(path, await stand.again()), said
    return YES


async def _logprobs(stand: Stand, surface: str, said: Said) -> str:
    assert said.text == "as sure as can be", said
    assert "".join(token for token, _ in said.logprobs) == said.text, said
    assert {tops for _, tops in said.logprobs} == {2}, said
    return YES


FEATURES: Final[dict[str, tuple[Ask, Check]]] = {
    "text": (Ask("Say exactly: Grüß dich, 🌍!"), _text),
    "stream": (Ask("Count to 12"), _stream),
    "tools": (Ask(_WEATHER, tools=True), _tools),
    "parallel tools": (Ask("What is the weather in Paris and Rome?", tools=True), _parallel),
    "images": (Ask("What is this?", image=True), _image),
    "structured output": (Ask("3 days in Paris", schema=True), _schema),
    "reasoning": (Ask("Say exactly: so it is", reasoning=True), _reasoning),
    "usage": (Ask("Say exactly: what does it cost?"), _usage),
    "logprobs": (Ask(_SURE, logprobs=True), _logprobs),
}
"""What is asked, and what the answer then has to say."""


async def outcomes(stand: Stand, surface: str, feature: str) -> str:
    """What becomes of a feature, whole and streamed: text and streams are one of them only."""
    ways = {"text": (False,), "stream": (True,)}.get(feature, (False, True))
    found = {way: await outcome(stand, surface, feature, stream=way) for way in ways}
    if len(set(found.values())) == 1:
        return found[ways[0]]
    return f"whole: {found[False]}; streamed: {found[True]}"


async def outcome(stand: Stand, surface: str, feature: str, *, stream: bool) -> str:
    """Ask for a feature once. Raises AssertionError where the answer is not what was asked for."""
    ask, check = FEATURES[feature]
    ask = replace(ask, stream=stream)
    body = BODIES[surface](ask)
    reply = await stand.post(PATHS[surface], body, socket=surface == OVER_WEBSOCKET)
    if reply.status != 200:
        return trouble(reply)
    said = read(surface, reply, stream=stream)
    assert not said.cut
    if dropped := reply.headers.get(DROPPED_PARAMETERS):
        assert said.text, said
        return f"ignored: {dropped}"
    if (surface, stand.column, feature) == ("Anthropic Messages", "messages", "logprobs"):
        assert stand.received[-1][1]["logprobs"] == body["logprobs"]
        return PASSED_ON
    if surface == "Completions" and feature in _FOREIGN:
        name = _FOREIGN[feature]
        assert stand.received[-1][1][name] == body[name]
        return PASSED_ON
    return await check(stand, surface, said)


async def _asked(stand: Stand, surface: str, ask: Ask) -> Said:
    body: dict[str, Any] = BODIES[surface](ask)
    reply = await stand.post(PATHS[surface], body, socket=surface == OVER_WEBSOCKET)
    assert reply.status == 200, reply.body
    assert DROPPED_PARAMETERS not in reply.headers
    return read(surface, reply, stream=ask.stream)
