"""The part of a translated answer that is the same whatever the endpoint speaks.

``ResponseMachine`` opens the response, passes what the model says on to the output items, holds
the finish reason and the usage until the end, and writes the terminal event. A dialect's reader
derives from it, calls ``reasoning``, ``text``, ``refusal`` and ``call``, sets ``finish_reason``
when the model stopped, and calls ``complete`` at the end.

``ThinkSplitter`` splits ``<think>…</think>`` at the beginning of a text from the answer after it.
Only a tag at the very start counts (after white space): later on it is the model quoting. The tag
may be cut between two pieces, so that as much as might still become one is held back. The same
text gives the same two parts however it was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from router.errors import RouterError, UpstreamError, UpstreamFailure
from router.response import tokens
from router.response.builder import ResponseBuilder, StreamState
from router.response.call_items import ToolName
from router.response.decoder import arguments_text
from router.response.frame import Frame, load_object
from router.response.items import ItemWriter
from router.response.output import OutputBuilder

__all__ = ["MachineOptions", "ResponseMachine", "ThinkSplitter"]

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"
_MAX_BLANK: Final = 256
"""So much white space at the start is no longer waiting for a tag."""


class ThinkSplitter:
    """``split(piece)`` gives ``(reasoning, text)``; ``flush()`` what was held back at the end.

    ``held`` is what waits for the next piece. ``settled`` says that only text can follow, which
    then need not pass through here any more, ``thought`` that a tag was found.
    """

    __slots__ = ("_mode", "held", "settled", "thought")

    def __init__(self) -> None:
        self._mode = "start"
        self.held = ""
        self.settled = False
        self.thought = False

    def split(self, piece: str) -> tuple[str, str]:
        """Both parts of this piece, each possibly empty."""
        if self.settled:
            return "", piece
        piece, self.held = self.held + piece, ""
        if self._mode == "start":
            return self._start(piece)
        if self._mode == "after":
            return "", self._answer(piece)
        return self._reasoning(piece)

    def flush(self) -> tuple[str, str]:
        """What is held back, when the text ends or something else comes between."""
        held, self.held = self.held, ""
        if self._mode in ("opened", "reasoning"):
            return held, ""
        self.settled = self.settled or bool(held)
        return "", held

    def _start(self, piece: str) -> tuple[str, str]:
        seen = piece.lstrip()
        if seen.startswith(_OPEN):
            self._mode, self.thought = "opened", True
            return self._reasoning(seen[len(_OPEN) :])
        if _OPEN.startswith(seen) and len(piece) <= _MAX_BLANK:
            self.held = piece
            return "", ""
        self.settled = True
        return "", piece

    def _reasoning(self, piece: str) -> tuple[str, str]:
        if self._mode == "opened":
            piece = piece.lstrip("\n")
            if not piece:
                return "", ""
            self._mode = "reasoning"
        end = piece.find(_CLOSE)
        if end >= 0:
            self._mode = "after"
            return piece[:end], self._answer(piece[end + len(_CLOSE) :])
        keep = _overlap(piece, _CLOSE)
        self.held = piece[len(piece) - keep :]
        return piece[: len(piece) - keep], ""

    def _answer(self, piece: str) -> str:
        """The answer's first piece, without the blank lines that templates put before it."""
        piece = piece.lstrip("\n")
        if piece:
            self.settled = True
        return piece


def _overlap(text: str, tag: str) -> int:
    """How many characters at the end of ``text`` could be the beginning of ``tag``."""
    for size in range(min(len(text), len(tag) - 1), 0, -1):
        if tag.startswith(text[-size:]):
            return size
    return 0


_INCOMPLETE: Final = {
    "length": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "content_filter": "content_filter",
}
_FAILED: Final = frozenset({"error", "abort"})


def _unknown() -> int:
    return 0


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """What of the request decides how its answer is read.

    ``custom_tools``: names whose calls become ``custom_tool_call`` items. ``tool_names``: functions
    that stand for tools of other names, or types. ``forced_call``: the text is a tool call as JSON
    (``{"name", "arguments"}``), forced through a structured output. ``documents`` are the URLs of
    those that the answer may cite, in their order; empty for one that was sent itself.
    ``prompt_tokens`` estimates the prompt's tokens, where the endpoint does not count.
    """

    custom_tools: frozenset[str] = field(default_factory=frozenset)
    tool_names: Mapping[str, ToolName] = field(default_factory=dict)
    forced_call: bool = False
    logprobs: bool = False
    documents: Sequence[str] = ()
    prompt_tokens: Callable[[], int] = _unknown


class ResponseMachine:
    """The state machine behind every translated answer; see ``router.response.builder``.

    ``ended`` and ``has_output`` as for ``StreamDecoder``.
    """

    def __init__(self, builder: ResponseBuilder, options: MachineOptions | None = None) -> None:
        options = options or MachineOptions()
        self.builder = builder
        self.error: UpstreamError | None = None
        self.final: dict[str, Any] | None = None
        self.ended = False
        self.has_output = False
        self.encrypted_reasoning: dict[str, str] = {}
        self.usage: dict[str, Any] | None = None
        self.failure: str | None = None
        self.finish_reason: str | None = None
        self.wants_logprobs = options.logprobs
        self._options = options
        self._output = OutputBuilder(builder, options.custom_tools, options.tool_names)
        self._think: ThinkSplitter | None = None  # once a text may begin with a tag
        self._settled = False  # only text can follow: no tag can come any more
        self._held_logprobs: list[dict[str, Any]] = []
        self._forced: list[str] = []

    @property
    def output_chars(self) -> int:
        """See ``StreamDecoder.output_chars``."""
        return tokens.output_chars(self._output.partial()) + sum(map(len, self._forced))

    def reasoning(self, text: str) -> None:
        """A piece of the model's reasoning."""
        self._say_held()
        self._say("reasoning", text)

    def encrypt_reasoning(self, encrypted: str, *, hide: bool, silent: bool) -> None:
        """A piece of reasoning is over, and this can be sent back of it. ``hide`` keeps that from
        the client (``encrypted_reasoning``); ``silent``: it has no text.
        """
        self._say_held()
        if self.builder.state is StreamState.NEW:
            self._output.out.extend(self.builder.open())
        ident = self._output.encrypt(None if hide else encrypted, silent=silent)
        if hide and ident is not None:
            self.encrypted_reasoning[ident] = encrypted

    def text(self, text: str, logprobs: list[dict[str, Any]] | None = None) -> None:
        """A piece of the answer; reasoning in ``<think>`` tags is taken out of it."""
        if not self._settled:
            first = text[0]
            if self._think is None and first != "<" and not first.isspace():
                self._settled = True
            else:
                text, logprobs = self._without_thinking(text, logprobs)
                if not text:
                    return
        if self._options.forced_call:
            self._forced.append(text)
            return
        if self.builder.state is StreamState.NEW:
            self._output.out.extend(self.builder.open())
        self._output.say("text", text, logprobs)

    def annotate(self, length: int, annotations: list[dict[str, Any]]) -> None:
        """What the last ``length`` characters of the answer cite, as annotations without places in
        the text.
        """
        if not self._options.forced_call:
            self._output.annotate(length, annotations)

    def goes_on(self, kind: str) -> ItemWriter | None:
        """What takes more ``text`` or ``reasoning`` as it is, until anything else is said; None
        where that has to be looked at.
        """
        plain = (
            self._settled and not self._options.forced_call if kind == "text" else not self._think
        )
        return self._output.open_text(kind) if plain else None

    def refusal(self, text: str) -> None:
        """A piece of a refusal."""
        self._say_held()
        self._say("refusal", text)

    def call_is_whole(self, key: int) -> bool:
        """Whether the arguments of this tool call have all come."""
        return self._output.has_whole(key)

    def call(self, key: int, call_id: str | None, name: str | None, fragment: str) -> None:
        """A fragment of a tool call."""
        self._say_held()
        if self.builder.state is StreamState.NEW:
            self._output.out.extend(self.builder.open())
        self._output.call(key, call_id, name, fragment)

    def complete(self) -> dict[str, Any]:
        """Close what is open and write the terminal event; raises UpstreamFailure."""
        reason = self.finish_reason or "stop"
        if reason in _FAILED:
            raise UpstreamFailure(f"The endpoint gave up: its finish reason is '{reason}'.")
        if self.builder.state is StreamState.NEW:
            self._output.out.extend(self.builder.open())
        if not self._settled or self._options.forced_call:
            self._flush_text()
        incomplete = _INCOMPLETE.get(reason)
        status = "incomplete" if incomplete else "completed"
        self._output.close(status)
        items = self._output.items
        details = {"reason": incomplete} if incomplete else None
        usage = self.usage
        if usage is None:
            usage = tokens.estimated_usage(self._options.prompt_tokens(), items)
            self.usage = usage
        final = self.builder.snapshot(status, items, usage, incomplete_details=details)
        self._output.out.append(self.builder.end(final))
        self.final = final
        self.ended = True
        return final

    def finish(self) -> list[Frame]:
        """See ``StreamDecoder.finish``."""
        if self.final is None and self.error is None and not self.salvage_into():
            self.error = UpstreamFailure("The endpoint's stream ended before the answer did.")
        return self.take()

    def salvage(self) -> list[Frame]:
        """See ``StreamDecoder.salvage``."""
        self.salvage_into()
        return self.take()

    def salvage_into(self) -> bool:
        """Complete an answer whose finish reason has arrived; False when it has not."""
        if self.finish_reason is None or self.final is not None or self.error is not None:
            return False
        try:
            self.complete()
        except UpstreamFailure as exc:
            self.error = exc
        return True

    def whole_as_stream(self, body: bytes) -> list[Frame]:
        """See ``StreamDecoder.whole_as_stream``."""
        self.whole(body)
        return self.take()

    def whole(self, body: bytes) -> bytes:
        """See ``StreamDecoder.whole``."""
        raise NotImplementedError

    def assembled(self) -> bytes:
        """See ``StreamDecoder.assembled``."""
        return orjson.dumps(self.final)

    def fail(self, error: RouterError) -> list[Frame]:
        """See ``StreamDecoder.fail``: ``response.failed`` with the output so far."""
        if self.builder.state is StreamState.ENDED:
            return []
        frames = self.take()
        frames += self.builder.fail(error, self._output.partial(), self.usage)
        self.final = self.builder.final
        self.ended = True
        return frames

    def take(self) -> list[Frame]:
        """The frames made since the last call."""
        frames = self._output.out.copy()
        self._output.out.clear()
        self.has_output = self._output.started
        return frames

    def _say(self, kind: str, text: str, logprobs: list[dict[str, Any]] | None = None) -> None:
        if self.builder.state is StreamState.NEW:
            self._output.out.extend(self.builder.open())
        self._output.say(kind, text, logprobs)

    def _without_thinking(
        self, piece: str, logprobs: list[dict[str, Any]] | None
    ) -> tuple[str, list[dict[str, Any]]]:
        """What of this piece is answer; reasoning in ``<think>`` tags is said as such."""
        entries = [*self._held_logprobs, *(logprobs or ())]
        think = self._think = self._think or ThinkSplitter()
        reasoning, text = think.split(piece)
        self._settled = think.settled
        if reasoning:
            self._say("reasoning", reasoning)
        self._held_logprobs = [] if reasoning or text else entries
        return text, _ending(entries, text) if think.thought else entries

    def _say_held(self) -> None:
        """Something else begins: what looked like a tag was none. White space goes on waiting."""
        if self._think is not None and self._think.held.strip():
            reasoning, text = self._think.flush()
            self._settled = self._think.settled
            if reasoning:
                self._say("reasoning", reasoning)
            elif not self._options.forced_call:
                self._say("text", text, self._held_logprobs)
                self._held_logprobs = []
            else:
                self._forced.append(text)

    def _flush_text(self) -> None:
        self._say_held()
        blank = self._think.flush()[1] if self._think is not None else ""
        if blank and not self._options.forced_call and not self._output.started:
            self._say("text", blank, self._held_logprobs)
        if self._options.forced_call and not self._output_has_call():
            self._forced_call("".join(self._forced))

    def _output_has_call(self) -> bool:
        return any(item["type"] != "reasoning" for item in self._output.partial())

    def _forced_call(self, text: str) -> None:
        """Write the tool call that the endpoint was made to answer with as JSON text."""
        try:
            call = load_object(text.encode(), "a tool call")
        except UpstreamFailure:
            call = {}
        name, arguments = call.get("name"), call.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, dict | str | None):
            if self.finish_reason in _INCOMPLETE:
                return  # cut by the limit before the call was complete
            raise UpstreamFailure("The endpoint did not answer with the tool call it was told to.")
        self._output.call(0, None, name, arguments_text(arguments))


def _ending(entries: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """The entries at the end whose tokens make up ``text``, or no more than it."""
    room = len(text)
    for index in range(len(entries) - 1, -1, -1):
        room -= len(entries[index]["token"])
        if room < 0:
            return entries[index + 1 :]
    return entries
