"""Holds the routers to the ledger, through nothing but their API."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterable
from typing import Any

import orjson

from tests.crash.client import Answer, Client, data_of
from tests.crash.ledger import TERMINAL, Kept, Ledger, Talk, Turn, text_of_output
from tests.support.sse import Event, check_responses_stream, text_of

__all__ = ["Audit"]

_TURN = re.compile(r"This is turn (\d+) of our conversation")
_COUNT = re.compile(r": count to (\d+)")
_AT_ONCE = 8
_PAGE = 7
"""Items on a page: few, so that there are several pages."""


class Audit:
    """Compares what the routers say now with what they have said before."""

    def __init__(self, client: Client, ledger: Ledger, rng: random.Random) -> None:
        self._client = client
        self._ledger = ledger
        self._rng = rng

    async def everything(self, kept: Iterable[Kept], talks: Iterable[Talk]) -> None:
        """Check these responses and conversations; what is broken goes into the ledger."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def check(what: Kept | Talk | str) -> None:
            async with gate:
                try:
                    if isinstance(what, Kept):
                        await self._response(what)
                    elif isinstance(what, Talk):
                        await self._talk(what)
                    else:
                        await self._gone(what)
                except (AssertionError, TimeoutError, KeyError) as error:
                    name = what if isinstance(what, str) else what.id
                    self._ledger.broken(f"{name}: {type(error).__name__}: {error}")

        unstored, self._ledger.unstored = self._ledger.unstored, []
        everything: list[Kept | Talk | str] = [*kept, *talks, *unstored]
        await asyncio.gather(*map(check, everything))

    # Responses

    async def _response(self, kept: Kept) -> None:
        path = f"/responses/{kept.id}"
        if kept.deleted:
            await self._gone(kept.id)
            return
        answer = await self._client.insist("GET", path)
        if not kept.promised and answer.status == 404:
            self._ledger.counts["unacknowledged and not there"] += 1
            return
        assert answer.status == 200, f"is missing: {answer}"
        response = answer.json
        if kept.final is None:
            self._ledger.counts["unacknowledged and there"] += 1
            assert response["status"] in TERMINAL, response["status"]
        else:
            assert response == kept.final, f"is {response}, and was {kept.final}"
        _check_whole(response, kept)
        items = await self._list(path + "/input_items")
        assert [_said(item) for item in items] == [kept.text], items
        if kept.resumable:
            await self._log(kept, response)
        elif kept.events:
            _check_begun(kept, response)

    async def _log(self, kept: Kept, response: dict[str, Any]) -> None:
        """The whole log, and a part of it."""
        frames = await self._replay(kept.id, -1)
        numbers = [number for _, number, _ in frames]
        assert numbers == list(range(len(frames))), f"events are numbered {numbers}"
        for _, number, data in frames:
            kept.events.setdefault(number, data)
            assert kept.events[number] == data, f"event {number} was {kept.events[number]!r}"
        assert len(kept.events) == len(frames), f"of {sorted(kept.events)} {numbers} are left"
        after = self._rng.randrange(-1, len(frames))
        assert await self._replay(kept.id, after) == frames[after + 1 :], f"after {after}"
        events = [
            Event(kind, _json(data), data) for kind, _, data in frames if kind != "response.queued"
        ]
        if response["status"] == "cancelled":
            ends = [kind for kind, _, _ in frames if kind.removeprefix("response.") in TERMINAL]
            assert not ends, f"cancelled with {ends}"
            return
        for number, event in enumerate(events):  # without the one that is left out
            assert event.data is not None
            event.data["sequence_number"] = number
        if response["status"] == "failed" and len(events) < 3:
            assert events[-1].type == "response.failed", events
            assert events[-1].data is not None
            assert events[-1].data["response"] == response, "the last event has another response"
            return
        final = check_responses_stream(events)
        assert final == response, f"the last event has {final}, the response is {response}"
        if response["status"] == "completed":
            assert text_of(events) == text_of_output(response), "the deltas are another text"

    async def _replay(self, ident: str, after: int) -> list[tuple[str, int, bytes]]:
        path = f"/responses/{ident}"
        async with self._client.stream("GET", path, stream="true", starting_after=after) as frames:
            assert not isinstance(frames, Answer), f"cannot be resumed: {frames}"
            return [data_of(frame) async for frame in frames]

    async def _gone(self, ident: str) -> None:
        for method, rest in (("GET", ""), ("GET", "/input_items"), ("POST", "/cancel")):
            answer = await self._client.insist(method, f"/responses/{ident}{rest}")
            assert answer.status == 404, f"{method} {rest} is still there: {answer}"

    # Conversations

    async def _talk(self, talk: Talk) -> None:
        items = await self._list(f"/conversations/{talk.id}/items")
        assert len(items) % 2 == 0, f"half a turn: {[_said(item) for item in items]}"
        order: list[Turn] = []
        for place, (asked, answered) in enumerate(zip(items[::2], items[1::2], strict=True)):
            assert (asked["role"], answered["role"]) == ("user", "assistant"), items
            text = _said(asked)
            turn = talk.turns[text.split(":")[0]]
            assert turn not in order, f"{turn.marker} is in it twice"
            order.append(turn)
            _check_text(_said(answered), text, place + 1)
            if turn.kept is not None and turn.kept.final is not None and not turn.kept.deleted:
                final = turn.kept.final
                assert final["status"] == "completed", f"{final['status']} turn {turn.marker}"
                assert [answered["id"]] == [item["id"] for item in final["output"]], final
        begun = 0.0
        for turn in order:
            assert turn.over > begun, f"{turn.marker} was over before one that it comes after"
            begun = max(begun, turn.sent)
        for turn in talk.turns.values():
            if turn.kept is not None and turn.kept.completed:
                assert turn in order, f"{turn.marker} was acknowledged and is missing"

    async def _list(self, path: str) -> list[dict[str, Any]]:
        """All items of a list, page by page, in order."""
        items: list[dict[str, Any]] = []
        query: dict[str, Any] = {"order": "asc", "limit": _PAGE}
        while True:
            answer = await self._client.insist("GET", path, **query)
            assert answer.status == 200, f"{path} {query}: {answer}"
            items += answer.json["data"]
            if not answer.json["has_more"]:
                return items
            query["after"] = answer.json["last_id"]


def _check_whole(response: dict[str, Any], kept: Kept) -> None:
    """A finished response in itself."""
    status = response["status"]
    assert response["store"] is True, response
    assert (response["error"] is not None) == (status == "failed"), response
    assert (response["usage"] is not None) or status != "completed", response
    if status == "completed":
        _check_text(text_of_output(response), kept.text, kept.turn)


def _check_text(text: str, asked: str, turn: int | None) -> None:
    """Whether this is what the simulated model answers, in that turn."""
    if count := _COUNT.search(asked):
        assert text == ", ".join(map(str, range(1, int(count[1]) + 1))), text
        return
    assert asked in text, f"the answer to {asked} is {text}"
    if turn is not None:
        found = _TURN.search(text)
        assert (int(found[1]) if found else 1) == turn, f"turn {turn} was answered with: {text}"


def _check_begun(kept: Kept, response: dict[str, Any]) -> None:
    """A stream that was not resumable and broke off: what was seen is the beginning of it."""
    seen = [_json(kept.events[number]) for number in sorted(kept.events)]
    text = "".join(e["delta"] for e in seen if e["type"] == "response.output_text.delta")
    assert text_of_output(response).startswith(text), f"{text!r} was seen of {response}"


def _said(item: dict[str, Any]) -> str:
    """The text of a message; others have none."""
    content = item.get("content") or []
    return "".join(part.get("text", "") for part in content)


def _json(data: bytes) -> dict[str, Any]:
    value: dict[str, Any] = orjson.loads(data)
    return value
