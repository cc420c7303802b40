"""The response under construction, shared by every attempt at answering it.

A response builder knows what never changes between two snapshots of a response (id, creation time,
the echo of the request) and what must go on when another endpoint takes over: the sequence number,
and whether ``response.created`` has already gone out.

The first events of a response, before any output::

    foreground   0 response.created   1 response.in_progress
    background   0 response.created   1 response.queued        2 response.in_progress

Those of a background run are made by ``queue`` when it is accepted, and the rest when it is run,
perhaps a second time: ``first_sequence`` says how many events the first builder has made.

The life of a translated stream, as the table ``LEGAL`` has it::

    NEW ──▶ OPENED ──▶ ITEM ◀──▶ BETWEEN ──▶ ENDED
             │           │                     ▲
             └───────────┴─────────────────────┘

NEW      nothing was sent
OPENED   ``response.created`` and ``response.in_progress`` were sent
ITEM     an output item is open: items never overlap
BETWEEN  the last item is done, the next has not begun
ENDED    exactly one of completed, incomplete, failed was sent; nothing follows
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

import orjson

from router.errors import RouterError
from router.response.frame import Frame

__all__ = [
    "CONSTANT",
    "LEGAL",
    "IdFactory",
    "IllegalTransition",
    "Messages",
    "ResponseBuilder",
    "StreamState",
    "output_text",
]

_TERMINAL = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
    "failed": "response.failed",
}

_MUTED = Frame("", b"{}")

CONSTANT: Final = ("instructions", "tools")
"""What an endpoint may word differently from the echo, but no two snapshots may."""


Messages = Callable[[list[Any]], list[dict[str, Any]]]
"""Makes the messages that an output can be shown as."""

IdFactory = Callable[[str], str]
"""Makes a fresh id with the given prefix: ``new_id("msg_")``."""


def output_text(output: list[Any]) -> str:
    """The text of every message in ``output``, joined: OpenAI's SDK calls it ``output_text``.

    What is no item, or no part, has no text.
    """
    texts = []
    for item in output:
        if not isinstance(item, dict) or item.get("type") != "message":
            continue
        parts = item.get("content")
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict) and part.get("type") == "output_text":
                text = part.get("text")
                if isinstance(text, str):
                    texts.append(text)
    return "".join(texts)


class ResponseBuilder:
    """One response, from its first event to its last.

    ``echo`` holds the fields that repeat the request, ``own_fields`` are the names of those that
    another response with the same answer has for itself (``dialects.responses.fields``).
    ``created_at`` is in unix seconds, ``now`` the clock for ``completed_at``. ``muted`` is for an
    answer in one piece: the states are kept, but no event is written. ``created`` and
    ``first_sequence`` are for a response that was begun before: its id and creation time, and how
    many events it has. ``dated`` is whether the client knows the creation time: an endpoint's own
    can not replace it. ``shown`` are the fields of ``CONSTANT`` that it has been told. ``messages``
    is for a client that wants the output as messages, too.
    """

    __slots__ = (
        "_begun",
        "_born",
        "_first_output",
        "_promised",
        "created_at",
        "dated",
        "delivered",
        "echo",
        "final",
        "id",
        "messages",
        "muted",
        "new_id",
        "now",
        "own_fields",
        "sequence",
        "shown",
        "state",
    )

    def __init__(
        self,
        *,
        echo: Mapping[str, Any],
        own_fields: frozenset[str],
        new_id: IdFactory,
        now: Callable[[], float],
        muted: bool = False,
        created: tuple[str, int] | None = None,
        first_sequence: int = 0,
    ) -> None:
        self.id, self._born = created or (new_id("resp_"), int(now()))
        self.created_at = self._born
        self.echo = echo
        self.own_fields = own_fields
        self._promised = (
            {name: echo[name] for name in CONSTANT if name in echo} if first_sequence else {}
        )
        self.shown: dict[str, Any] = dict(self._promised)
        self.new_id = new_id
        self.now = now
        self.muted = muted
        self.messages: Messages | None = None
        self.final: dict[str, Any] | None = None
        self._begun = first_sequence
        self._first_output = 3 if first_sequence and echo["background"] else 2
        self.sequence = first_sequence
        self.state = StreamState.NEW if first_sequence < self._first_output else StreamState.OPENED
        self.delivered = self.state is StreamState.OPENED
        self.dated = first_sequence > 0

    def snapshot(
        self,
        status: str,
        output: list[dict[str, Any]] | None = None,
        usage: dict[str, Any] | None = None,
        **changes: Any,
    ) -> dict[str, Any]:
        """The Response object in this status, with its output and the text of that; ``changes`` are
        other fields that differ.
        """
        response = {
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "completed_at": int(self.now()) if status == "completed" else None,
            "error": None,
            "incomplete_details": None,
            **self.echo,
            **self.shown,
            "output": output or [],
            "output_text": output_text(output) if output else "",
            "usage": usage,
            **changes,
        }
        if self.messages is not None:
            self.add_messages(response)
        return response

    def add_messages(self, response: dict[str, Any]) -> None:
        """Show the response's output as messages, where the client wants them."""
        if self.messages is not None:
            response["output_messages"] = self.messages(response["output"])

    def event(self, kind: str, fields: Mapping[str, Any]) -> Frame:
        """The next event, numbered."""
        if self.muted:
            return _MUTED
        sequence = self.sequence
        self.sequence = sequence + 1
        return Frame(kind, orjson.dumps({"type": kind, "sequence_number": sequence, **fields}))

    def queue(self) -> list[Frame]:
        """The events of a response that has to wait: ``response.created``, ``response.queued``."""
        fields = {"response": self.snapshot("queued")}
        return [self.event("response.created", fields), self.event("response.queued", fields)]

    def open(self, snapshot: dict[str, Any] | None = None) -> list[Frame]:
        """``response.created`` and ``response.in_progress``, those that were not made before.

        ``snapshot`` is the Response object they carry, where an endpoint has sent one. Its
        constant fields are kept in ``shown``: every later snapshot has to repeat them.
        """
        if self.state is not StreamState.NEW:
            return []
        self.advance(StreamState.OPENED)
        if self.muted:
            return []
        opening = snapshot or self.snapshot("in_progress")
        self.shown = {}
        for name in CONSTANT:
            self.shown[name] = opening[name]
        fields = {"response": opening}
        kinds = ["response.created"] if self.sequence == 0 else []
        frames = []
        for kind in (*kinds, "response.in_progress"):
            frames.append(self.event(kind, fields))
        return frames

    def end(self, response: dict[str, Any]) -> Frame:
        """The terminal event for this final Response object."""
        self.advance(StreamState.ENDED)
        self.final = response
        return self.event(_TERMINAL[response["status"]], {"response": response})

    def fail(
        self,
        error: RouterError,
        output: list[dict[str, Any]],
        usage: dict[str, Any] | None = None,
        base: Mapping[str, Any] | None = None,
    ) -> list[Frame]:
        """The events that end the response as failed, with its output so far; none where it has
        ended. ``final`` is the Response object then.

        ``base`` is what the client was shown of it, where that is not ``snapshot()``.
        """
        if self.state is StreamState.ENDED:
            return []
        frames = self.open()
        failed = {
            **(base or self.snapshot("failed", usage=usage)),
            "status": "failed",
            "error": error.response_error(),
            "output": output,
            "output_text": output_text(output),
        }
        self.add_messages(failed)
        return [*frames, self.end(failed)]

    def end_otherwise(self, response: dict[str, Any]) -> Frame:
        """Another terminal event instead of the one that was made and has not been delivered."""
        self.add_messages(response)
        self.sequence -= 1
        self.final = response
        return self.event(_TERMINAL[response["status"]], {"response": response})

    def advance(self, state: StreamState) -> None:
        """Go to another state of the table; raise IllegalTransition."""
        if state not in LEGAL[self.state]:
            raise IllegalTransition(f"{self.state.value} -> {state.value}")
        self.state = state
        self.dated = True

    def served_by(self, model: str) -> None:
        """Another model answers; the client is told where it has not been told of the first."""
        if not self.dated:
            self.echo = {**self.echo, "model": model}

    def rewind(self) -> None:
        """Forget what an attempt made that never reached the client.

        What has been delivered stays. That can only be the two opening events: past the first
        output no other attempt is made.
        """
        if self.delivered and self.state is not StreamState.NEW:
            self.sequence = self._first_output
            self.state = StreamState.OPENED
        else:
            self.sequence = self._begun
            self.state = StreamState.NEW
            self.dated = self._begun > 0
            self.created_at = self._born
            self.shown = dict(self._promised)


class StreamState(Enum):
    """Where a stream stands; see the module's table."""

    NEW = "new"
    OPENED = "opened"
    ITEM = "item"
    BETWEEN = "between"
    ENDED = "ended"


LEGAL: Final[dict[StreamState, frozenset[StreamState]]] = {
    StreamState.NEW: frozenset({StreamState.OPENED}),
    StreamState.OPENED: frozenset({StreamState.ITEM, StreamState.ENDED}),
    StreamState.ITEM: frozenset({StreamState.BETWEEN, StreamState.ENDED}),
    StreamState.BETWEEN: frozenset({StreamState.ITEM, StreamState.ENDED}),
    StreamState.ENDED: frozenset(),
}


class IllegalTransition(RuntimeError):
    """The machine was driven where the table has no way: a bug of the router's own."""
