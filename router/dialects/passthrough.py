"""Answers that are passed on in the API that they came in: what reading them has in common."""

from __future__ import annotations

from typing import Any, ClassVar

from router.dialects.model_name import ModelName
from router.errors import UpstreamError, UpstreamFailure
from router.response.frame import EventTooLarge, Frame, SSEDecoder, data_of
from router.response.text_template import MOST_USELESS, PassedText

__all__ = ["PassthroughDecoder"]


class PassthroughDecoder:
    """The part of a ``StreamDecoder`` that cuts a stream into events, and ends it. The model's name
    becomes ``model``.
    """

    finds_text: ClassVar[bool] = False
    """Whether events may be known by their text: there is a ``_text_of`` then."""

    def __init__(self, model: str) -> None:
        self.error: UpstreamError | None = None
        self.final: dict[str, Any] | None = None
        self.encrypted_reasoning: dict[str, str] = {}
        self.usage: dict[str, Any] | None = None
        self.failure: str | None = None
        self.output_chars = 0
        self.has_output = False
        self.ended = False
        self._model = ModelName(model)
        self._decoder: SSEDecoder | None = None
        self._alike: PassedText | None = None  # events like the last one
        self._had_text = False
        self._useless = 0

    def feed(self, data: bytes) -> list[Frame]:
        """See ``StreamDecoder.feed``."""
        frames: list[Frame] = []
        if self.error is not None or self.ended:
            return frames
        decoder = self._decoder = self._decoder or SSEDecoder()
        try:
            for block in decoder.blocks(data):
                alike = self._alike
                if alike is not None and (frame := alike.frame(block)) is not None:
                    self.output_chars += len(alike.text)
                    frames.append(frame)
                elif (event := data_of(block)) and self._decoded(block, event, frames):
                    break
        except EventTooLarge as exc:
            self.error = UpstreamFailure(f"The endpoint's stream is broken: {exc}.")
        except UpstreamError as exc:
            self.error = exc
        return frames

    def finish(self) -> list[Frame]:
        """See ``StreamDecoder.finish``."""
        frames = self.salvage()
        if not self.ended and self.error is None:
            self.error = UpstreamFailure("The endpoint's stream ended before the answer did.")
        return frames

    def salvage(self) -> list[Frame]:
        """See ``StreamDecoder.salvage``."""
        raise NotImplementedError

    def _decoded(self, block: bytes, data: bytes, frames: list[Frame]) -> bool:
        """An event that is not like the last one, and what can be learned of it; whether it was the
        last.
        """
        alike, before = self._alike, len(frames)
        self._alike = None
        if alike is not None and not alike.raw:
            self._useless += 1
        self._event(data, frames)
        if self.finds_text and len(frames) == before + 1 and not self.ended:
            self._learn(block, frames[-1])
        return self.ended

    def _learn(self, block: bytes, passed: Frame) -> None:
        """Learn of the second text in a row: the first is not held up by that."""
        had_text = self._had_text
        self._had_text = self._text_of(passed.json()) is not None
        learns = self._useless < MOST_USELESS and self._model.in_place
        if learns and had_text and self._had_text:
            self._alike = PassedText.of(block, passed, self._text_of, encoded=False)

    def _text_of(self, event: dict[str, Any]) -> tuple[dict[str, Any], str] | None:
        """See ``FindText``: where the text is that is all that has to be known of an event, the one
        before it having been read.
        """
        raise NotImplementedError

    def _event(self, data: bytes, frames: list[Frame]) -> None:
        """Read one event, and add what the client is sent of it; raises UpstreamError."""
        raise NotImplementedError
