"""Chat Completions passed on to clients of Chat Completions: read only as far as is needed to
count tokens, to notice a broken stream and to end it properly.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from router.dialects.chat.join_chunks import JoinedChunks
from router.dialects.passthrough import PassthroughDecoder
from router.errors import RouterError, UpstreamFailure
from router.response import tokens
from router.response.decoder import check_reported, not_a_stream
from router.response.frame import Frame, load_object

__all__ = ["ChatPassthrough"]

_DONE: Final = b"[DONE]"
_TEXTS: Final = ("content", "reasoning_content", "reasoning", "refusal")


class ChatPassthrough(PassthroughDecoder):
    """A ``StreamDecoder`` that changes nothing but the name of the model to ``model``, and leaves
    out the usage chunk nobody asked for. ``assembles``: a stream is not passed on, but put
    together.
    """

    what = "a chat completion"
    """What errors call an answer."""
    finds_text = True

    def __init__(self, *, model: str, wants_usage: bool, assembles: bool = False) -> None:
        super().__init__(model)
        self._wants_usage = wants_usage
        self._joined = JoinedChunks() if assembles else None
        self._finished: dict[int, bool] = {}  # by the index of the choice

    def salvage(self) -> list[Frame]:
        """See ``StreamDecoder.salvage``: all choices had their finish reason, the marker is
        missing.
        """
        if self.ended or self.error is not None or not self._all_finished():
            return []
        self.ended = True
        return [Frame("", _DONE)]

    def _all_finished(self) -> bool:
        return bool(self._finished) and all(self._finished.values())

    def whole(self, body: bytes) -> bytes:
        """See ``StreamDecoder.whole``."""
        completion = load_object(body, self.what)
        check_reported(completion)
        choices = completion.get("choices")
        if type(choices) is not list or not choices or type(choices[0]) is not dict:
            raise UpstreamFailure(f"The endpoint sent {self.what} without choices.")
        self._count(completion)
        if self.usage is None:
            self.output_chars = sum([self.chars(one) for one in choices if isinstance(one, dict)])
        return self._model.put(body, completion)

    def assembled(self) -> bytes:
        """See ``StreamDecoder.assembled``."""
        assert self._joined is not None
        return self.whole(orjson.dumps(self._joined.whole()))

    def whole_as_stream(self, body: bytes) -> list[Frame]:
        """See ``StreamDecoder.whole_as_stream``."""
        raise not_a_stream()

    def fail(self, error: RouterError) -> list[Frame]:
        """See ``StreamDecoder.fail``: an error event, as OpenAI's own streams end when they
        break.
        """
        if self.ended:
            return []
        self.ended = True
        return [Frame("", orjson.dumps(error.envelope()))]

    def _event(self, data: bytes, frames: list[Frame]) -> None:
        if data.strip() == _DONE:
            self.ended = True
            frames.append(Frame("", _DONE))
            return
        chunk = load_object(data, "a stream event")
        check_reported(chunk)
        self._count(chunk)
        choices = chunk.get("choices")
        if choices:
            self._follow(choices)
            self.has_output = self.has_output or any(map(self.says_something, choices))
        if self._joined is not None:
            self._join(chunk)
            return
        if not choices and chunk.get("usage") and not self._wants_usage:
            return
        # An event that came in several data lines goes out in one: in JSON a line feed is blank.
        frames.append(Frame("", self._model.put(data.replace(b"\n", b" "), chunk), chunk))

    def _text_of(self, event: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
        choices = event.get("choices")
        if type(choices) is not list or len(choices) != 1 or event.get("usage"):
            return None
        choice = choices[0]
        if type(choice) is not dict or choice.get("finish_reason"):
            return None
        found = self.text_in(choice)
        return (
            found if found is not None and len(found[0][found[1]]) == self.chars(choice) else None
        )

    def text_in(self, choice: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
        """Where a choice has a text; it may have others."""
        delta = choice.get("delta")
        if type(delta) is not dict:
            return None
        if calls := delta.get("tool_calls"):
            call = calls[0] if type(calls) is list else None
            function = call.get("function") if type(call) is dict else None
            if type(function) is not dict or type(function.get("arguments")) is not str:
                return None
            return function, "arguments"
        for name in _TEXTS:
            if delta.get(name) and type(delta[name]) is str:
                return delta, name
        return None

    def _join(self, chunk: dict[str, Any]) -> None:
        assert self._joined is not None
        try:
            self._joined.add(chunk)
        except (ValueError, TypeError, AttributeError) as exc:
            raise self._malformed() from exc

    def _malformed(self) -> UpstreamFailure:
        return UpstreamFailure(
            f"The endpoint sent a chunk of {self.what} whose choices are malformed."
        )

    def _follow(self, choices: Any) -> None:
        if not isinstance(choices, list):
            raise self._malformed()
        for choice in choices:
            if isinstance(choice, dict):
                self.output_chars += self.chars(choice)
                index = choice.get("index")
                index = index if isinstance(index, int) else 0
                if choice.get("finish_reason"):
                    self._finished[index] = True
                else:
                    self._finished.setdefault(index, False)

    def _count(self, chunk: dict[str, Any]) -> None:
        usage = chunk.get("usage")
        if usage:
            self.usage = tokens.from_chat(usage) or self.usage

    def says_something(self, choice: Any) -> bool:
        """Whether a choice has more than the role, which comes before there is anything to say."""
        if not isinstance(choice, dict):
            return False
        delta = choice.get("delta")
        output_chars = isinstance(delta, dict) and any(delta[key] for key in delta if key != "role")
        return output_chars or bool(choice.get("finish_reason"))

    def chars(self, choice: dict[str, Any]) -> int:
        """The characters that a choice says."""
        return _chars(choice.get("delta") or choice.get("message"))


def _chars(delta: Any) -> int:
    """The characters of text in a delta, or a message; those of tool calls' arguments, too."""
    if not isinstance(delta, dict):
        return 0
    chars = 0
    for name in _TEXTS:
        text = delta.get(name)
        if isinstance(text, str):
            chars += len(text)
    calls = delta.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        arguments = function.get("arguments") if isinstance(function, dict) else None
        chars += len(arguments) if isinstance(arguments, str) else 0
    return chars
