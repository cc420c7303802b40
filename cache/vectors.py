"""Embeddings and completions as the cache keeps them: the answer itself, as it was sent, and what
it cost.

Most of it is numbers, which are neither read nor written again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import orjson

from cache.request import CachedAnswer

__all__ = ["VectorAnswer"]

_VERSION: Final = 2
_BODY: Final = b',"body":'
_MEMBERS: Final = {"v", "model", "usage", "sum"}


@dataclass(frozen=True, slots=True)
class VectorAnswer(CachedAnswer):
    """What embeddings or completions were answered with. ``body`` is a JSON object, as it was
    sent.
    """

    body: bytes = field(repr=False, default=b"")

    @classmethod
    def of_body(cls, model: str, usage: dict[str, Any] | None, body: bytes) -> VectorAnswer:
        """The answer with this body; ``usage`` is a Responses ``usage`` object."""
        return cls(model, [], usage, {}, {}, body)

    def encode(self) -> bytes:
        """See ``CachedAnswer.encode``."""
        try:
            head = {
                "v": _VERSION,
                "model": self.model,
                # In a string, so that no member of it can be taken for the body.
                "usage": orjson.dumps(self.usage).decode(),
                "sum": _checksum(self.body),
            }
            written = orjson.dumps(head)
        except TypeError:
            raise ValueError("The answer cannot be written as JSON.") from None
        return b"%b%b%b}" % (written[:-1], _BODY, self.body)

    @staticmethod
    def decode(data: bytes) -> VectorAnswer:
        """What ``encode`` wrote; raises ValueError for anything else."""
        # Within a string a quote has a backslash before it: what is found first is the member.
        head, found, rest = data.partition(_BODY)
        try:
            said = orjson.loads(head + b"}")
            if type(said) is not dict or said.keys() != _MEMBERS or said["v"] != _VERSION:
                raise ValueError("Stored embeddings are malformed, or of another version.")
            usage = orjson.loads(said["usage"])
        except orjson.JSONDecodeError:
            raise ValueError("Stored embeddings are not JSON.") from None
        body, model = rest[:-1], said["model"]
        if type(model) is not str or not (usage is None or type(usage) is dict):
            raise ValueError("Stored embeddings are malformed.")
        if not found or rest[-1:] != b"}" or said["sum"] != _checksum(body):
            raise ValueError("Stored embeddings are damaged.")
        return VectorAnswer.of_body(model, usage, body)


def _checksum(body: bytes) -> str:
    return blake2b(body, digest_size=8).hexdigest()
