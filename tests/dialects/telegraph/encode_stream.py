"""A response as a telegram."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from router.dialects.responses.decode_stream import failure_of
from router.response.builder import output_text
from router.response.frame import Frame

from .schema import TELEGRAM, stop, word

__all__ = ["TelegraphEncoder"]


class TelegraphEncoder:
    """Implements ``router.dialects.dialect.ResponseEncoder``."""

    def frames(self, batch: Sequence[Frame]) -> list[Frame]:
        """See ``ResponseEncoder.frames``."""
        lines = []
        for frame in batch:
            if frame.type == "response.output_text.delta":
                lines.append(word(frame.json()["delta"]))
            elif frame.type == "response.completed":
                usage = frame.json()["response"]["usage"]
                lines.append(stop(usage["input_tokens"], usage["output_tokens"]))
            elif frame.type == "response.failed":
                lines.append(TELEGRAM.failed(failure_of(frame.json()["response"]["error"])))
        return lines

    def whole(self, body: bytes) -> bytes:
        """See ``ResponseEncoder.whole``."""
        response = orjson.loads(body)
        usage = response["usage"]
        return orjson.dumps(
            {
                "text": output_text(response["output"]),
                "counted": [usage["input_tokens"], usage["output_tokens"]],
            }
        )
