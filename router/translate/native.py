"""Answers of endpoints that speak the Responses API themselves.

Events pass as they came. What is changed: response ids are the router's, the fields that say what
the client asked (``store``, ``previous_response_id``, ``metadata`` …) echo the client, sequence
numbers go on where another endpoint's events came before, encrypted reasoning is marked with the
account that issued it, and the endpoint's own keep-alive events are left out. A frame that needs
none of this is passed on byte by byte.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from router.errors import RouterError, UpstreamError, UpstreamFailure, UpstreamRateLimited
from router.translate.draft import Draft, output_text
from router.translate.reader import load_object, not_a_stream, upstream_message
from router.translate.states import State
from router.wire.frame import Frame
from router.wire.sse import EventTooLarge, SSEDecoder

__all__ = ["ACCOUNT_MARK", "NativeReader", "seal", "unseal"]

ACCOUNT_MARK: Final = "swy1."
"""What a marked ``encrypted_content`` begins with: ``swy1.ACCOUNT.BLOB``."""

_ECHOED: Final = ("background", "metadata", "previous_response_id", "store")
_CONSTANT: Final = ("instructions", "tools")
_OPENING: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_TERMINAL: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_ENDPOINT_ERRORS: Final = frozenset({"server_error", "rate_limit_exceeded"})
_DELTAS: Final = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
}


def seal(blob: str, account: str) -> str:
    """Mark encrypted reasoning with the account that issued it."""
    return f"{ACCOUNT_MARK}{account}.{blob}"


def unseal(blob: str) -> tuple[str | None, str]:
    """The account in a marked blob (None where there is no mark) and the blob itself."""
    if blob.startswith(ACCOUNT_MARK):
        account, dot, rest = blob[len(ACCOUNT_MARK) :].partition(".")
        if dot:
            return account, rest
    return None, blob


class NativeReader:
    """Reads native Responses events, or one Response object; see ``router.translate.reader``."""

    def __init__(self, draft: Draft, account: str) -> None:
        self.draft = draft
        self.error: UpstreamError | None = None
        self.final: dict[str, Any] | None = None
        self.usage: dict[str, Any] | None = None
        self._account = account
        self._decoder = SSEDecoder()
        self._snapshot: dict[str, Any] | None = None
        self._items: list[dict[str, Any]] = []
        self._item: dict[str, Any] | None = None
        self._pieces: list[str] = []
        self._piece_kind = ""
        self._has_output = False

    @property
    def has_output(self) -> bool:
        """See ``Reader.has_output``."""
        return self._has_output

    @property
    def ended(self) -> bool:
        """See ``Reader.ended``."""
        return self.final is not None

    def feed(self, data: bytes) -> list[Frame]:
        """See ``Reader.feed``."""
        frames: list[Frame] = []
        if self.error is not None or self.final is not None:
            return frames
        try:
            for event in self._decoder.decode(data):
                self._event(event, frames)
                if self.ended:
                    break
        except EventTooLarge as exc:
            self.error = UpstreamFailure(f"The endpoint's stream is broken: {exc}.")
        except UpstreamError as exc:
            self.error = exc
        return frames

    def finish(self) -> list[Frame]:
        """See ``Reader.finish``."""
        if self.final is None and self.error is None:
            self.error = UpstreamFailure("The endpoint's stream ended before the answer did.")
        return []

    def salvage(self) -> list[Frame]:
        """See ``Reader.salvage``: a native answer is complete only with its terminal event."""
        return []

    def whole(self, body: bytes) -> bytes:
        """See ``Reader.whole``."""
        response = load_object(body, "a response")
        if not isinstance(response.get("output"), list):
            error = response.get("error")
            raise UpstreamFailure(
                upstream_message(error) if error else "The endpoint sent a response without output."
            )
        self._raise_if_failed(response)
        self.final = self._ours(response, final=True)
        self.usage = self.final.get("usage")
        return orjson.dumps(self.final)

    def whole_as_stream(self, body: bytes) -> list[Frame]:
        """See ``Reader.whole_as_stream``."""
        raise not_a_stream()

    def fail(self, error: RouterError) -> list[Frame]:
        """See ``Reader.fail``: ``response.failed`` with the output so far."""
        draft = self.draft
        frames = draft.open()
        changes = {
            "status": "failed",
            "error": error.response_error(),
            "output": (output := self._partial()),
            "output_text": output_text(output),
            "usage": None,
        }
        base = self._snapshot or draft.snapshot("failed")
        self.final = {**base, **changes}
        return [*frames, draft.end(self.final)]

    def _event(self, data: bytes, frames: list[Frame]) -> None:
        event = load_object(data, "a stream event")
        kind = event.get("type")
        if not isinstance(kind, str):
            if event.get("error"):
                raise UpstreamFailure(upstream_message(event["error"]))
            raise UpstreamFailure("The endpoint sent a stream event without a type.")
        if kind == "keepalive":
            return
        if kind == "error":
            raise _stream_error(event)
        draft = self.draft
        response = event.get("response")
        if kind in _OPENING and isinstance(response, dict):
            self._open(response, frames)
            return
        if draft.state is State.NEW:
            frames.extend(draft.open())
        if isinstance(response, dict):
            changed = self._lifecycle(kind, event, response)
        else:
            self._has_output = True
            changed = self._follow(kind, event)
        if event.get("sequence_number") != draft.sequence:
            event["sequence_number"] = draft.sequence
            changed = True
        draft.sequence += 1
        frames.append(Frame.of(event) if changed else Frame(kind, data, event))

    def _open(self, response: dict[str, Any], frames: list[Frame]) -> None:
        """The first of an endpoint's opening events makes the router's two; the rest is silence.

        Nothing is said when another endpoint's beginning, or the router's own, went out before.
        """
        draft = self.draft
        created_at = response.get("created_at")
        if draft.state is State.NEW and isinstance(created_at, int | float):
            draft.created_at = int(created_at)
        self._snapshot = self._ours({**response, "status": "in_progress"}, final=False)
        if draft.state is State.NEW:
            frames.extend(draft.open(self._snapshot))

    def _lifecycle(self, kind: str, event: dict[str, Any], response: dict[str, Any]) -> bool:
        """Rewrite the response inside an event; always a change."""
        if kind not in _TERMINAL:
            event["response"] = self._ours(response, final=False)
            return True
        if not self._has_output:
            self._raise_if_failed(response)
        event["response"] = self.final = self._ours(response, final=True)
        self.usage = self.final.get("usage")
        self.draft.advance(State.ENDED)
        return True

    def _ours(self, response: dict[str, Any], *, final: bool) -> dict[str, Any]:
        """An endpoint's Response object as the router's own."""
        draft = self.draft
        merged = {**draft.snapshot(str(response.get("status"))), **response}
        merged["id"] = draft.id
        merged["created_at"] = draft.created_at
        for name in _ECHOED:
            merged[name] = draft.echo[name]
        if draft.delivered:
            for name in _CONSTANT:
                merged[name] = draft.echo[name]
        if "conversation" not in draft.echo:
            merged.pop("conversation", None)
        output = merged.get("output")
        if isinstance(output, list):
            for item in output:
                self._seal(item)
            merged["output_text"] = output_text(output) if final else ""
        usage = merged.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("input_tokens_details"), dict):
            usage["input_tokens_details"].setdefault("cache_write_tokens", 0)
        return merged

    def _seal(self, item: Any) -> bool:
        if isinstance(item, dict) and item.get("type") == "reasoning":
            blob = item.get("encrypted_content")
            if isinstance(blob, str) and blob:
                item["encrypted_content"] = seal(blob, self._account)
                return True
        return False

    def _follow(self, kind: str, event: dict[str, Any]) -> bool:
        """Keep what is needed for ``fail``; True when the event had to be changed."""
        piece = _DELTAS.get(kind)
        if piece is not None:
            delta = event.get("delta")
            if isinstance(delta, str):
                self._piece_kind = piece
                self._pieces.append(delta)
            return False
        if kind == "response.output_item.added":
            self._item = event.get("item")
            self._pieces = []
            return self._seal(self._item)
        if kind == "response.output_item.done":
            item = event.get("item")
            changed = self._seal(item)
            if isinstance(item, dict):
                self._items.append(item)
            self._item = None
            return changed
        return False

    def _partial(self) -> list[dict[str, Any]]:
        item = self._item
        if not isinstance(item, dict):
            return list(self._items)
        text = "".join(self._pieces)
        item = dict(item)
        if item.get("type") != "reasoning":
            item["status"] = "incomplete"
        if item.get("type") == "message" and text:
            part: dict[str, Any] = {"type": "refusal", "refusal": text}
            if self._piece_kind == "text":
                part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            item["content"] = [part]
        elif self._piece_kind in item:
            item[self._piece_kind] = text
        return [*self._items, item]

    def _raise_if_failed(self, response: dict[str, Any]) -> None:
        """An answer that failed at the endpoint before any output may succeed at another."""
        error = response.get("error")
        if response.get("status") != "failed" or not isinstance(error, dict):
            return
        if error.get("code") in _ENDPOINT_ERRORS:
            raise _error_of(error)


def _stream_error(event: dict[str, Any]) -> UpstreamError:
    return _error_of(event if isinstance(event.get("message"), str) else event.get("error"))


def _error_of(error: Any) -> UpstreamError:
    message = upstream_message(error)
    code = error.get("code") if isinstance(error, dict) else None
    if code == "rate_limit_exceeded":
        return UpstreamRateLimited(message)
    return UpstreamFailure(message)
