"""A telegraph's answers as events of the Responses API."""

from __future__ import annotations

import orjson

from router.errors import UpstreamFailure
from router.response.frame import Frame, load_object
from router.response.machine import ResponseMachine
from router.response.tokens import response_usage

__all__ = ["TelegraphDecoder"]


class TelegraphDecoder(ResponseMachine):
    """Reads a telegram line by line, or whole."""

    _rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        """See ``StreamDecoder.feed``."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            kind, _, said = line.partition(b" ")
            if kind == b"WORD":
                self.text(orjson.loads(said), None)
            elif kind == b"STOP":
                self._stop(*map(int, said.split()))
            else:
                self.error = UpstreamFailure("The telegraph sent something else.")
        return self.take()

    def whole(self, body: bytes) -> bytes:
        """See ``StreamDecoder.whole``."""
        telegram = load_object(body, "a telegram")
        self.text(telegram["text"], None)
        self._stop(*telegram["counted"])
        return orjson.dumps(self.final)

    def _stop(self, received: int, sent: int) -> None:
        self.usage = response_usage(received, sent)
        self.finish_reason = "stop"
        self.complete()
