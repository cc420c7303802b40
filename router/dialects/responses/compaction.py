"""``/responses/compact``: what is asked, and the answer, a conversation in fewer items, partly
encrypted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

from router.dialects.parameters import missing
from router.dialects.responses.decode_stream import ResponsesDecoder, unix_seconds
from router.dialects.responses.schema import check_fields, parse_object
from router.dialects.responses.sealing import blob_of, seal
from router.errors import UpstreamFailure
from router.response import tokens
from router.response.builder import IdFactory, ResponseBuilder
from router.response.decoder import reported_failure
from router.response.frame import load_object

__all__ = ["CompactionDecoder", "compacted", "parse_compact"]


_INPUT: Final = ("input", "previous_response_id", "previous_input_messages")


class CompactionDecoder(ResponsesDecoder):
    """Reads the answer of ``/responses/compact``, which always comes in one piece.

    ``compacted`` is called when it is one; the rest is as for ``ResponsesDecoder``.
    """

    def __init__(
        self,
        builder: ResponseBuilder,
        account: str,
        redact: Callable[[str], str] = str,
        compacted: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(builder, account, redact)
        self._compacted = compacted

    def whole(self, body: bytes) -> bytes:
        """See ``StreamDecoder.whole``."""
        builder = self.builder
        compaction = compacted(
            body,
            model=builder.echo["model"],
            account=self._account,
            new_id=builder.new_id,
            now=builder.now,
        )
        self.usage = compaction["usage"]
        self._compacted()
        return orjson.dumps(compaction)


def compacted(
    body: bytes, *, model: str, account: str, new_id: IdFactory, now: Callable[[], float]
) -> dict[str, Any]:
    """An endpoint's answer as the router's own: with an id of ours, and its content sealed.

    ``model`` is the name that the client is told, where the endpoint names one; OpenAI does not.
    ``account`` is the endpoint's mark (see ``sealing.seal``), ``now`` the clock in unix
    seconds. Raises UpstreamFailure for what is no such answer.
    """
    theirs = load_object(body, "a compacted response")
    output = theirs.get("output")
    if not isinstance(output, list):
        if theirs.get("error"):
            raise reported_failure(theirs)
        raise UpstreamFailure("The endpoint sent a compacted response without output.")
    for item in output:
        if (blob := blob_of(item)) is not None:
            item["encrypted_content"] = seal(blob, account)
    if theirs.get("model") is not None:
        theirs["model"] = model
    return {
        **theirs,
        "id": new_id("resp_"),
        "object": "response.compaction",
        "created_at": unix_seconds(theirs.get("created_at")) or int(now()),
        "usage": tokens.from_response(theirs.get("usage")) or tokens.response_usage(0, 0),
    }


def parse_compact(raw: bytes) -> dict[str, Any]:
    """A request body with ``input``, or a history, or both; the model may be left out.

    ``null`` counts as absent, unknown fields pass, the others are those of a create request.
    Raises InvalidRequest with the code and the path of the field.
    """
    body = parse_object(raw)
    check_fields(body)
    if not any(body.get(name) not in (None, []) for name in _INPUT):
        raise missing("input")
    return body
