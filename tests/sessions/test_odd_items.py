"""Items that make no sense: an endpoint may send any, and nobody may stumble over them later."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.settings.schema import Dialect
from tests.support.calling import answering, call, finished, said
from tests.support.native import USAGE, begun, message
from tests.support.reading import native
from tests.support.router import endpoint, routing
from tests.support.upstream import Script, Upstream, streamed, whole

_TEXT = {"type": "output_text", "text": "x", "annotations": [], "logprobs": []}
_NO_ID = {"type": "message", "role": "assistant", "status": "completed", "content": [_TEXT]}
READABLE: list[Any] = [
    _NO_ID,
    {**_NO_ID, "id": 7},
    {**_NO_ID, "id": [1]},
    {**_NO_ID, "id": "m" * 10_240},
    {**_NO_ID, "id": "m\0"},
    message("x"),
    message("x"),
]
UNREADABLE: list[Any] = [
    {"type": "message", "id": "msg_1", "content": []},
    {"type": "message", "id": "msg_2", "role": 5, "content": "hi"},
    {**_NO_ID, "content": 5},
    {**_NO_ID, "content": None},
    {**_NO_ID, "content": [5]},
    {**_NO_ID, "content": [{"type": "output_text"}]},
    {**_NO_ID, "content": [{"type": ["output_text"]}]},
    {"id": "x"},
    {"x": "x"},
    {"id": "x", "type": ["message"]},
    {"id": "x", "type": {}},
    {"id": "x", "type": "item_reference"},
    {"id": "x", "type": "function_call"},
    {"id": "x", "type": "function_call", "call_id": 5, "name": 5, "arguments": {}},
    {"id": "x", "type": "function_call_output", "call_id": "c"},
    {"id": "x", "type": "brand_new_call", "z": 1},
    {"id": 5, "type": "reasoning", "encrypted_content": "B", "summary": 5},
]
NO_ITEMS: list[Any] = ["oops", 5, None, ["x"]]
OUTPUT = [*NO_ITEMS, *READABLE, *UNREADABLE]


def odd_answer(kind: str) -> Script:
    """An answer with all of them."""
    final = begun(status="completed", output=OUTPUT, usage=USAGE)
    if kind == "whole":
        return whole(orjson.dumps(final))
    done = [
        {"type": "response.output_item.done", "output_index": place, "item": item}
        for place, item in enumerate(OUTPUT)
    ]
    opening = {"type": "response.created", "response": begun()}
    return streamed(native(opening, *done, {"type": "response.completed", "response": final}))


@pytest.mark.parametrize("kind", ["whole", "stream", "background"])
@pytest.mark.parametrize("conversation", [False, True])
async def test_the_next_turn_leaves_out_what_it_cannot_read(
    database_url: str, dialect: Dialect, kind: str, conversation: bool
) -> None:
    async with Upstream(odd_answer(kind)) as odd, answering(dialect) as upstream:
        first = endpoint(odd, "responses", "one", models=["odd"])
        second = endpoint(upstream, dialect, "two")
        async with routing(first, second, state={"url": database_url}) as router:
            fields: dict[str, Any] = {}
            if conversation:
                created = (await call(router, "POST", "/conversations", {})).json
                fields["conversation"] = created["id"]
            asked = {"stream": kind == "stream", "background": kind == "background"}
            reply = await router.ask(model="odd", **asked, **fields)
            assert reply.status == 200, reply.body
            answer = reply.events[-1].response if kind == "stream" else reply.json
            kept = await finished(router, answer["id"])
            assert kept["status"] == "completed", kept["error"]
            assert len(kept["output"]) == len(READABLE) + len(UNREADABLE)
            if kind != "background":
                assert kept == answer
            if conversation:
                items = f"/conversations/{fields['conversation']}/items"
                listed = await call(router, "GET", items, params={"order": "asc", "limit": "2"})
                assert listed.status == 200
                assert listed.json["last_id"] == listed.json["data"][1]["id"]
            else:
                fields["previous_response_id"] = kept["id"]
            for stream in (False, True):
                reply = await router.ask(stream=stream, store=False, input="and?", **fields)
                assert reply.status == 200, reply.body
                heard = "".join(text for role, text in said(upstream) if role == "assistant")
                assert heard.startswith("x" * len(READABLE))
                assert said(upstream)[0] == ("user", "hi")
