"""An entry as bytes: a head, which is all but the body, and the body. Pure.

The head is one line of JSON, a line feed, and the vector as it is.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from cache.entry import CacheEntry, InvalidationRule, RuleKind

__all__ = ["pack_head", "pack_rule", "unpack", "unpack_fields", "unpack_rule", "without_body"]

_TYPES: Final = [str, str, str, str, float, float, int, list, str, str]
_TAGS: Final = 7
_KINDS: Final[dict[str, RuleKind]] = {
    "all": "all",
    "model": "model",
    "namespace": "namespace",
    "tag": "tag",
    "entry": "entry",
}


def pack_head(entry: CacheEntry) -> bytes:
    """Everything but the body; raises ValueError where a text in it cannot be written."""
    fields = (
        entry.key,
        entry.namespace,
        entry.kind,
        entry.model,
        entry.created,
        entry.expires,
        entry.epoch,
        entry.tags,
        entry.text,
        entry.embedder,
    )
    try:
        return orjson.dumps(fields) + b"\n" + entry.vector
    except TypeError:
        raise ValueError("a lone surrogate, or a number that is too large") from None


def unpack_fields(head: bytes) -> tuple[list[Any], bytes]:
    """What ``pack_head`` wrote, in its order, and the vector; raises ValueError where this is no
    head. For those who do not need all of an entry.
    """
    line, separator, vector = head.partition(b"\n")
    fields = orjson.loads(line)
    if not separator or type(fields) is not list or list(map(type, fields)) != _TYPES:
        raise ValueError("this is no entry's head")
    if fields[_TAGS] and set(map(type, fields[_TAGS])) != {str}:
        raise ValueError("this is no entry's head")
    return fields, vector


def unpack(head: bytes, body: bytes = b"") -> CacheEntry:
    """The entry; raises ValueError where this is none."""
    fields, vector = unpack_fields(head)
    key, namespace, kind, model, created, expires, epoch, tags, text, embedder = fields
    return CacheEntry(
        key,
        namespace,
        kind,
        model,
        created,
        expires,
        epoch,
        body,
        tuple(tags),
        text,
        embedder,
        vector,
    )


def pack_rule(rule: InvalidationRule) -> str:
    """``kind:value``."""
    return f"{rule.kind}:{rule.value}"


def unpack_rule(text: str) -> InvalidationRule:
    """Raises ValueError where this is none."""
    kind, separator, value = text.partition(":")
    if not separator or kind not in _KINDS:
        raise ValueError("this is no rule")
    return InvalidationRule(_KINDS[kind], value)


def without_body(entry: CacheEntry) -> CacheEntry:
    """As ``Change.added`` wants it."""
    return CacheEntry(
        entry.key,
        entry.namespace,
        entry.kind,
        entry.model,
        entry.created,
        entry.expires,
        entry.epoch,
        b"",
        entry.tags,
        entry.text,
        entry.embedder,
        entry.vector,
    )
