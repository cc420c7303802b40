"""What the cache has to know of an API to answer in its place.

A surface reads a request, makes a canonical answer of what its clients were sent, and renders one
for a client. Further surfaces join by being added to ``SURFACES``. ``tell`` sends a client a whole
answer, as its rendering has it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson

from cache.request import (
    Bypass,
    CachedAnswer,
    CacheRequest,
    from_completions,
    from_embeddings,
    from_responses,
)
from cache.vectors import VectorAnswer
from router.plugin import (
    CACHE_RULES,
    ID_DIGITS,
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
    new_id,
    replay_response,
)

if TYPE_CHECKING:
    from plugins.response_cache.shared_call import SharedCall

__all__ = ["SURFACES", "Rendering", "Surface"]


class Rendering(Protocol):
    """One answer, told to one client in the form it asked for."""

    @property
    def builder(self) -> ResponseBuilder | None:
        """The response builder of the answer, where it is a Response."""
        ...

    @property
    def final(self) -> dict[str, Any] | None:
        """The Response object, once it is whole."""
        ...

    @property
    def encrypted_reasoning(self) -> Mapping[str, str]:
        """Its encrypted reasoning by item id, which is stored but was not shown."""
        ...

    @property
    def ids(self) -> Sequence[str]:
        """The ids in a told answer that every answer has for itself, its own first."""
        ...

    @property
    def times(self) -> Mapping[str, int]:
        """Its times by field, in Unix seconds; each is that of the telling."""
        ...

    def renew(self) -> Callable[[], list[str]]:
        """What makes as many new ids, in that order."""
        ...

    def opening(self) -> list[Frame]:
        """What a stream begins with while there is no output yet."""
        ...

    def replay(self, answer: CachedAnswer) -> list[Frame]:
        """A whole stream of a canonical answer, less what ``opening`` has told."""
        ...

    def whole(self, answer: CachedAnswer) -> bytes:
        """The body of a canonical answer."""
        ...

    def follow(self, batch: list[Frame]) -> list[Frame]:
        """Events that another client is sent, as this one's; ``batch`` belongs to it then."""
        ...

    def follow_whole(self, body: bytes) -> bytes:
        """The body that another client is sent, as this one's."""
        ...

    def fail(self, error: RouterError, output: list[dict[str, Any]]) -> list[Frame]:
        """The end of a stream that cannot go on, with the output so far."""
        ...


@dataclass(frozen=True, slots=True)
class Surface:
    """One API. ``request`` makes a canonical request of a body, or says why there is none; where it
    is ``decoded`` to a Responses request first, of that one and of what is kept beside it.
    ``rendering`` is how the client of an exchange is answered; it is given the call, too, where
    that is made for this client. ``answer`` is what a call brought; None for what is no complete
    answer, or none to be given again.

    ``asks_for_usage``: its streams tell the usage only where ``stream_options`` ask for it.
    """

    request: Callable[..., CacheRequest | Bypass]
    rendering: Callable[[Exchange, SharedCall | None], Rendering]
    answer: Callable[[SharedCall], CachedAnswer | None]
    asks_for_usage: bool = False
    decoded: bool = False


class _ResponseRendering:
    """``own`` is the call that is made with this client's own response builder: what it brings is
    this client's already.
    """

    def __init__(self, exchange: Exchange, own: SharedCall | None) -> None:
        self.builder: ResponseBuilder = exchange.builder or new_builder(
            exchange.body, muted=not exchange.stream
        )
        self.final: dict[str, Any] | None = None
        self.encrypted_reasoning: Mapping[str, str] = {}
        self._follower: ResponseFollower | None = None
        self._own = own
        if own is not None:
            own.carrier.builder = self.builder

    @property
    def ids(self) -> list[str]:
        output = self.final["output"] if self.final is not None else ()
        return [self.builder.id, *[item["id"] for item in output]]

    @property
    def times(self) -> Mapping[str, int]:
        final = self.final or {}
        return {name: final[name] for name in ("created_at", "completed_at") if name in final}

    def renew(self) -> Callable[[], list[str]]:
        prefixes = [ident[:-ID_DIGITS] for ident in self.ids]
        return lambda: [new_id(prefix) for prefix in prefixes]

    def opening(self) -> list[Frame]:
        return self.builder.open()

    def replay(self, answer: CachedAnswer) -> list[Frame]:
        played = replay_response(self.builder, _told(answer))
        self.final, self.encrypted_reasoning = played.final, played.encrypted_reasoning
        return played.frames

    def whole(self, answer: CachedAnswer) -> bytes:
        self.replay(answer)
        return orjson.dumps(self.final)

    def follow(self, batch: list[Frame]) -> list[Frame]:
        if self._own is None:
            follower = self._following()
            frames = follower.frames(batch)
            self.final = follower.final
            return frames
        if batch[-1].type in TERMINAL:
            self.final = batch[-1].json()["response"]
            # A hedged call goes on with a copy.
            self.builder = self._own.carrier.builder or self.builder
        return batch

    def follow_whole(self, body: bytes) -> bytes:
        if self._own is None:
            self.final = self._following().whole(orjson.loads(body))
            return orjson.dumps(self.final)
        self.final = self._own.captured.final
        return body

    def fail(self, error: RouterError, output: list[dict[str, Any]]) -> list[Frame]:
        if self._own is not None:
            # Copied: others may go on with the call.
            self.builder = copy(self._own.carrier.builder or self.builder)
            if self.builder.state is StreamState.ENDED:
                return []
        if self._follower is None:
            frames = self.builder.fail(error, output)
            self.final = self.builder.final
            return frames
        frames = self._follower.fail(error)
        self.final = self._follower.final
        return frames

    def _following(self) -> ResponseFollower:
        if self._follower is None:
            self._follower = ResponseFollower(self.builder)
        return self._follower


class _ChatRendering:
    prefix = "chatcmpl"
    builder: ResponseBuilder | None = None
    final: dict[str, Any] | None = None
    encrypted_reasoning: Mapping[str, str] = {}

    def __init__(self, exchange: Exchange, own: SharedCall | None) -> None:
        options = exchange.body.get("stream_options") or {}
        self._wants_usage = bool(options.get("include_usage"))
        self._id = _chat_id(self.prefix)
        self._created = int(time.time())
        self._follower = ChatFollower(self._id, self._wants_usage)

    @property
    def ids(self) -> list[str]:
        return [self._id]

    @property
    def times(self) -> Mapping[str, int]:
        return {"created": self._created}

    def renew(self) -> Callable[[], list[str]]:
        return lambda: [_chat_id(self.prefix)]

    def opening(self) -> list[Frame]:
        return []

    def replay(self, answer: CachedAnswer) -> list[Frame]:
        return chat_chunks(
            _told(answer),
            id=self._id,
            created=self._created,
            include_usage=self._wants_usage,
        )

    def whole(self, answer: CachedAnswer) -> bytes:
        return orjson.dumps(chat_completion(_told(answer), id=self._id, created=self._created))

    def follow(self, batch: list[Frame]) -> list[Frame]:
        return self._follower.frames(batch)

    def follow_whole(self, body: bytes) -> bytes:
        return self._follower.whole(body)

    def fail(self, error: RouterError, output: list[dict[str, Any]]) -> list[Frame]:
        return [Frame("", orjson.dumps(error.envelope()))]


class _CompletionRendering(_ChatRendering):
    prefix = "cmpl"

    def replay(self, answer: CachedAnswer) -> list[Frame]:
        return completion_chunks(self._own(answer), include_usage=self._wants_usage)

    def whole(self, answer: CachedAnswer) -> bytes:
        return orjson.dumps(self._own(answer))

    def _own(self, answer: CachedAnswer) -> dict[str, Any]:
        assert isinstance(answer, VectorAnswer)
        return {**orjson.loads(answer.body), "id": self._id, "created": self._created}


class _UnchangedRendering:
    """There is nothing of one client's in it, and it is never a stream."""

    def __init__(self, exchange: Exchange, own: SharedCall | None) -> None:
        """Nothing is different from one client to the next."""

    builder: ResponseBuilder | None = None
    final: dict[str, Any] | None = None
    encrypted_reasoning: Mapping[str, str] = {}
    ids: Sequence[str] = ()
    times: Mapping[str, int] = {}

    def renew(self) -> Callable[[], list[str]]:
        return list

    def opening(self) -> list[Frame]:
        return []

    def replay(self, answer: CachedAnswer) -> list[Frame]:
        return []

    def whole(self, answer: CachedAnswer) -> bytes:
        assert isinstance(answer, VectorAnswer)
        return answer.body

    def follow(self, batch: list[Frame]) -> list[Frame]:
        return []

    def follow_whole(self, body: bytes) -> bytes:
        return body

    def fail(self, error: RouterError, output: list[dict[str, Any]]) -> list[Frame]:
        return []


def _chat_id(prefix: str) -> str:
    return f"{prefix}-{os.urandom(12).hex()}"


def _told(answer: CachedAnswer) -> dict[str, Any]:
    return {
        "model": answer.model,
        "output": answer.output,
        "usage": answer.usage,
        "fields": answer.fields,
        "hidden": answer.encrypted_reasoning,
    }


def _answer_of_response(call: SharedCall) -> CachedAnswer | None:
    captured = call.captured
    response: Any = captured.final
    if response is None and call.body:
        response = orjson.loads(call.body)
    elif response is None and call.whole and call.whole[-1].type == "response.completed":
        response = call.whole[-1].json().get("response")
    if not isinstance(response, dict):
        return None
    return CachedAnswer.of_response(
        response, captured.encrypted_reasoning, CACHE_RULES, hosted=call.hosted
    )


def _answer_of_chat(call: SharedCall) -> CachedAnswer | None:
    sent = call.body or [frame.data for frame in call.whole]
    response = answer_of_chat(sent, usage=call.carrier.result.usage)
    return None if response is None else CachedAnswer.of_response(response, {}, CACHE_RULES)


def _answer_of_completion(call: SharedCall) -> CachedAnswer | None:
    whole = finished_completion(call.body or [frame.data for frame in call.whole])
    if whole is None:
        return None
    return VectorAnswer.of_body(whole["model"], call.carrier.result.usage, orjson.dumps(whole))


def _answer_of_embeddings(call: SharedCall) -> CachedAnswer | None:
    if not call.body:
        return None
    return VectorAnswer.of_body(call.carrier.shown_model, call.carrier.result.usage, call.body)


SURFACES: Final[Mapping[AnswerKind, Surface]] = {
    AnswerKind.RESPONSE: Surface(from_responses, _ResponseRendering, _answer_of_response),
    AnswerKind.CHAT: Surface(
        from_responses, _ChatRendering, _answer_of_chat, asks_for_usage=True, decoded=True
    ),
    AnswerKind.COMPLETIONS: Surface(
        from_completions, _CompletionRendering, _answer_of_completion, asks_for_usage=True
    ),
    AnswerKind.EMBEDDINGS: Surface(from_embeddings, _UnchangedRendering, _answer_of_embeddings),
}
