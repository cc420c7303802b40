"""What the cache has to know of an API to answer in its place.

A surface reads a request, makes a canonical answer of what its clients were sent, and renders one
for a client. Further surfaces join by being added to ``SURFACES``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson

from cache.request import (
    Bypass,
    CachedAnswer,
    CacheRequest,
    from_chat,
    from_completions,
    from_embeddings,
    from_responses,
)
from cache.vectors import VectorAnswer
from plugins.response_cache.shared_call import CapturedOutput
from router.plugin import (
    CACHE_RULES,
    TERMINAL,
    AnswerKind,
    ChatFollower,
    Exchange,
    Frame,
    ResponseBuilder,
    ResponseFollower,
    RouterError,
    StreamState,
    answer_of_chat,
    chat_chunks,
    chat_completion,
    completion_chunks,
    finished_completion,
    new_builder,
    replay_response,
)

__all__ = ["SURFACES", "CallResult", "Rendering", "Surface"]


_WITH_USAGE: Final = {"include_usage": True}


class Rendering(Protocol):
    """One answer, told to one client in the form it asked for.

    ``builder``, ``final`` and ``encrypted_reasoning`` are what its record is given, where it has
    one.
    """

    builder: ResponseBuilder | None
    final: dict[str, Any] | None
    encrypted_reasoning: Mapping[str, str]

    def opening(self) -> list[Frame]:
        """What a stream begins with while there is no output yet."""
        ...

    def replay(self, answer: CachedAnswer) -> list[Frame]:
        """A whole stream of a canonical answer, less what ``opening`` has told."""
        ...

    def whole(self, answer: CachedAnswer) -> bytes:
        """The body of a canonical answer."""
        ...

    def follow(self, batch: Sequence[Frame]) -> list[Frame]:
        """Events that another client is sent, as this one's."""
        ...

    def follow_whole(self, body: bytes) -> bytes:
        """The body that another client is sent, as this one's."""
        ...

    def fail(self, error: RouterError, output: list[dict[str, Any]]) -> list[Frame]:
        """The end of a stream that cannot go on, with the output so far."""
        ...


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call brought: its final Response object where that is known, and what is
    ``encrypted_reasoning`` of that, its body or its events, its ``usage`` as a Response has it, and
    the model that answered.
    """

    final: dict[str, Any] | None
    encrypted_reasoning: Mapping[str, str]
    body: bytes
    frames: Sequence[Frame]
    usage: dict[str, Any] | None
    model: str


class Surface(Protocol):
    """See the module."""

    def request(self, body: dict[str, Any]) -> CacheRequest | Bypass:
        """The canonical request, or why it has none."""
        ...

    def carried(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body of a call whose answer is told to others, too, and kept."""
        ...

    def rendering(self, exchange: Exchange) -> Rendering:
        """How this client is answered."""
        ...

    def leading(self, exchange: Exchange, carrier: Exchange) -> Rendering:
        """How the client is answered for whom the carrier's call is made."""
        ...

    def answer(self, told: CallResult) -> CachedAnswer | None:
        """What was answered; None for what is no complete answer, or none to be given again."""
        ...


class _ResponsesSurface:
    def request(self, body: dict[str, Any]) -> CacheRequest | Bypass:
        return from_responses(body, CACHE_RULES)

    def carried(self, body: dict[str, Any]) -> dict[str, Any]:
        return body

    def rendering(self, exchange: Exchange) -> Rendering:
        return _ResponseRendering(exchange)

    def leading(self, exchange: Exchange, carrier: Exchange) -> Rendering:
        return _LeadingResponse(exchange, carrier)

    def answer(self, told: CallResult) -> CachedAnswer | None:
        response = told.final
        if response is None and told.body:
            response = _object(orjson.loads(told.body))
        elif response is None and told.frames and told.frames[-1].type == "response.completed":
            response = _object(told.frames[-1].json().get("response"))
        return (
            None
            if response is None
            else CachedAnswer.of_response(response, told.encrypted_reasoning, CACHE_RULES)
        )


class _ResponseRendering:
    def __init__(self, exchange: Exchange) -> None:
        self.builder: ResponseBuilder | None = exchange.builder or new_builder(
            exchange.body, muted=not exchange.stream
        )
        self.final: dict[str, Any] | None = None
        self.encrypted_reasoning: Mapping[str, str] = {}
        self._follower: ResponseFollower | None = None

    def opening(self) -> list[Frame]:
        return self._builder.open()

    def replay(self, answer: CachedAnswer) -> list[Frame]:
        played = replay_response(self._builder, _told(answer))
        self.final, self.encrypted_reasoning = played.final, played.encrypted_reasoning
        return played.frames

    def whole(self, answer: CachedAnswer) -> bytes:
        self.replay(answer)
        return orjson.dumps(self.final)

    def follow(self, batch: Sequence[Frame]) -> list[Frame]:
        follower = self._following()
        frames = follower.frames(batch)
        self.final = follower.final
        return frames

    def follow_whole(self, body: bytes) -> bytes:
        self.final = self._following().whole(orjson.loads(body))
        return orjson.dumps(self.final)

    def fail(self, error: RouterError, output: list[dict[str, Any]]) -> list[Frame]:
        if self._follower is None:
            frames = self._builder.fail(error, output)
            self.final = self._builder.final
            return frames
        frames = self._follower.fail(error)
        self.final = self._follower.final
        return frames

    @property
    def _builder(self) -> ResponseBuilder:
        assert self.builder is not None
        return self.builder

    def _following(self) -> ResponseFollower:
        if self._follower is None:
            self._follower = ResponseFollower(self._builder)
        return self._follower


class _LeadingResponse(_ResponseRendering):
    """The call is made with this client's own response builder: what comes is its own already."""

    def __init__(self, exchange: Exchange, carrier: Exchange) -> None:
        super().__init__(exchange)
        self._carrier = carrier
        carrier.builder = self.builder

    def follow(self, batch: Sequence[Frame]) -> list[Frame]:
        if batch[-1].type in TERMINAL:
            self.final = batch[-1].json()["response"]
            self.builder = self._carrier.builder  # a hedged call goes on with a copy
        return list(batch)

    def follow_whole(self, body: bytes) -> bytes:
        record = self._carrier.record
        if isinstance(record, CapturedOutput):
            self.final = record.final
        return body

    def fail(self, error: RouterError, output: list[dict[str, Any]]) -> list[Frame]:
        self.builder = copy(self._carrier.builder)  # others may go on with the call
        if self._builder.state is StreamState.ENDED:
            return []
        return super().fail(error, output)


class _ChatSurface:
    def request(self, body: dict[str, Any]) -> CacheRequest | Bypass:
        return from_chat(body, CACHE_RULES)

    def carried(self, body: dict[str, Any]) -> dict[str, Any]:
        if not body.get("stream"):
            return body
        # Those who do not want the usage are spared it; who wants it could not be given it.
        return {**body, "stream_options": {**(body.get("stream_options") or {}), **_WITH_USAGE}}

    def rendering(self, exchange: Exchange) -> Rendering:
        return _ChatRendering(exchange)

    def leading(self, exchange: Exchange, carrier: Exchange) -> Rendering:
        return _ChatRendering(exchange)

    def answer(self, told: CallResult) -> CachedAnswer | None:
        sent = told.body or [frame.data for frame in told.frames]
        response = answer_of_chat(sent, usage=told.usage)
        return None if response is None else CachedAnswer.of_response(response, {}, CACHE_RULES)


class _ChatRendering:
    prefix = "chatcmpl"
    builder: ResponseBuilder | None = None
    final: dict[str, Any] | None = None
    encrypted_reasoning: Mapping[str, str] = {}

    def __init__(self, exchange: Exchange) -> None:
        options = exchange.body.get("stream_options") or {}
        self._wants_usage = bool(options.get("include_usage"))
        self._id = f"{self.prefix}-{os.urandom(12).hex()}"
        self._follower = ChatFollower(self._id, self._wants_usage)

    def opening(self) -> list[Frame]:
        return []

    def replay(self, answer: CachedAnswer) -> list[Frame]:
        return chat_chunks(
            _told(answer),
            id=self._id,
            created=int(time.time()),
            include_usage=self._wants_usage,
        )

    def whole(self, answer: CachedAnswer) -> bytes:
        return orjson.dumps(chat_completion(_told(answer), id=self._id, created=int(time.time())))

    def follow(self, batch: Sequence[Frame]) -> list[Frame]:
        return self._follower.frames(batch)

    def follow_whole(self, body: bytes) -> bytes:
        return self._follower.whole(body)

    def fail(self, error: RouterError, output: list[dict[str, Any]]) -> list[Frame]:
        return [Frame("", orjson.dumps(error.envelope()))]


class _CompletionsSurface(_ChatSurface):
    def request(self, body: dict[str, Any]) -> CacheRequest | Bypass:
        return from_completions(body, CACHE_RULES)

    def rendering(self, exchange: Exchange) -> Rendering:
        return _CompletionRendering(exchange)

    def leading(self, exchange: Exchange, carrier: Exchange) -> Rendering:
        return _CompletionRendering(exchange)

    def answer(self, told: CallResult) -> CachedAnswer | None:
        whole = finished_completion(told.body or [frame.data for frame in told.frames])
        if whole is None:
            return None
        return VectorAnswer.of_body(whole["model"], told.usage, orjson.dumps(whole))


class _CompletionRendering(_ChatRendering):
    prefix = "cmpl"

    def replay(self, answer: CachedAnswer) -> list[Frame]:
        return completion_chunks(self._own(answer), include_usage=self._wants_usage)

    def whole(self, answer: CachedAnswer) -> bytes:
        return orjson.dumps(self._own(answer))

    def _own(self, answer: CachedAnswer) -> dict[str, Any]:
        assert isinstance(answer, VectorAnswer)
        return {**orjson.loads(answer.body), "id": self._id, "created": int(time.time())}


class _EmbeddingsSurface:
    def request(self, body: dict[str, Any]) -> CacheRequest | Bypass:
        return from_embeddings(body, CACHE_RULES)

    def carried(self, body: dict[str, Any]) -> dict[str, Any]:
        return body

    def rendering(self, exchange: Exchange) -> Rendering:
        return _UnchangedRendering()

    def leading(self, exchange: Exchange, carrier: Exchange) -> Rendering:
        return _UnchangedRendering()

    def answer(self, told: CallResult) -> CachedAnswer | None:
        if not told.body:
            return None
        return VectorAnswer.of_body(told.model, told.usage, told.body)


class _UnchangedRendering:
    """There is nothing of one client's in it, and it is never a stream."""

    builder: ResponseBuilder | None = None
    final: dict[str, Any] | None = None
    encrypted_reasoning: Mapping[str, str] = {}

    def opening(self) -> list[Frame]:
        return []

    def replay(self, answer: CachedAnswer) -> list[Frame]:
        return []

    def whole(self, answer: CachedAnswer) -> bytes:
        assert isinstance(answer, VectorAnswer)
        return answer.body

    def follow(self, batch: Sequence[Frame]) -> list[Frame]:
        return []

    def follow_whole(self, body: bytes) -> bytes:
        return body

    def fail(self, error: RouterError, output: list[dict[str, Any]]) -> list[Frame]:
        return []


def _told(answer: CachedAnswer) -> dict[str, Any]:
    return {
        "model": answer.model,
        "output": answer.output,
        "usage": answer.usage,
        "fields": answer.fields,
        "hidden": answer.encrypted_reasoning,
    }


def _object(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


SURFACES: Final[Mapping[AnswerKind, Surface]] = {
    AnswerKind.RESPONSE: _ResponsesSurface(),
    AnswerKind.CHAT: _ChatSurface(),
    AnswerKind.COMPLETIONS: _CompletionsSurface(),
    AnswerKind.EMBEDDINGS: _EmbeddingsSurface(),
}
