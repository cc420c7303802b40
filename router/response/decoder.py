"""What every dialect's reader does: bytes of an endpoint's answer in, response events out.

A reader never raises for what an endpoint sends. It returns the events it could make and keeps
the failure in ``error``, so that nothing that came before the fault is lost, and the same bytes
give the same events however they were split over reads.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import orjson

from router.errors import RouterError, UpstreamError, UpstreamFailure, UpstreamRateLimited
from router.response.frame import Frame
from router.response.upstream_errors import rejection, reported

__all__ = [
    "StreamDecoder",
    "arguments_text",
    "check_reported",
    "not_a_stream",
    "reported_failure",
    "upstream_message",
]


_MAX_MESSAGE: Final = 2000
_NO_WORDS: Final = "The endpoint reported an error."


class StreamDecoder(Protocol):
    """Turns one endpoint's answer into the events, or the body, that the client gets."""

    error: UpstreamError | None
    """Why the answer cannot go on; the frames returned beside it are still good."""
    failure: str | None
    """The error code of an answer that the endpoint itself ended as failed."""
    usage: dict[str, Any] | None
    """A Responses ``usage`` object, once the endpoint has reported one."""
    final: dict[str, Any] | None
    """The final Response object, once there is one; None for ever where the answer is none."""
    encrypted_reasoning: dict[str, str]
    """Encrypted reasoning, sealed, by item id: what is kept but not shown to this client."""

    @property
    def output_chars(self) -> int:
        """How many characters of output there have been: for an estimate of what it cost."""
        ...

    @property
    def has_output(self) -> bool:
        """Whether output has begun: from here on no other endpoint can take over."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the terminal event is among the frames given out."""
        ...

    def feed(self, data: bytes) -> list[Frame]:
        """The events made by the bytes of one read."""
        ...

    def finish(self) -> list[Frame]:
        """The events made by the end of the body; an answer cut short leaves ``error``."""
        ...

    def salvage(self) -> list[Frame]:
        """The terminal event, when the answer was complete but for its end marker; else nothing.

        Asked for when the connection breaks or stalls.
        """
        ...

    def whole(self, body: bytes) -> bytes:
        """The client's body for an answer in one piece; raises UpstreamError."""
        ...

    def assembled(self) -> bytes:
        """The client's body for an answer that is wanted in one piece, and was read as a stream
        until it ``ended``; raises UpstreamError.
        """
        ...

    def whole_as_stream(self, body: bytes) -> list[Frame]:
        """The events for an answer that came in one piece although a stream was asked for.

        Raises UpstreamError, also where the dialect cannot do that.
        """
        ...

    def fail(self, error: RouterError) -> list[Frame]:
        """The events that tell the client, in mid-stream, that nothing more will come.

        None for an answer that has ended: nothing follows its terminal event.
        """
        ...


def arguments_text(arguments: Any) -> str:
    """The arguments of a call as JSON text; some endpoints send the object itself."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else orjson.dumps(arguments).decode()


def check_reported(body: dict[str, Any]) -> None:
    """Raise the UpstreamError that an answer, or a chunk of one, reports, if it does."""
    # Older vLLM and SGLang: the error is the chunk itself.
    if body.get("error") or body.get("object") == "error":
        raise reported_failure(body)


def reported_failure(body: Any) -> UpstreamError:
    """The error that an endpoint reports in an answer with status 200, or within a stream.

    ``body`` is the decoded object, or the error in it. The request's own fault is told from the
    endpoint's as for an HTTP error; see ``router.response.upstream_errors``.
    """
    error = reported(body)
    message = error.message or _NO_WORDS
    rejected = rejection(error, message)
    if rejected is not None:
        return rejected
    if error.status == 429:
        return UpstreamRateLimited.quoting(message)
    if error.status in (401, 403):
        return UpstreamFailure("The endpoint refused the router's credentials.")
    return UpstreamFailure.quoting(message)


def not_a_stream() -> UpstreamFailure:
    """For a reader that cannot make a stream of an answer in one piece."""
    return UpstreamFailure("The endpoint answered a streaming request with a single JSON body.")


def upstream_message(error: Any) -> str:
    """The text of an endpoint's ``error`` value: an object with a message, or a string."""
    if isinstance(error, dict):
        error = error.get("message")
    if isinstance(error, str) and error:
        return error[:_MAX_MESSAGE]
    return _NO_WORDS
