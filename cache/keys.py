"""The names under which an answer is kept.

Both are BLAKE2b hashes of 128 bits over the version of this format, the kind of answer, the scope,
the model and the canonical request without its last text, each with its length before it; then
comes the text, or the word that there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from cache.request import CacheRequest

__all__ = ["CacheKeys", "keys"]

_VERSION: Final = b"1"
"""Another one, and nothing that was stored before is ever found again: the canonical request
means something else.
"""

_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class CacheKeys:
    """In hex: ``key`` of the whole request, ``namespace`` of what it has in common with those that
    differ from it in their last user text only.
    """

    key: str
    namespace: str


def keys(request: CacheRequest, *, scope: str, model: str | None = None) -> CacheKeys:
    """The keys in this scope: that of a tenant, or one that several share.

    ``model`` is the one that answers, where it is not the one that was asked.
    """
    kind, where = request.kind.encode(), scope.encode("utf-8", "surrogatepass")
    name = (request.model if model is None else model).encode("utf-8", "surrogatepass")
    common = request.common
    head = b"%d:%b%d:%b%d:%b%d:%b%d:%b" % (
        *(len(_VERSION), _VERSION),
        *(len(kind), kind),
        *(len(where), where),
        *(len(name), name),
        *(len(common), common),
    )
    shared = blake2b(head, digest_size=_BYTES)
    whole = shared.copy()
    shared.update(b"-")
    whole.update(b"=")
    whole.update(request.asked)
    return CacheKeys(whole.hexdigest(), shared.hexdigest())
