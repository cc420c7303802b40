"""Answers that are passed on in the API that they came in: what reading them has in common."""

from __future__ import annotations

from typing import Any

from router.dialects.model_name import ModelName
from router.errors import UpstreamError, UpstreamFailure
from router.response.frame import EventTooLarge, Frame, SSEDecoder

__all__ = ["PassthroughDecoder"]


class PassthroughDecoder:
    """The part of a ``StreamDecoder`` that cuts a stream into events, and ends it. The model's name
    becomes ``model``.
    """

    def __init__(self, model: str) -> None:
        self.error: UpstreamError | None = None
        self.final: dict[str, Any] | None = None
        self.encrypted_reasoning: dict[str, str] = {}
        self.usage: dict[str, Any] | None = None
        self.failure: str | None = None
        self.output_chars = 0
        self.has_output = False
        self._ended = False
        self._model = ModelName(model)
        self._decoder = SSEDecoder()

    @property
    def ended(self) -> bool:
        """See ``StreamDecoder.ended``."""
        return self._ended

    def feed(self, data: bytes) -> list[Frame]:
        """See ``StreamDecoder.feed``."""
        frames: list[Frame] = []
        if self.error is not None or self._ended:
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
        """See ``StreamDecoder.finish``."""
        frames = self.salvage()
        if not self._ended and self.error is None:
            self.error = UpstreamFailure("The endpoint's stream ended before the answer did.")
        return frames

    def salvage(self) -> list[Frame]:
        """See ``StreamDecoder.salvage``."""
        raise NotImplementedError

    def _event(self, data: bytes, frames: list[Frame]) -> None:
        """Read one event, and add what the client is sent of it; raises UpstreamError."""
        raise NotImplementedError
