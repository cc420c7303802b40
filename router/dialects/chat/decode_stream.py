"""Chat Completions answers, streamed or whole, as events of the Responses API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

from router.errors import UpstreamError, UpstreamFailure
from router.response import tokens
from router.response.decoder import arguments_text, check_reported
from router.response.frame import EventTooLarge, Frame, SSEDecoder, data_of, load_object
from router.response.items import ItemWriter
from router.response.machine import ResponseMachine
from router.response.text_template import MOST_USELESS, TextTemplate

__all__ = ["CallKeys", "ChatDecoder", "logprob_entries", "text_or_none"]


class CallKeys:
    """Tells which call a fragment belongs to.

    Usually that is its ``index``; some servers leave it out, or give every parallel call the
    index 0 and tell them apart by their ids. Calls are numbered anew, in order of appearance.
    ``whole``: every entry is a call, and not a fragment of one.
    """

    __slots__ = ("_by_id", "_by_index", "_count", "_last", "_whole")

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self._count = 0
        self._last: int | None = None
        self._by_id: dict[str, int] = {}
        self._by_index: dict[int, tuple[int, str | None]] = {}

    def key(
        self,
        index: Any,
        call_id: str | None,
        name: str | None,
        fragment: str,
        is_whole: Callable[[int], bool],
    ) -> int:
        """The key of the call that this fragment of arguments belongs to; ``is_whole`` is whether
        all arguments of the call with a key have come.
        """
        if not isinstance(index, int):
            return self.unnumbered(call_id, name)
        if call_id is None and name is not None and fragment.strip():
            known, _ = self._by_index.get(index, (-1, None))
            if is_whole(known):  # no id to tell, but a name again, and arguments again
                return self.new(index, call_id)
        return self.numbered(index, call_id, name)

    def is_anothers(self, call_id: str | None, key: int) -> bool:
        """Whether a call came with this id before this one did."""
        return call_id is not None and self._by_id.get(call_id, key) != key

    def new(self, index: int | None, call_id: str | None) -> int:
        """The key of a call that begins here."""
        key = self._last = self._count
        self._count += 1
        if call_id is not None:
            self._by_id.setdefault(call_id, key)
        if index is not None:
            self._by_index[index] = (key, call_id)
        return key

    def numbered(self, index: int, call_id: str | None, name: str | None) -> int:
        """The key of a call with an index.

        Another id under the same index is another call only where a name comes with it: some
        servers invent a new id for every fragment.
        """
        known = self._by_index.get(index)
        if known is None:
            return self.new(index, call_id)
        key, known_id = known
        if call_id is not None and known_id is None:
            self._by_index[index] = (key, call_id)
            self._by_id.setdefault(call_id, key)
        elif call_id is not None and call_id != known_id:
            if call_id in self._by_id:
                key = self._by_id[call_id]
                self._by_index[index] = (key, call_id)
            elif name is not None:
                return self.new(index, call_id)
        self._last = key
        return key

    def unnumbered(self, call_id: str | None, name: str | None) -> int:
        """The key of a call without an index: by its id, or else the one begun last."""
        if self._whole:
            return self.new(None, call_id)
        if call_id is not None and call_id in self._by_id:
            self._last = self._by_id[call_id]
        elif call_id is not None or name is not None or self._last is None:
            return self.new(None, call_id)
        return self._last


_DONE: Final = b"[DONE]"


class ChatDecoder(ResponseMachine):
    """Reads ``chat.completion.chunk`` events, or one ``chat.completion``."""

    _decoder: SSEDecoder | None = None
    _calls: CallKeys | None = None
    _whole = False
    _alike: TextTemplate | None = None
    """Chunks that bring the item which is open, ``_going_on``, a piece of its text."""
    _going_on: ItemWriter | None = None
    _had_text = False
    _useless = 0

    def feed(self, data: bytes) -> list[Frame]:
        """See ``StreamDecoder.feed``."""
        if self.error is not None or self.final is not None:
            return self.take()
        decoder = self._decoder = self._decoder or SSEDecoder()
        try:
            for block in decoder.blocks(data):
                item, alike = self._going_on, self._alike
                if item is not None and alike is not None:
                    text = alike.text(block)
                    if text:
                        item.delta(text, None if b"\\" in alike.raw else alike.raw)
                    if text is not None:
                        continue
                    self._forget(alike)
                event = data_of(block)
                if event == _DONE or event.strip() == _DONE:
                    # Some servers leave the finish reason out; this still ends the answer.
                    self.finish_reason = self.finish_reason or "stop"
                    self.complete()
                    break
                if event:
                    self._chunk(chunk := load_object(event, "a stream event"))
                    if self._output.open_kind in _SPOKEN and self._useless < MOST_USELESS:
                        self._learn(block, chunk)
        except EventTooLarge as exc:
            self.error = UpstreamFailure(f"The endpoint's stream is broken: {exc}.")
        except UpstreamError as exc:
            self.error = exc
        return self.take()

    def _forget(self, alike: TextTemplate) -> None:
        """The next event is not like the last one."""
        self._alike = self._going_on = None
        if not alike.raw:
            self._useless += 1

    def _learn(self, block: bytes, chunk: dict[str, Any]) -> None:
        """What can be learned of a chunk: that others like it have nothing but a text."""
        found, had_text = _text_of(chunk), self._had_text
        self._had_text = found is not None
        if found is None or (self.wants_logprobs and chunk["choices"][0].get("logprobs")):
            return
        if not had_text:  # the first one is not held up by that
            return
        self._going_on = self.goes_on(_SAYS[found[1]])
        if self._going_on is not None:
            self._alike = TextTemplate.of(block, _text_of)

    def whole(self, body: bytes) -> bytes:
        """See ``StreamDecoder.whole``."""
        completion = load_object(body, "a chat completion")
        if "error" in completion or completion.get("object") == "error":
            check_reported(completion)
        choices = completion.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise UpstreamFailure("The endpoint sent a chat completion without choices.")
        message = choices[0].get("message")
        if not isinstance(message, dict):
            raise UpstreamFailure("The endpoint sent a chat completion without a message.")
        self._whole = True
        # It is all that a stream says, at once.
        self._chunk({**completion, "choices": [{**choices[0], "delta": message}]})
        return orjson.dumps(self.complete())

    def _chunk(self, chunk: dict[str, Any]) -> None:
        """Read an object of the stream."""
        if "error" in chunk or chunk.get("object") == "error":
            check_reported(chunk)
        usage = chunk.get("usage")
        if usage:
            # Where every chunk has a usage it is cumulative: the last one counts.
            self.usage = tokens.from_chat(usage) or self.usage
        choices = chunk.get("choices")
        if not choices:
            return
        choice = choices[0] if isinstance(choices, list) else None
        if not isinstance(choice, dict):
            raise UpstreamFailure("The endpoint sent a chat chunk whose choices are malformed.")
        delta = choice.get("delta")
        if isinstance(delta, dict):
            reasoning = delta.get("reasoning_content") or delta.get("reasoning")
            if reasoning and isinstance(reasoning, str):
                self.reasoning(reasoning)
            content = delta.get("content")
            if isinstance(content, list):
                content = "".join(map(_part_text, content))
            if content and isinstance(content, str):
                given = choice.get("logprobs") if self.wants_logprobs else None
                known = logprob_entries(given.get("content")) if isinstance(given, dict) else None
                self.text(content, known)
            refusal = delta.get("refusal")
            if refusal and isinstance(refusal, str):
                self.refusal(refusal)
            if calls := delta.get("tool_calls"):
                self._tool_calls(calls)
            elif isinstance(delta.get("function_call"), dict):
                self._tool_calls([{"index": 0, "function": delta["function_call"]}])
        reason = choice.get("finish_reason")
        if reason:
            self.finish_reason = reason if isinstance(reason, str) else "stop"

    def _tool_calls(self, calls: Any) -> None:
        if not isinstance(calls, list):
            raise UpstreamFailure("The endpoint sent tool calls that are not a list.")
        if self._calls is None:
            self._calls = CallKeys(whole=self._whole)
        for call in calls:
            if not isinstance(call, dict):
                raise UpstreamFailure("The endpoint sent a tool call that is not an object.")
            function = call.get("function") or call.get("custom") or {}
            if not isinstance(function, dict):
                raise UpstreamFailure("The endpoint sent a tool call without a function.")
            call_id, name = text_or_none(call.get("id")), text_or_none(function.get("name"))
            fragment = arguments_text(function.get("arguments", function.get("input")))
            key = self._calls.key(call.get("index"), call_id, name, fragment, self.call_is_whole)
            if self._calls.is_anothers(call_id, key):
                call_id = None  # one of our own takes its place
            self.call(key, call_id, name, fragment)


_SAYS: Final = {"content": "text", "reasoning_content": "reasoning", "reasoning": "reasoning"}
_SPOKEN: Final = frozenset(_SAYS.values())
_NOTHING: Final[tuple[Any, ...]] = (None, "", [])


def _text_of(chunk: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
    """See ``FindText``: where a chunk has the one text that is all it says."""
    choices = chunk.get("choices")
    if type(choices) is not list or not choices or chunk.get("usage") or chunk.get("error"):
        return None
    delta = choices[0].get("delta")
    if type(delta) is not dict or choices[0].get("finish_reason"):
        return None
    says = None
    for name in delta:
        if name != "role" and delta[name] not in _NOTHING:
            if says is not None or name not in _SAYS or type(delta[name]) is not str:
                return None
            says = name
    return None if says is None else (delta, says)


def text_or_none(value: Any) -> str | None:
    """``value`` where it is a string with something in it."""
    return value if isinstance(value, str) and value else None


def _part_text(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else ""


def logprob_entries(content: Any) -> list[dict[str, Any]]:
    """Log probabilities in the form of the Responses API; what is malformed is left out."""
    return [
        {
            **_logprob(entry),
            "top_logprobs": [_logprob(top) for top in _tokens(entry.get("top_logprobs"))],
        }
        for entry in _tokens(content)
    ]


def _tokens(entries: Any) -> list[dict[str, Any]]:
    if not isinstance(entries, list):
        return []
    return [e for e in entries if isinstance(e, dict) and isinstance(e.get("token"), str)]


def _logprob(entry: dict[str, Any]) -> dict[str, Any]:
    token, logprob, octets = entry["token"], entry.get("logprob"), entry.get("bytes")
    return {
        "token": token,
        "logprob": logprob if isinstance(logprob, int | float) else 0.0,
        "bytes": octets if _is_bytes(octets) else list(token.encode()),
    }


def _is_bytes(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(v) is int for v in value)
