"""Clients that ask one thing after the other, and keep a record of each."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any, Final

import orjson

from tests.chaos.records import Api, Record
from tests.chaos.upstream import MODELS
from tests.crash.client import Answer, Client, Frames, Lost
from tests.support.speech import SPEECH
from tests.support.sse import Event, check_responses_stream, parse_events

__all__ = ["Load"]

_API_MIX: Final[dict[Api, int]] = {"responses": 3, "chat": 1}
_STREAMED: Final = 0.75
_MODEL_MIX: Final = (3, 1)
_PATHS: Final = {"responses": "/responses", "chat": "/chat/completions"}
_LEAVERS: Final = 0.03
"""The share of requests whose client leaves within a second, unless it has its answer by then."""

_COMES_AGAIN: Final = (0.2, 0.6)
"""Seconds that a client waits after it was refused."""

_NO_OUTPUT: Final = ("response.created", "response.queued", "response.in_progress")
_TEXT: Final = SPEECH["chat"].text


class Load:
    """``clients`` clients, each of which thinks for up to ``think`` seconds between two requests.

    A request that is not over after ``patience`` seconds is recorded as hung.
    """

    def __init__(
        self,
        client: Client,
        rng: random.Random,
        apis: Sequence[Api],
        *,
        clients: int,
        think: float,
        patience: float,
    ) -> None:
        self.records: list[Record] = []
        self._client = client
        self._rng = rng
        self._apis = {api: share for api, share in _API_MIX.items() if api in apis}
        self._clients = clients
        self._think = think
        self._patience = patience
        self._stopping = False

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopping = True

    async def run(self) -> None:
        """Ask until told to stop; whatever has begun then is seen through to its end."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._clients):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(0, self._think))
            if self._stopping:
                return
            record = self._new()
            await self._ask(record)
            if record.outcome == "refused":
                await asyncio.sleep(self._rng.uniform(*_COMES_AGAIN))

    def _new(self) -> Record:
        (api,) = self._rng.choices(list(self._apis), list(self._apis.values()))
        stream = self._rng.random() < _STREAMED
        (model,) = self._rng.choices(MODELS, _MODEL_MIX)
        leaves = self._rng.uniform(0.01, 1.0) if self._rng.random() < _LEAVERS else None
        record = Record(len(self.records), api, stream, model, time.monotonic(), leaves)
        self.records.append(record)
        return record

    async def _ask(self, record: Record) -> None:
        try:
            async with asyncio.timeout(record.leaves or self._patience):
                if record.stream:
                    await self._stream(record)
                else:
                    _whole(record, await self._client.call("POST", *_request(record)))
        except TimeoutError as error:
            record.outcome = "left" if record.leaves else "hung"
            record.error = str(error) or f"no end after {self._patience:g} s"
        except Lost as error:
            record.outcome, record.error = "lost", str(error)
        except (AssertionError, KeyError, ValueError) as error:
            record.faults.append(f"{type(error).__name__}: {error}")
        finally:
            record.ended = time.monotonic()

    async def _stream(self, record: Record) -> None:
        async with self._client.stream("POST", *_request(record)) as frames:
            if isinstance(frames, Answer):
                _whole(record, frames)
                return
            record.status = 200
            _who(record, frames)
            events = []
            async for frame in frames:
                (event,) = parse_events(frame + b"\n\n")
                _clock(record, event)
                events.append(event)
        if record.api == "chat":
            _end_of_chat(record, events)
        else:
            _end_of_responses(record, events)


def _request(record: Record) -> tuple[str, dict[str, Any]]:
    """Path and body; the number in the text is how backends tell which request it is."""
    text = f"request {record.number}"
    body: dict[str, Any] = {"model": record.model, "stream": record.stream}
    if record.api == "responses":
        body |= {"input": text, "store": False}
    else:
        body |= {"messages": [{"role": "user", "content": text}]}
    return _PATHS[record.api], body


def _who(record: Record, answer: Answer | Frames) -> None:
    if "X-Request-Id" not in answer.headers:
        record.faults.append("the answer has no X-Request-Id")
    record.endpoint = answer.headers.get("X-Pointsman-Endpoint", "")
    record.attempts = int(answer.headers.get("X-Pointsman-Attempts", "0"))


def _whole(record: Record, answer: Answer) -> None:
    """An answer in one piece: what a stream gets, too, when it is refused."""
    record.status = answer.status
    _who(record, answer)
    if answer.status != 200:
        record.outcome, record.error = "refused", _message(answer.json)
        return
    record.outcome = "ok"
    if record.stream:
        record.faults.append("the answer is no stream")
    elif record.api == "chat":
        _check_text(record, answer.json["choices"][0]["message"]["content"])
    else:
        _check_text(record, answer.json["output_text"])


def _clock(record: Record, event: Event) -> None:
    """Note when it came; ``silence`` is kept since the first output."""
    now = time.monotonic()
    if record.first_output <= now:
        record.silence = max(record.silence, now - record.ended)
    elif not (event.type in _NO_OUTPUT or _is_error(event)):
        record.first_output = now
    record.ended = now


def _is_error(event: Event) -> bool:
    return event.type == "response.failed" or "error" in (event.data or ())


def _end_of_responses(record: Record, events: list[Event]) -> None:
    if not events or not events[-1].type.endswith((".completed", ".failed", ".incomplete")):
        record.outcome, record.error = "mute", f"ended after {[e.type for e in events[-2:]]}"
        return
    final = check_responses_stream(events)
    if final["status"] == "completed":
        record.outcome = "ok"
        _check_text(record, final["output_text"])
        return
    _failed(record, final["error"]["message"])


def _end_of_chat(record: Record, events: list[Event]) -> None:
    if not events:
        record.outcome, record.error = "mute", "an empty stream"
    elif _is_error(events[-1]):
        _failed(record, _message(events[-1].json))
    elif events[-1].data is not None:
        record.outcome, record.error = "mute", f"ended after {events[-1].raw[:200]!r}"
    else:
        record.outcome = "ok"
        choices = [choice for event in events[:-1] for choice in event.json["choices"]]
        _check_text(record, "".join(c["delta"].get("content") or "" for c in choices))


def _failed(record: Record, message: str) -> None:
    """The stream ended with an error; whether that is one depends on what came before."""
    record.outcome = "cut" if record.first_output < float("inf") else "refused"
    record.error = message


def _message(body: dict[str, Any]) -> str:
    error = body.get("error")
    return str(error.get("message")) if isinstance(error, dict) else orjson.dumps(body).decode()


def _check_text(record: Record, text: str) -> None:
    if text != _TEXT:
        record.faults.append(f"the text is {text!r}")
