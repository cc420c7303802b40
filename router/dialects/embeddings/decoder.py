"""A reader of answers that come in one piece, and never as a stream."""

from __future__ import annotations

from typing import Any

from router.errors import RouterError, UpstreamError
from router.response.decoder import not_a_stream
from router.response.frame import Frame

__all__ = ["WholeBodyDecoder"]


class WholeBodyDecoder:
    """A ``StreamDecoder`` but for ``whole``. What is not streamed is never fed to it."""

    def __init__(self) -> None:
        self.error: UpstreamError | None = None
        self.final: dict[str, Any] | None = None
        self.encrypted_reasoning: dict[str, str] = {}
        self.usage: dict[str, Any] | None = None
        self.failure: str | None = None

    @property
    def output_chars(self) -> int:
        """See ``StreamDecoder.output_chars``: nothing is written."""
        return 0

    @property
    def has_output(self) -> bool:
        """See ``StreamDecoder.has_output``."""
        return False

    @property
    def ended(self) -> bool:
        """See ``StreamDecoder.ended``."""
        return False

    def feed(self, data: bytes) -> list[Frame]:
        """See ``StreamDecoder.feed``."""
        self.error = not_a_stream()
        return []

    def finish(self) -> list[Frame]:
        """See ``StreamDecoder.finish``."""
        return self.feed(b"")

    def salvage(self) -> list[Frame]:
        """See ``StreamDecoder.salvage``."""
        return []

    def whole(self, body: bytes) -> bytes:
        """See ``StreamDecoder.whole``."""
        raise NotImplementedError

    def assembled(self) -> bytes:
        """See ``StreamDecoder.assembled``."""
        raise not_a_stream()

    def whole_as_stream(self, body: bytes) -> list[Frame]:
        """See ``StreamDecoder.whole_as_stream``."""
        raise not_a_stream()

    def fail(self, error: RouterError) -> list[Frame]:
        """See ``StreamDecoder.fail``."""
        return []
