"""When a chat is decoded: never where it passes as it came, and never twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from router.core import exchange as exchanges
from router.dialects.chat.decode_request import DecodedChat, decode_chat
from router.settings.schema import Dialect
from tests.support.fleet import MODELS, http_client, routed, simulated

CACHE = {"cache": {"mode": "always", "semantic": {"enabled": False}}}
LACKS_TOOLS = {"capabilities": {"*": {"tools": False}}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("dialects", "settings", "fields", "times"),
    [
        pytest.param(["chat"], {}, {}, 0, id="it passes"),
        pytest.param(["chat", "chat"], {}, {}, 0, id="it passes to one of two"),
        pytest.param(["chat"], CACHE, {}, 1, id="the cache looks at it"),
        pytest.param(["chat"], {}, LACKS_TOOLS, 1, id="it is held against what a model lacks"),
        pytest.param(["ollama"], {}, {}, 1, id="it is translated"),
        pytest.param(["ollama"], CACHE, LACKS_TOOLS, 1, id="all of it"),
    ],
)
async def test_how_often(
    monkeypatch: pytest.MonkeyPatch,
    dialects: list[Dialect],
    settings: dict[str, Any],
    fields: dict[str, Any],
    times: int,
    stream: bool,
) -> None:
    decoded: list[Mapping[str, Any]] = []

    def counted(chat: Mapping[str, Any]) -> DecodedChat:
        decoded.append(chat)
        return decode_chat(chat)

    monkeypatch.setattr(exchanges, "decode_chat", counted)
    message = {"role": "user", "content": "Say exactly: once"}
    body = {"model": MODELS[dialects[0]], "messages": [message], "stream": stream}
    async with simulated(*dialects) as endpoints, http_client() as http:
        named = [{**one, "name": f"e{n}", **fields} for n, one in enumerate(endpoints)]
        async with (
            routed(*named, **settings) as url,
            http.post(f"{url}/v1/chat/completions", json=body) as response,
        ):
            assert "once" in await response.text()
    assert len(decoded) == times
