"""Thinking as encrypted reasoning of the Responses API, and back.

What has to come back to Anthropic unchanged is the block: its text, which is the summary of the
reasoning item, and its signature; or the ``data`` of one that was redacted. It is sealed with the
mark of the account (``dialects.responses.sealing.seal``):

    pm1.ACCOUNT.t.HASH.SIGNATURE    a block with a text, which has this hash
    pm1.ACCOUNT.r.DATA              a redacted block

A block whose text is another by now would be refused, and with it the whole request: it is left
out.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2s
from typing import Any, Final

from router.dialects.responses.sealing import blob_of, seal, unseal

__all__ = ["seal_redacted", "seal_thinking", "thinking_block"]

_TEXT: Final = "t."
_REDACTED: Final = "r."


def seal_thinking(text: str, signature: str, account: str) -> str:
    """What stands for a block of thinking, beside its text."""
    return seal(f"{_TEXT}{_hash(text)}.{signature}", account)


def seal_redacted(data: str, account: str) -> str:
    """What stands for a block that was redacted."""
    return seal(_REDACTED + data, account)


def thinking_block(item: Mapping[str, Any], account: str) -> tuple[dict[str, Any] | None, bool]:
    """The block that a reasoning item was made of, None where this account made none of it; and
    whether somebody else's encrypted reasoning is lost.
    """
    blob = blob_of(item)
    if blob is None:
        return None, False
    issuer, plain = unseal(blob)
    if issuer == account:
        if plain.startswith(_REDACTED):
            return {"type": "redacted_thinking", "data": plain[len(_REDACTED) :]}, False
        if plain.startswith(_TEXT):
            mark, _, signature = plain[len(_TEXT) :].partition(".")
            text = _summary(item)
            if mark == _hash(text):
                return {"type": "thinking", "thinking": text, "signature": signature}, False
    return None, True


def _summary(item: Mapping[str, Any]) -> str:
    parts = item.get("summary")
    texts = [part.get("text") for part in parts or () if isinstance(part, dict)]
    return "\n\n".join([text for text in texts if isinstance(text, str)])


def _hash(text: str) -> str:
    return blake2s(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
