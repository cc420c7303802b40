"""A dialect is one folder: added, it is spoken to by every API and served in front of every other.

The folder beside this test is put into a copy of the router, and nothing else is changed there.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from tests.support.copied import copied, run_in

FOLDER: Final = Path(__file__).parent / "telegraph"

SETUP: Final = """
import asyncio

import orjson
import router
from tests.support.fetch import fetch
from tests.support.router import endpoint, routing
from tests.support.speech import SPEECH
from tests.support.upstream import Upstream, streamed, whole

print(router.__file__)
TEXT = "Hello, wörld!"
SAID = orjson.dumps({"text": TEXT, "counted": [7, 4]})
WORDS = [b"WORD " + orjson.dumps(word) + b"\\n" for word in ("Hello", ", ", "wörld", "!")]
LIVE = streamed(*WORDS, b"STOP 7 4\\n", kind="text/plain")
ASKED = [{"role": "user", "content": "hi"}]
APIS = {
    # path: (the request, its field for a stream)
    "/v1/responses": ({"model": "m", "input": "hi"}, "stream"),
    "/v1/chat/completions": ({"model": "m", "messages": ASKED}, "stream"),
    "/v1/messages": ({"model": "m", "max_tokens": 9, "messages": ASKED}, "stream"),
    "/api/chat": ({"model": "m", "messages": ASKED}, "stream"),
    "/api/generate": ({"model": "m", "prompt": "hi"}, "stream"),
    "/telegraph/telegram": ({"station": "m", "wires": [["user", "hi"]]}, "live"),
}


async def telegraph(wire):
    await (LIVE if wire.request.json["live"] else whole(SAID))(wire)


async def ask(running, path, streams):
    body, field = APIS[path]
    reply = await fetch(
        running.http, "POST", running.url + path, json={**body, field: streams}
    )
    assert reply.status == 200, (path, reply.body)
    text = reply.body.decode()
    assert "Hello" in text and "wörld" in text, (path, text)
    return reply
"""

BEHIND: Final = '''
async def main():
    """Every API in front of a telegraph, and the cache between them."""
    async with (
        Upstream(default=telegraph) as upstream,
        routing(
            {**endpoint(upstream, "ollama"), "dialect": "telegraph"}, cache={"mode": "always"}
        ) as running,
    ):
        for path in APIS:
            for streams in (True, False):
                before = len(upstream.requests)
                first = await ask(running, path, streams)
                again = await ask(running, path, streams)
                assert again.headers["X-Cache"] == "HIT", (path, streams)
                assert len(upstream.requests) <= before + 1
        assert {request.path for request in upstream.requests} == {"/telegram"}
        asked = upstream.requests[0].json
        assert asked == {"station": "m", "wires": [["user", "hi"]], "live": True}, asked
        dropped = await running.ask(tools=[{"type": "function", "name": "f"}])
        assert dropped.headers["X-Pointsman-Dropped-Parameters"] == "tools"
        refused = await fetch(running.http, "POST", running.url + "/telegraph/telegram", json={})
        assert (refused.status, "station" in refused.json["lost"]) == (400, True)
        metrics = await fetch(running.http, "GET", running.url + "/metrics")
        assert 'operation="telegram"' in metrics.body.decode()


asyncio.run(main())
'''

BEFORE: Final = '''
async def main():
    """A telegraph's clients in front of endpoints that speak otherwise."""
    for dialect in ("responses", "chat", "ollama"):
        async with (
            Upstream(default=SPEECH[dialect].script()) as upstream,
            routing(endpoint(upstream, dialect), cache={"mode": "always"}) as running,
        ):
            live = await ask(running, "/telegraph/telegram", True)
            assert live.body.decode().splitlines()[-1] == "STOP 7 4", (dialect, live.body.decode())
            said = await ask(running, "/telegraph/telegram", False)
            assert said.json == {"text": TEXT, "counted": [7, 4]}, (dialect, said.body.decode())
            assert said.headers["X-Cache"] == "HIT"


asyncio.run(main())
'''


@pytest.mark.parametrize("asks", [BEHIND, BEFORE], ids=["behind", "in front"])
def test_a_dialect_is_one_folder(asks: str, tmp_path: Path) -> None:
    shutil.copytree(FOLDER, copied(tmp_path) / "router/dialects/telegraph")
    run_in(tmp_path, SETUP + asks)


def test_the_folder_has_the_five_parts_and_says_which() -> None:
    parts = {part.stem for part in FOLDER.glob("*.py")} - {"__init__"}
    assert parts == {
        "schema",
        "decode_request",
        "encode_request",
        "decode_stream",
        "encode_stream",
        "dialect",
    }
