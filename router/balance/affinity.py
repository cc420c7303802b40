"""Which endpoint has seen a conversation before, so that its prompt cache is used.

Chains, conversations and clients that send their history along look the same here: a request whose
beginning was in an earlier request. The client's own name of its session does the same for what
begins anew. ``fingerprints`` are hashes of these beginnings, ``Affinity`` remembers where they
went. The hashes are the same in every process.

They cover only the edges of a long text, and nothing that varies without a difference: a match by
mistake costs no more than a miss in an endpoint's cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

__all__ = ["Affinity", "fingerprints"]

_EDGE: Final = 128
"""So many characters at the beginning and at the end of a text count, besides its length."""

_MOST_PARTS: Final = 64
"""So many parts of a message's content count, and so many values inside of anything else."""

_SHORT: Final = 1024
"""Instructions with fewer characters are read as quickly as they are found in a cache."""

_INSTRUCTING: Final = frozenset({"system", "developer"})

_INCIDENTAL: Final = frozenset(
    {
        "annotations",
        "call_id",
        "created_by",
        "detail",
        "id",
        "logprobs",
        "status",
        "tool_call_id",
        "type",
    }
)
"""Fields that clients leave out, and that libraries and routers add, from one turn to the next."""

_DIGEST_BYTES: Final = 16

_ENDS: Final = 4
"""Of a long stretch that is new, so many beginnings at each end of it are remembered."""


def fingerprints(
    body: Mapping[str, Any], limit: int = 64, session: Sequence[str] = ()
) -> list[bytes]:
    """Hashes of the beginnings of a request, the shortest first.

    One after the ``prompt_cache_key``, one after the instructions, and one after each of the first
    ``limit`` items of ``input``, or of ``messages``. A request that goes on where another ends has
    the same hashes, and more. The key is a part of each: requests that share it belong together,
    and not to those with another key, or none.

    Texts are the same as lists of text parts, and instructions as system messages; ids and the
    like do not count, and reasoning, which not every client sends back, has no hash. Nor have
    short instructions, which many conversations have in common and no cache makes quicker.
    ``body`` may be any JSON object.

    ``session`` are the names of the client's session and of an agent in it, as far as it gave any.
    They have hashes of their own, after that of the instructions: what was said counts for more,
    and instructions, which sessions have in common, for less.
    """
    state = b""
    prints = []
    key = body.get("prompt_cache_key")
    if type(key) is str and key:
        state = _hash(state, "", [key])
        prints.append(state)
    length: int | None = 0
    for who, texts in _entries(body, limit):
        state = _hash(state, who, texts)
        if length is not None:
            if who in _INSTRUCTING:
                length += sum(map(len, texts))
                if length < _SHORT:
                    continue
            else:
                length = None
                prints += _of_session(session)
        prints.append(state)
    return prints if length is None else [*prints, *_of_session(session)]


class Affinity:
    """Remembers which endpoints got which prompts: the ``max_entries`` beginnings used last."""

    def __init__(self, max_entries: int = 50_000) -> None:
        self._max_entries = max_entries
        self._endpoints: OrderedDict[tuple[str, bytes], str] = OrderedDict()

    def __len__(self) -> int:
        """How many beginnings are remembered."""
        return len(self._endpoints)

    def find(self, model: str, prints: Sequence[bytes]) -> str | None:
        """The endpoint that got the longest beginning of the prompt with these ``fingerprints``.

        It may have gone since. Looking changes nothing.
        """
        get = self._endpoints.get
        for fingerprint in reversed(prints):
            endpoint = get((model, fingerprint))
            if endpoint is not None:
                return endpoint
        return None

    def remember(self, model: str, prints: Sequence[bytes], endpoint: str) -> None:
        """The endpoint got the prompt with these ``fingerprints``.

        What is known to be there stands for all that is shorter, and the ends of what is new for
        its middle: a long history must not push out many others, be it a turn longer than the last
        time or never seen before.
        """
        endpoints = self._endpoints
        new = []
        for fingerprint in reversed(prints):
            new.append((model, fingerprint))
            if endpoints.get(new[-1]) == endpoint:
                break
        if len(new) > 2 * _ENDS:
            del new[_ENDS:-_ENDS]
        for key in reversed(new):
            endpoints[key] = endpoint
            endpoints.move_to_end(key)
        while len(endpoints) > self._max_entries:
            endpoints.popitem(last=False)


def _of_session(names: Sequence[str]) -> list[bytes]:
    """Hashes of the session, and of the agent in it."""
    state, prints = b"session", []
    for name in filter(None, names):
        state = _hash(state, "", [name])
        prints.append(state)
    return prints


def _hash(state: bytes, who: str, texts: list[str]) -> bytes:
    """The hash after one more entry: of its text, or of the length and the edges of a long one."""
    if len(texts) == 1:
        head = tail = texts[0]
        length = len(head)
    else:
        length = sum(map(len, texts))
        head = "".join([text[:_EDGE] for text in texts])
        tail = "".join([text[-_EDGE:] for text in texts])
    gist = head if length <= _EDGE else head[:_EDGE] + tail[-_EDGE:]
    # JSON can name characters that UTF-8 has no bytes for.
    data = f"{who[:_EDGE]}\0{length}\0{gist}".encode("utf-8", "surrogatepass")
    return blake2b(state + data, digest_size=_DIGEST_BYTES).digest()


def _entries(body: Mapping[str, Any], limit: int) -> Iterator[tuple[str, list[str]]]:
    """Who speaks, or what kind of item it is, and what it says."""
    yield from _listed(body.get("instructions") or None, "system", limit)
    given = body.get("input")
    yield from _listed(body.get("messages") if given is None else given, "user", limit)


def _listed(given: Any, speaker: str, limit: int) -> Iterator[tuple[str, list[str]]]:
    if type(given) is str:
        yield speaker, [given]
    if type(given) is not list or (given and type(given[0]) is not dict):
        return  # several texts, or tokens: not the beginning of anything
    for item in islice(given, limit):
        kind = role = None
        if type(item) is dict:
            kind, role = item.get("type"), item.get("role")
        if type(role) is str and (kind is None or kind == "message"):
            content, calls = item.get("content"), item.get("tool_calls")
            texts = [content] if type(content) is str else _texts(content)
            yield role, (texts + _strings(calls) if calls else texts)
        elif kind != "reasoning":
            yield (kind if type(kind) is str else ""), _strings(item)


def _texts(content: Any) -> list[str]:
    """The texts of a message's parts, and the strings in those that are not text."""
    if type(content) is not list:
        return _strings(content) if content else []
    texts: list[str] = []
    for part in islice(content, _MOST_PARTS):
        text = part.get("text") if type(part) is dict else None
        if type(text) is str:
            texts.append(text)
        else:
            texts += _strings(part)
    return texts


def _strings(value: Any) -> list[str]:
    """The strings inside, in an order that does not depend on that of an object's fields.

    Not recursive: a client's values may be nested more deeply than Python's stack.
    """
    strings: list[str] = []
    todo = [value]
    for _ in range(_MOST_PARTS):
        if not todo:
            break
        value = todo.pop()
        if type(value) is str:
            strings.append(value)
        elif type(value) is list:
            todo += reversed(value[:_MOST_PARTS])
        elif type(value) is dict:
            names = [name for name in islice(value, _MOST_PARTS) if name not in _INCIDENTAL]
            names.sort(reverse=True)
            todo += [value[name] for name in names]
    return strings
