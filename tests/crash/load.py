"""A mixed load, every answer of which goes into the ledger."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

import orjson

from tests.crash.client import Answer, Client, Lost, data_of
from tests.crash.ledger import TERMINAL, Kept, Ledger, Talk, Turn

__all__ = ["Load"]

_MODES = ("whole", "stream", "background", "background stream", "durable")
_KINDS = {"single": 5, "chain": 4, "talk": 6, "cancel": 3, "delete": 2, "unstored": 1}
_MAX_CHAIN = 10
_MAX_TURNS = 15
_TALKS = 6
"""Conversations at the same time: turns in the same one are kept waiting."""

_POLL = 0.1


class Load:
    """Workers that ask for one thing after the other until ``stop`` is called.

    Whatever a worker has begun when it is told to stop, it sees through to its end.
    """

    def __init__(
        self, client: Client, ledger: Ledger, models: Sequence[str], rng: random.Random
    ) -> None:
        self._client = client
        self._ledger = ledger
        self._models = models
        self._rng = rng
        self._stopping = False
        self._number = 0
        self._talks: list[Talk] = []

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopping = True

    async def run(self, workers: int) -> None:
        """Work with so many workers until told to stop."""
        self._stopping = False
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while not self._stopping:
            (kind,) = self._rng.choices(list(_KINDS), list(_KINDS.values()))
            self._ledger.counts[kind] += 1
            try:
                await getattr(self, f"_{kind}")()
            except Lost:
                self._ledger.counts["lost"] += 1
                await asyncio.sleep(_POLL)
            except (TimeoutError, AssertionError, KeyError) as error:
                self._ledger.broken(f"{kind}: {type(error).__name__}: {error}")

    # What is asked for

    async def _single(self) -> None:
        await self._ask(self._rng.choice(_MODES), self._text())

    async def _chain(self) -> None:
        """Turn after turn; now and then one in the middle is deleted."""
        chain: list[Kept] = []
        while len(chain) < _MAX_CHAIN and not self._stopping:
            before = {"previous_response_id": chain[-1].id} if chain else {}
            mode = self._rng.choice(_MODES)
            kept = await self._ask(mode, self._text(), turn=len(chain) + 1, **before)
            if kept is not None and kept.completed:
                chain.append(kept)
            elif self._rng.random() < 0.3:
                return
            if len(chain) > 2 and self._rng.random() < 0.15:
                await self._erase(chain.pop(self._rng.randrange(len(chain) - 1)))

    async def _talk(self) -> None:
        """A turn in a conversation that others may be taking turns in as well."""
        talk = await self._some_talk()
        text = self._text()
        turn = talk.turns[text.split(":")[0]] = Turn(text.split(":")[0], time.monotonic())
        kept = await self._ask(self._rng.choice(_MODES), text, conversation=talk.id)
        if kept is not None:
            turn.kept = kept
            turn.over = time.monotonic()

    async def _some_talk(self) -> Talk:
        open_talks = [talk for talk in self._talks if len(talk.turns) < _MAX_TURNS]
        if len(open_talks) >= _TALKS:
            return self._rng.choice(open_talks)
        answer = await self._client.call("POST", "/conversations", {})
        if not self._expect(answer, "a conversation"):
            raise Lost("no conversation")
        talk = Talk(answer.json["id"])
        self._talks.append(talk)
        self._ledger.talks.append(talk)
        return talk

    async def _cancel(self) -> None:
        text = f"{self._text().split(':')[0]}: count to {self._rng.randrange(20, 120)}"
        body = {**self._body(text), "background": True}
        answer = await self._client.call("POST", "/responses", body)
        if not self._expect(answer, "background"):
            return
        kept = self._ledger.know(Kept(answer.json["id"], text, True, True))
        await asyncio.sleep(self._rng.uniform(0, 1.5))
        answer = await self._client.insist("POST", f"/responses/{kept.id}/cancel")
        if self._expect(answer, "cancel"):
            self._ledger.acknowledge(kept, answer.json)

    async def _delete(self) -> None:
        kept = await self._ask(self._rng.choice(_MODES), self._text())
        if kept is not None and kept.final is not None:
            await self._erase(kept)

    async def _unstored(self) -> None:
        answer = await self._client.call(
            "POST", "/responses", {**self._body(self._text()), "store": False}
        )
        if self._expect(answer, "store: false"):
            self._ledger.unstored.append(answer.json["id"])

    async def _erase(self, kept: Kept) -> None:
        kept.promised = False
        answer = await self._client.insist("DELETE", f"/responses/{kept.id}")
        if answer.status not in (200, 404):  # 404: deleted, and nobody was left to say so
            self._ledger.broken(f"deleting {kept.id}: {answer}")
        kept.deleted = True

    # How it is asked for

    def _text(self) -> str:
        self._number += 1
        marker = f"Note {self._number:05}x"
        if self._rng.random() < 0.3:
            return f"{marker}: count to {self._rng.randrange(5, 25)}"
        return f"{marker}: nothing"

    def _body(self, text: str) -> dict[str, Any]:
        return {"model": self._rng.choice(self._models), "input": text}

    async def _ask(self, mode: str, text: str, turn: int | None = None, **more: Any) -> Kept | None:
        """Ask for one response in this way; None where nothing was promised."""
        body = {**self._body(text), **more}
        self._ledger.counts[mode] += 1
        if mode == "whole":
            return await self._ask_whole(body, turn)
        if mode == "background":
            body["background"] = True
            answer = await self._client.call("POST", "/responses", body)
            if not self._expect(answer, _named(mode, body)):
                return None
            kept = self._ledger.know(Kept(answer.json["id"], text, True, True, turn))
            await self._settle(kept)
            return kept
        body["stream"] = True
        if mode == "background stream":
            body["background"] = True
        elif mode == "durable":
            body["stream_options"] = {"durable": True}
        return await self._ask_streamed(body, turn, resumable=mode != "stream")

    async def _ask_whole(self, body: dict[str, Any], turn: int | None) -> Kept | None:
        answer = await self._client.call("POST", "/responses", body)
        if not self._expect(answer, _named("whole", body)):
            return None
        if self._degraded(answer.json):
            return None
        kept = self._ledger.know(Kept(answer.json["id"], body["input"], False, True, turn))
        self._ledger.acknowledge(kept, answer.json)
        return kept

    async def _ask_streamed(
        self, body: dict[str, Any], turn: int | None, *, resumable: bool
    ) -> Kept | None:
        kept: Kept | None = None
        try:
            async with self._client.stream("POST", "/responses", body) as frames:
                if isinstance(frames, Answer):
                    self._expect(frames, _named("durable" if resumable else "stream", body))
                    return None
                async for frame in frames:
                    kind, number, data = data_of(frame)
                    response = _response_in(data)
                    if kept is None:
                        assert response is not None, frame
                        kept = Kept(response["id"], body["input"], resumable, resumable, turn)
                        kept.refers = _refers(body)
                        self._ledger.know(kept)
                    if self._saw(kept, kind, number, data):
                        break
                    if resumable and self._rng.random() < 0.02:
                        break
                else:
                    if not resumable:
                        self._ledger.broken(f"{kept}: the stream has no end")
        except Lost:
            if kept is None or not resumable:
                raise
        if kept is not None and resumable:
            await self._follow(kept)
        return kept

    async def _follow(self, kept: Kept) -> None:
        """Resume a stream as often as it takes, then retrieve its response."""
        while kept.final is None:
            seen = max(kept.events)
            try:
                if await self._resume(kept, seen):
                    break
            except Lost:
                await asyncio.sleep(_POLL)
        await self._settle(kept)

    async def _resume(self, kept: Kept, after: int) -> bool:
        """Follow its stream once; whether it was to its end."""
        path = f"/responses/{kept.id}"
        async with self._client.stream("GET", path, stream="true", starting_after=after) as frames:
            if isinstance(frames, Answer):
                if frames.status < 500:
                    self._ledger.broken(f"{kept.id} cannot be resumed at {after}: {frames}")
                    return True
                raise Lost(str(frames))
            self._ledger.counts["resumed"] += 1
            expected = after
            async for frame in frames:
                kind, number, data = data_of(frame)
                expected += 1
                if number != expected:
                    self._ledger.broken(f"{kept.id} after {after}: {number} is not {expected}")
                if self._saw(kept, kind, number, data):
                    return True
                if self._rng.random() < 0.02:
                    return False
        answer = await self._client.insist("GET", path)
        return answer.json.get("status") in TERMINAL

    def _saw(self, kept: Kept, kind: str, number: int, data: bytes) -> bool:
        """Note an event; whether it was the last one."""
        self._ledger.saw(kept, number, data)
        response = _response_in(data)
        if kind.removeprefix("response.") not in TERMINAL:
            return False
        assert response is not None, data
        if kept.resumable or not (self._degraded(response) or self._given_up(kept, response)):
            self._ledger.acknowledge(kept, response)
        return True

    def _degraded(self, response: dict[str, Any]) -> bool:
        """Whether it was served without being stored, and says so."""
        if response["store"] is not False:
            return False
        self._ledger.counts["degraded"] += 1
        self._ledger.unstored.append(response["id"])
        self._ledger.kept.pop(response["id"], None)
        return True

    def _given_up(self, kept: Kept, response: dict[str, Any]) -> bool:
        """Whether the stream says that its response failed: it need not be there afterwards."""
        if response["status"] != "failed":
            return False
        self._ledger.counts["failed in mid-stream" + " with history" * kept.refers] += 1
        return True

    async def _settle(self, kept: Kept) -> None:
        """Retrieve a run until it is finished."""
        path = f"/responses/{kept.id}"
        deadline = time.monotonic() + 60
        while True:
            answer = await self._client.insist("GET", path)
            if not self._expect(answer, f"retrieving {kept.id}"):
                return
            if answer.json.get("status") in TERMINAL:
                self._ledger.acknowledge(kept, answer.json)
                return
            if time.monotonic() > deadline:
                self._ledger.broken(f"{kept.id} does not end: {answer.json.get('status')}")
                return
            await asyncio.sleep(_POLL)

    def _expect(self, answer: Answer, what: str) -> bool:
        """Whether it is a 200; what else a router may say while others die is counted."""
        if answer.status == 200:
            return True
        error = answer.json.get("error") or {}
        self._ledger.counts[f"refused {answer.status} {error.get('code')}: {what}"] += 1
        if answer.status not in (409, 503):
            self._ledger.broken(f"{what}: {answer}")
        return False


def _refers(body: dict[str, Any]) -> bool:
    return "previous_response_id" in body or "conversation" in body


def _named(mode: str, body: dict[str, Any]) -> str:
    return mode + " with history" * _refers(body)


def _response_in(data: bytes) -> dict[str, Any] | None:
    """The Response object that the event carries, if any."""
    response: dict[str, Any] | None = orjson.loads(data).get("response")
    return response
