"""The WebSocket cases of OpenResponses' compliance suite, on every dialect, by its own names.

That of compaction is in ``test_websocket.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from router.settings.schema import Dialect
from tests.http.test_openresponses import INTEGERS, MAY_BE_NULL
from tests.support.fleet import MODELS, routed, simulated
from tests.support.sockets import Socket, connected
from tests.support.speech import DIALECTS
from tests.support.sse import Event, check_responses_stream

JSON = dict[str, Any]
pytestmark = pytest.mark.parametrize("dialect", DIALECTS)


async def completed(socket: Socket, dialect: Dialect, text: str, **fields: Any) -> JSON:
    """The response to this text, its events being in order."""
    message = {"type": "message", "role": "user", "content": text}
    await socket.send(model=MODELS[dialect], input=[message], **fields)
    events = await socket.events()
    assert events[-1]["type"] == "response.completed", events[-1]
    events[0].pop("headers")
    response = check_responses_stream([Event(e["type"], e, b"") for e in events])
    assert {*INTEGERS, *MAY_BE_NULL} <= response.keys()
    return response


async def fails(socket: Socket, dialect: Dialect, **fields: Any) -> JSON:
    """The error that a request is answered with."""
    event = await socket.refused(model=MODELS[dialect], **fields)
    assert 400 <= event["status"] < 600
    assert event["error"]["message"]
    error: JSON = event["error"]
    return error


async def test_websocket_response(dialect: Dialect) -> None:
    async with (
        simulated(dialect) as endpoints,
        routed(*endpoints) as url,
        connected(url) as socket,
    ):
        response = await completed(socket, dialect, "Count from 1 to 5.")
        assert response["output"]


async def test_websocket_sequential_responses(dialect: Dialect) -> None:
    async with (
        simulated(dialect) as endpoints,
        routed(*endpoints) as url,
        connected(url) as socket,
    ):
        first = await completed(socket, dialect, "Say one.")
        second = await completed(socket, dialect, "Say two.")
        assert first["id"] != second["id"]


async def test_websocket_continuation(dialect: Dialect) -> None:
    async with (
        simulated(dialect) as endpoints,
        routed(*endpoints) as url,
        connected(url) as socket,
    ):
        first = await completed(socket, dialect, "My name is Ember.")
        second = await completed(
            socket, dialect, "What is my name?", previous_response_id=first["id"]
        )
        assert "Ember" in second["output_text"]
        assert second["previous_response_id"] == first["id"]


async def test_websocket_reconnect_store_false_recovery(dialect: Dialect) -> None:
    async with simulated(dialect) as endpoints, routed(*endpoints) as url:
        async with connected(url) as socket:
            first = await completed(socket, dialect, "My name is Ember.")
        async with connected(url) as socket:
            error = await fails(socket, dialect, previous_response_id=first["id"])
            assert error["code"] == "previous_response_not_found"
            assert (await completed(socket, dialect, "Begin anew."))["output"]


async def test_websocket_generate_false(dialect: Dialect) -> None:
    async with (
        simulated(dialect) as endpoints,
        routed(*endpoints) as url,
        connected(url) as socket,
    ):
        warm = await completed(socket, dialect, "My name is Ember.", generate=False)
        assert warm["output"] == []
        second = await completed(
            socket, dialect, "What is my name?", previous_response_id=warm["id"]
        )
        assert "Ember" in second["output_text"]


async def test_websocket_previous_response_not_found(dialect: Dialect) -> None:
    async with (
        simulated(dialect) as endpoints,
        routed(*endpoints) as url,
        connected(url) as socket,
    ):
        missing = "resp_openresponses_missing"
        error = await fails(socket, dialect, previous_response_id=missing)
        assert error["code"] == "previous_response_not_found"
        assert error["param"] == "previous_response_id"


async def test_websocket_failed_continuation_evicts_cache(dialect: Dialect) -> None:
    async with (
        simulated(dialect) as endpoints,
        routed(*endpoints) as url,
        connected(url) as socket,
    ):
        first = await completed(socket, dialect, "Remember: ember.")
        after = {"previous_response_id": first["id"]}
        orphan = {"type": "function_call_output", "call_id": "call_none", "output": "x"}
        await fails(socket, dialect, input=[orphan], **after)
        error = await fails(socket, dialect, input="And now?", **after)
        assert error["code"] == "previous_response_not_found"
