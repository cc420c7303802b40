"""What the canonical request of every API is made of.

A canonical request is a JSON object in which only what differs from its default is there:

    messages      [entry, …], see below
    tools         [tool, …]         tool_choice, format   what the answer has to look like
    limit, effort, summary, verbosity, logprobs, top_logprobs, include
    settings      fields that are called the same in all APIs, and those that nobody knows
    responses     what only a Responses request says, as it was said
    chat          what a Responses request cannot say of a chat, by where it stood

    {"role", "content"?, "calls"?, …}                 a message; the content is a string, or parts
    {"role": "tool", "id", "content", "custom"?, …}   a tool's output
    {"item": {…}}                                     any other item of a history

What is said in a form that is not known here is kept as it was said, under the name ``responses``:
it equals nothing but the same words in the same API, for a chat says where it has such words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

import orjson

__all__ = [
    "HOSTED_TOOLS",
    "Bypass",
    "CacheRequest",
    "FieldRules",
    "NotCacheable",
    "extras",
    "finished",
    "is_default",
    "named_only",
    "ordered",
    "plain",
    "refuse_shared",
    "settings",
    "written",
]

JSON = dict[str, Any]

_TEXTUAL: Final = frozenset({"text", "refusal"})
_SHOWN: Final = frozenset({"image_generation_call", "computer_call_output"})
"""Items of a history that are pictures."""

HOSTED_TOOLS: Final = "hosted_tools"
"""Why only the very same question will do where its tools work on the server."""

_LOGPROBS: Final = frozenset({"logprobs", "top_logprobs"})
_NUMBERS: Final = (int, float)
_EXACT_INTEGER: Final = 2**53

_BLANK: Final = True
"""Stands for a text where the namespace is made; no text of a client's is a boolean."""


class NotCacheable(Exception):
    """The request cannot be cached; ``reason`` is the one of ``Bypass``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class FieldRules:
    """What the cache is told of the fields of requests and of answers.

    ``ignored`` are the fields of a request that do not change what is answered, and the model,
    which has a place of its own in the key. ``defaults`` is what a field that is left out stands
    for. ``own`` are the fields of an answer that belong to one response or its request.

    ``tools`` are the hosted tools with which answers are kept, by what ``tool_name`` calls them; it
    is None for a tool that has no such name.
    """

    ignored: frozenset[str]
    defaults: Mapping[str, Any]
    own: frozenset[str]
    tool_name: Callable[[Mapping[str, Any]], str | None]
    tools: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Bypass:
    """Why a request is never answered from the cache, nor its answer kept.

    ==================  ======================================================================
    state               it depends on what is stored: a chain, a conversation, items by id
    background          it is a run: ``background``, ``stream_options.durable``
    server_tools        its tools work on the server, and may find something else every time
    compaction          its conversation was compacted for one client, or may be on the way
    several_choices     ``n`` is not 1
    audio               its answer is not, or not only, text
    files               it names files by their ids, which belong to one key
    legacy_functions    ``functions`` and ``function_call``, in the request or its history
    unsupported         not what the surface takes, or not what JSON can say
    ==================  ======================================================================
    """

    reason: str


@dataclass(frozen=True, slots=True)
class CacheRequest:
    """A request as the cache sees it, whichever surface it came from.

    ``kind`` says what sort of answer it has (see ``CacheEntry.kind``). ``canonical`` is what
    decides the answer, but for the model. ``text`` is the text of the last message where that is
    the user's, its parts joined by line feeds. ``exact_only`` is why no similar question's answer
    will do, the first that holds:

    ==================  ======================================================================
    hosted_tools        its tools work on the server, and ``FieldRules.tools`` has all of them
    images              there are images, files, audio or parts of an unknown kind in it
    no_user_text        it does not end with a message of the user
    logprobs            it asks for log probabilities
    sampled             it asks for a temperature above 0
    vectors             it asks for embeddings, and is no question at all
    completion          it is a text to be gone on with, and no question either
    ==================  ======================================================================

    ``common`` is the canonical request as bytes, without that text; ``asked`` is the text.
    """

    kind: str
    model: str
    canonical: JSON = field(repr=False)
    text: str | None = field(repr=False)
    exact_only: str | None
    common: bytes = field(repr=False)
    asked: bytes = field(repr=False)


def finished(
    model: Any, canonical: JSON, *, temperature: Any, hosted: bool = False
) -> CacheRequest:
    """The request with this canonical form; raises NotCacheable for what cannot be written as JSON.

    ``temperature`` is the explicit one of the request: above 0 several answers are asked for, in a
    way. ``hosted``: there are hosted tools among its tools.
    """
    messages = canonical["messages"]
    last = messages[-1] if messages else {}
    texts, blanked = _blanked(last) if last.get("role") == "user" else ([], last)
    common = {**canonical, "messages": [*messages[:-1], blanked]} if texts else canonical
    try:
        common_bytes = written(common)
        asked = orjson.dumps(texts) if texts else b""
        if type(model) is not str:
            raise NotCacheable("unsupported")
        model.encode()
    except (TypeError, UnicodeEncodeError):  # lone surrogates, integers of more than 64 bits
        raise NotCacheable("unsupported") from None
    others = (*canonical.get("settings", ()), *canonical.get("chat", ()))
    exact_only = None
    if hosted:
        exact_only = HOSTED_TOOLS
    elif _has_pictures(messages):
        exact_only = "images"
    elif not texts:
        exact_only = "no_user_text"
    elif not _LOGPROBS.isdisjoint((*canonical, *others)):
        exact_only = "logprobs"
    elif temperature is not None and (type(temperature) not in _NUMBERS or temperature != 0):
        exact_only = "sampled"
    text = "\n".join(texts) if texts else None
    return CacheRequest("answer", model, canonical, text, exact_only, common_bytes, asked)


def written(common: JSON) -> bytes:
    """The bytes of what two requests have to have in common; raises NotCacheable for what JSON
    cannot say.
    """
    try:
        found = orjson.dumps(common, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # lone surrogates, integers of more than 64 bits
        raise NotCacheable("unsupported") from None
    # Written as null, which is the only way that these bytes could lie.
    if b"null" in found and _has_non_finite(common):
        raise NotCacheable("unsupported")
    return found


def settings(body: Mapping[str, Any], rules: FieldRules, read: frozenset[str]) -> JSON:
    """The fields that do not have their default, but for those that are ``read`` elsewhere."""
    ignored, defaults = rules.ignored, rules.defaults
    found: JSON = {}
    for name, value in body.items():
        if value is None or name in read or name in ignored:
            continue
        value = plain(value)
        if name not in defaults or not is_default(value, plain(defaults[name])):
            found[name] = ordered(value)
    return found


def refuse_shared(body: Mapping[str, Any]) -> None:
    """Raise NotCacheable for what no surface's answer is cached with: endpoints read these fields
    wherever they stand.
    """
    for name in ("previous_response_id", "conversation"):
        if body.get(name) is not None:
            raise NotCacheable("state")
    if body.get("web_search_options") is not None:
        raise NotCacheable("server_tools")
    if body.get("audio") is not None or body.get("modalities") not in (None, ["text"]):
        raise NotCacheable("audio")


def extras(given: Mapping[str, Any], known: frozenset[str]) -> JSON:
    """What there is beside the ``known`` members; null is what is not there."""
    return {k: ordered(v) for k, v in given.items() if k not in known and v is not None}


def named_only(given: Any, *names: str) -> TypeGuard[JSON]:
    """Whether this is an object with no members but these; null is what is not there."""
    return type(given) is dict and all(k in names or v is None for k, v in given.items())


def plain(value: Any) -> Any:
    """A setting: 1.0 is 1 and -0.0 is 0. Raises NotCacheable for what is no number."""
    if type(value) is float:
        if not math.isfinite(value):
            raise NotCacheable("unsupported")
        if abs(value) < _EXACT_INTEGER and value.is_integer():
            return int(value)
    return value


def is_default(value: Any, default: Any) -> bool:
    """Whether these are the same: true is not 1."""
    return type(value) is type(default) and bool(value == default)


def ordered(value: Any) -> Any:
    """A value in which the order of a schema's ``properties`` counts.

    A model writes the members of an object in that order: with the reasons first it comes to
    another conclusion. Everywhere else the order of members does not matter.
    """
    if type(value) is dict:
        return {
            k: v if type(v) is str else _properties(v) if k == "properties" else ordered(v)
            for k, v in value.items()
        }
    if type(value) is list:
        return [ordered(v) for v in value]
    return value


def _properties(value: Any) -> Any:
    if type(value) is not dict:
        return ordered(value)
    return {"ordered": [[name, ordered(schema)] for name, schema in value.items()]}


def _blanked(message: JSON) -> tuple[list[str], JSON]:
    """The texts of a message, and the message without them."""
    content = message.get("content")
    if type(content) is str:
        return [content], {**message, "content": _BLANK}
    if type(content) is not list:
        return [], message
    texts = []
    parts = []
    for part in content:
        if part.get("type") == "text":
            texts.append(part["text"])
            part = {**part, "text": _BLANK}
        parts.append(part)
    return texts, {**message, "content": parts}


def _has_pictures(messages: list[JSON]) -> bool:
    """Whether there is something in them that is not text."""
    for entry in messages:
        content = entry.get("content")
        if type(content) is list:
            if any(part.get("type") not in _TEXTUAL for part in content):
                return True
        elif (item := entry.get("item")) is not None and item["type"] in _SHOWN:
            return True
    return False


def _has_non_finite(value: Any) -> bool:
    todo = [value]
    while todo:
        value = todo.pop()
        if type(value) is dict:
            todo.extend(value.values())
        elif type(value) is list:
            todo.extend(value)
        elif type(value) is float and not math.isfinite(value):
            return True
    return False
