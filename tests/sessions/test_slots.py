"""An endpoint's slot is held while the endpoint works, not while its answer is being stored."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.router import endpoint, routing
from tests.support.speech import SPEECH
from tests.support.sse import check_responses_stream
from tests.support.upstream import Upstream, streamed, whole
from tests.support.waiting import until


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_database_that_takes_long_does_not_occupy_endpoints(
    tmp_path: Path, stream: bool
) -> None:
    speech = SPEECH["responses"]
    script = streamed(*speech.pieces, kind=speech.kind) if stream else whole(speech.whole)
    path = tmp_path / "state.db"
    async with Upstream(default=script) as upstream:
        one = endpoint(upstream, "responses", max_in_flight=1)
        state = {"url": f"sqlite:///{path}", "timeout": 60}
        async with routing(one, state=state) as router:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                stored = asyncio.create_task(router.ask(stream=stream))
                await until(lambda: len(upstream.requests) == 1)
                reply = await router.ask(stream=stream, store=False)
                assert reply.status == 200
                assert not stored.done()
                other.execute("ROLLBACK")
            kept = await stored
        response = check_responses_stream(kept.events) if stream else kept.json
        assert response["status"] == "completed"
