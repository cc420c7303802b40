"""Answers of endpoints that speak the Responses API themselves.

Events pass as they came. What is changed: response ids are the router's, the model has the name
that the client asked for, the fields that say what
the client asked (``store``, ``previous_response_id``, ``metadata`` …) echo the client, sequence
numbers go on where another endpoint's events came before, encrypted content is marked with the
account that issued it or, where the client did not ask for it, taken out, indexes that an endpoint
leaves out are filled in, items whose ids an endpoint repeats or leaves out get ids of the router's,
and the endpoint's own keep-alive events are left out. An event that needs
none of this is passed on byte by byte, and one that is like another before it is not even decoded
(``router.response.text_template``).
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Final

import orjson

from router.dialects.responses.echo import without_credentials
from router.dialects.responses.item_ids import ItemIds
from router.dialects.responses.places import BEGINNINGS, Places
from router.dialects.responses.sealing import blob_of, seal
from router.dialects.responses.streamed import StreamedEvents
from router.errors import RouterError, UpstreamError, UpstreamFailure, UpstreamRejected
from router.response import tokens
from router.response.builder import ResponseBuilder, StreamState, output_text
from router.response.decoder import not_a_stream, reported_failure, upstream_message
from router.response.frame import OPENING, EventTooLarge, Frame, data_of, load_object
from router.response.partial import DELTAS, TEXT_EVENTS

__all__ = [
    "ENDPOINT_ERRORS",
    "ResponsesDecoder",
    "failure_of",
    "unix_seconds",
]

_ECHOED: Final = ("background", "metadata", "previous_response_id", "store")
_TERMINAL: Final = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
_ENDS: Final = tuple(_TERMINAL.values())
_BLANK: Final[dict[str, Any]] = {
    "status": "in_progress",
    "completed_at": None,
    "error": None,
    "incomplete_details": None,
    "output": [],
    "usage": None,
}
"""What an opening snapshot says, whatever the endpoint put there."""

ENDPOINT_ERRORS: Final = frozenset({"server_error", "rate_limit_exceeded"})
"""Codes of answers that failed and say something of their endpoint, not of the request."""

_FIRST_SECOND: Final = 1_000_000_000
_LAST_SECOND: Final = 100_000_000_000


class ResponsesDecoder:
    """Reads native Responses events, or one Response object; see ``router.response.decoder``.

    ``account`` marks encrypted content (see ``seal``); ``redact`` takes the router's own secrets
    out of an endpoint's words. ``hide`` keeps encrypted reasoning from a client that did not ask
    for it: it is taken out of every item and kept, sealed, in ``encrypted_reasoning`` by the item's
    id. ``taken`` are the item ids in the request's history, which no item of the answer may have.
    """

    def __init__(
        self,
        builder: ResponseBuilder,
        account: str,
        redact: Callable[[str], str] = str,
        *,
        hide: bool = False,
        taken: Container[str] = (),
    ) -> None:
        self.builder = builder
        self.error: UpstreamError | None = None
        self.final: dict[str, Any] | None = None
        self.ended = False
        self.encrypted_reasoning: dict[str, str] = {}
        self.usage: dict[str, Any] | None = None
        self.failure: str | None = None
        self._account = account
        self._redact = redact
        self._hide = hide
        self._stream: StreamedEvents | None = None  # an answer in one piece has none
        self._snapshot = b""  # as bytes: a third of the size, for as long as the stream lasts
        self._ids = ItemIds(builder.new_id, taken)
        self._has_output = False

    @property
    def output_chars(self) -> int:
        """See ``StreamDecoder.output_chars``."""
        return tokens.output_chars(self._so_far() if self.final is None else self.final["output"])

    @property
    def has_output(self) -> bool:
        """See ``StreamDecoder.has_output``."""
        return self._has_output

    def feed(self, data: bytes) -> list[Frame]:
        """See ``StreamDecoder.feed``."""
        frames: list[Frame] = []
        if self.error is not None or self.ended:
            return frames
        stream, builder = self._stream or self._begun(), self.builder
        try:
            for block in stream.blocks(data):
                alike = stream.alike
                if alike is not None and (frame := alike.frame(block, builder.sequence)):
                    builder.sequence += 1
                    if stream.keeps:
                        stream.output.said += alike.raw[1:-1]
                    frames.append(frame)
                elif (event := data_of(block)) and self._decoded(block, event, frames):
                    break
        except EventTooLarge as exc:
            self.error = UpstreamFailure(f"The endpoint's stream is broken: {exc}.")
        except UpstreamError as exc:
            self.error = exc
        return frames

    def _begun(self) -> StreamedEvents:
        self._stream = stream = StreamedEvents()
        return stream

    def _decoded(self, block: bytes, data: bytes, frames: list[Frame]) -> bool:
        """An event that is not like the last one, and what can be learned of it; whether it was the
        last.
        """
        stream, before = self._stream, len(frames)
        assert stream is not None
        if stream.alike is not None:
            stream.forget(stream.alike)
        self._event(data, frames)
        if len(frames) == before + 1 and frames[-1].type in TEXT_EVENTS:
            stream.learn(block, frames[-1])
        else:
            stream.last = ""
        return self.ended

    def _so_far(self) -> list[dict[str, Any]]:
        return [] if self._stream is None else self._stream.output.so_far()

    def finish(self) -> list[Frame]:
        """See ``StreamDecoder.finish``."""
        if self.final is None and self.error is None:
            self.error = UpstreamFailure("The endpoint's stream ended before the answer did.")
        return []

    def salvage(self) -> list[Frame]:
        """See ``StreamDecoder.salvage``: a native answer is complete only with its terminal
        event.
        """
        return []

    def whole(self, body: bytes) -> bytes:
        """See ``StreamDecoder.whole``."""
        response = load_object(body, "a response")
        if not isinstance(response.get("output"), list):
            error = response.get("error")
            if error:
                raise reported_failure(response)
            raise UpstreamFailure("The endpoint sent a response without output.")
        status = response.get("status") or "completed"
        if status not in _ENDS:
            raise UpstreamFailure("The endpoint sent a response that is not finished.")
        if status == "failed":
            self._raise_if_endpoints_fault(response)
        return orjson.dumps(self._finish_with(response, status))

    def assembled(self) -> bytes:
        """See ``StreamDecoder.assembled``: the terminal event has all of it."""
        final = self.final
        assert final is not None
        if final["status"] == "failed":
            self._raise_if_endpoints_fault(final)
        return orjson.dumps(final)

    def whole_as_stream(self, body: bytes) -> list[Frame]:
        """See ``StreamDecoder.whole_as_stream``."""
        raise not_a_stream()

    def fail(self, error: RouterError) -> list[Frame]:
        """See ``StreamDecoder.fail``: ``response.failed`` with the output so far."""
        if self.builder.state is StreamState.ENDED:
            return []
        base = orjson.loads(self._snapshot) if self._snapshot else None
        frames = self.builder.fail(error, self._so_far(), base=base)
        self.final = self.builder.final
        self.ended = self.final is not None
        return frames

    def _event(self, data: bytes, frames: list[Frame]) -> None:
        event = load_object(data, "a stream event")
        kind = event.get("type")
        if not isinstance(kind, str) or kind not in DELTAS or event.get("error"):
            if kind == "keepalive":
                return
            kind = _kind_of(event)
            if kind in OPENING:
                self._open(event["response"], frames)
                return
        builder = self.builder
        if builder.state is StreamState.NEW:
            frames.extend(builder.open())
        changed = self._follow(kind, event)
        if builder.muted:
            return
        if event.get("sequence_number") != builder.sequence:
            event["sequence_number"] = builder.sequence
            changed = True
        if "response_id" in event:
            event["response_id"] = builder.id
            changed = True
        builder.sequence += 1
        if changed or b"\n" in data:  # an event that came in several data lines goes out in one
            frames.append(Frame.of(event))
        else:
            frames.append(Frame(kind, data, event))

    def _open(self, response: dict[str, Any], frames: list[Frame]) -> None:
        """The first of an endpoint's opening events makes the router's two; the rest is silence.

        Nothing is said when another endpoint's beginning, or the router's own, went out before.
        """
        if self._snapshot:
            return
        builder = self.builder
        created_at = unix_seconds(response.get("created_at"))
        # An answer in one piece is dated by the router, however it came.
        if created_at is not None and not (builder.dated or builder.muted):
            builder.created_at = created_at
        snapshot = self._ours({**response, **_BLANK})
        # Copied: what orjson returns keeps the whole buffer it was written into.
        self._snapshot = bytes(memoryview(orjson.dumps(snapshot)))
        if builder.state is StreamState.NEW:
            frames.extend(builder.open(snapshot))

    def _lifecycle(self, kind: str, event: dict[str, Any], response: dict[str, Any]) -> None:
        """Rewrite the response inside an event."""
        status = _TERMINAL.get(kind)
        if status is None:
            self._has_output = True
            event["response"] = self._ours(response)
            return
        if status == "failed" and not self._has_output:
            self._raise_if_endpoints_fault(response)
        event["response"] = self._finish_with(response, status)
        self.builder.advance(StreamState.ENDED)

    def _finish_with(self, response: dict[str, Any], status: str) -> dict[str, Any]:
        """The final Response object. Some servers leave out of it what they streamed."""
        final = self._ours({**response, "status": status})
        output = final["output"]
        if not output and self._stream is not None:
            output = final["output"] = list(self._stream.output.items)
        final["output_text"] = output_text(output)
        if self.builder.messages is not None:
            self.builder.add_messages(final)
        if status == "completed" and final.get("completed_at") is None:
            final["completed_at"] = int(self.builder.now())
        final["usage"] = self.usage = tokens.from_response(final.get("usage"))
        if status == "failed":
            final["error"] = self._endpoints_error(final.get("error"))
            self.failure = final["error"]["code"]
        self.final = final
        self.ended = True
        return final

    def _endpoints_error(self, error: Any) -> dict[str, Any]:
        """The ``error`` of an answer that failed at the endpoint, safe to pass on."""
        plain = UpstreamFailure(self._redact(upstream_message(error))).response_error()
        if isinstance(error, dict) and isinstance(error.get("code"), str):
            plain["code"] = error["code"]
        return plain

    def _ours(self, response: dict[str, Any]) -> dict[str, Any]:
        """An endpoint's Response object as the router's own."""
        builder, echo = self.builder, self.builder.echo
        merged = builder.snapshot("in_progress")
        # An endpoint that says nothing of a field has not contradicted the request.
        unsaid = [name for name, value in response.items() if value is None and name in merged]
        merged |= response | {name: merged[name] for name in unsaid}
        if builder.shown:
            merged |= builder.shown
        merged["id"] = builder.id
        merged["created_at"] = builder.created_at
        merged["model"] = echo["model"]
        if merged["tools"]:
            merged["tools"] = without_credentials(merged["tools"])
        for name in _ECHOED:
            merged[name] = echo[name]
        for name in ("conversation", "prompt"):
            merged.pop(name, None)
            if name in echo:
                merged[name] = echo[name]
        output = merged["output"]
        items = output if isinstance(output, list) else []
        merged["output"] = [item for item in items if isinstance(item, dict)]
        self._ids.rename_output(merged["output"])
        for item in merged["output"]:
            self._seal(item)
        merged["output_text"] = ""
        return merged

    def _seal(self, item: Any, *, done: bool = True) -> bool:
        """Seal or hide the item's encrypted content; True when there was some."""
        blob = blob_of(item)
        if blob is None:
            return False
        sealed = seal(blob, self._account)
        if self._hide and item["type"] == "reasoning":
            del item["encrypted_content"]
            # What an item begins with is not what it ends with.
            if done and isinstance(item.get("id"), str):
                self.encrypted_reasoning[item["id"]] = sealed
        else:
            item["encrypted_content"] = sealed
        return True

    def _follow(self, kind: str, event: dict[str, Any]) -> bool:
        """Keep what is needed for ``fail``; True when the event had to be changed."""
        stream, field = self._stream, DELTAS.get(kind)
        assert stream is not None
        if field is not None:
            self._has_output = True
            stream.output.delta(field, event)
            return self._locate(kind, event, stream.places)
        response = event.get("response")
        if isinstance(response, dict):
            self._lifecycle(kind, event, response)
            return True
        self._has_output = True
        located = self._locate(kind, event, stream.places)
        stream.output.follow(kind, event)
        return self._seal(event.get("item"), done=kind != "response.output_item.added") or located

    def _locate(self, kind: str, event: dict[str, Any], places: Places) -> bool:
        """Say where in the output the event belongs, where the endpoint does not or not well."""
        located = False
        if kind in BEGINNINGS or (
            places.missing and (kind in DELTAS or "item_id" in event or "item" in event)
        ):
            located = places.fill(kind, event)
        if "item" in event or (
            self._ids.active and ("item_id" in event or "output_index" in event)
        ):
            located = self._ids.rename(kind, event) or located
        return located

    def _raise_if_endpoints_fault(self, response: dict[str, Any]) -> None:
        """An answer that failed at the endpoint before any output may succeed at another; one
        that failed by the request's fault is passed on.
        """
        error = response.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        if not isinstance(code, str) or code in ENDPOINT_ERRORS:
            raise reported_failure(error)


def failure_of(error: Any) -> UpstreamError:
    """The error for a response that failed: the endpoint's fault, or else the request's."""
    failure = reported_failure(error)
    code = error.get("code") if isinstance(error, dict) else None
    if type(failure) is UpstreamFailure and isinstance(code, str) and code not in ENDPOINT_ERRORS:
        return UpstreamRejected.quoting(failure.message, code=code)
    return failure


def unix_seconds(value: Any) -> int | None:
    """A time that an endpoint names; None for what can be none."""
    if isinstance(value, int | float) and _FIRST_SECOND <= value <= _LAST_SECOND:
        return int(value)
    return None


def _kind_of(event: dict[str, Any]) -> str:
    """The event's type; raises UpstreamError for an error, and for what is no event."""
    kind = event.get("type")
    if kind == "error" or event.get("error"):
        raise reported_failure(event)
    if not isinstance(kind, str) or not kind or not kind.isprintable():
        raise UpstreamFailure("The endpoint sent a stream event without a type.")
    if (kind in OPENING or kind in _TERMINAL) and not isinstance(event.get("response"), dict):
        raise UpstreamFailure(f"The endpoint sent '{kind}' without a response.")
    return kind
