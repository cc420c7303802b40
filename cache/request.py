"""What the cache keeps and by which key: requests, their keys, and canonical answers.

Requests are the same whichever surface they were asked on. What can change an answer is in the
canonical request, and an absent field equals its default. Where it is not certain that two ways of
asking are the same, they differ.

Both keys are BLAKE2b hashes of 128 bits over the version of this format, the kind of answer, the
scope, the model and the canonical request without its last text, each with its length before it;
then comes the text, or the word that there is none.

``CachedAnswer`` is the canonical finished answer that is kept of a response.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, Final

import orjson

from cache.canonical import HOSTED_TOOLS, Bypass, CacheRequest, FieldRules, NotCacheable
from cache.canonical_completions import canonical_completions
from cache.canonical_embeddings import canonical_embeddings
from cache.canonical_responses import canonical_responses

__all__ = [
    "HOSTED_TOOLS",
    "Bypass",
    "CacheKeys",
    "CacheRequest",
    "CachedAnswer",
    "FieldRules",
    "from_completions",
    "from_embeddings",
    "from_responses",
    "keys",
]


def _attempt(
    make: Callable[..., CacheRequest],
    body: Mapping[str, Any],
    rules: FieldRules,
    kept: dict[str, Any] | None = None,
) -> CacheRequest | Bypass:
    try:
        return make(body, rules) if kept is None else make(body, rules, kept)
    except NotCacheable as unfit:
        return Bypass(unfit.reason)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return Bypass("unsupported")  # it is for the endpoint to say what is wrong with it


from_responses: Final = partial(_attempt, canonical_responses)
"""The request of a validated Responses body, or why it has none.

What its input refers to is in it by then; that it refers to something stored is still told. One
that was decoded of a chat comes with ``kept``, what it does not say of that, and need not be valid.
"""

from_completions: Final = partial(_attempt, canonical_completions)
"""The request of a legacy completions body, or why it has none."""

from_embeddings: Final = partial(_attempt, canonical_embeddings)
"""The request of an embeddings body, or why it has none."""


_KEY_VERSION: Final = b"1"
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
        *(len(_KEY_VERSION), _KEY_VERSION),
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


JSON = dict[str, Any]

_VERSION: Final = 1

_OWN: Final = frozenset(
    {
        "billing",
        "completed_at",
        "created_at",
        "error",
        "id",
        "incomplete_details",
        "model",
        "object",
        "output",
        "output_text",
        "status",
        "usage",
    }
)
"""Fields of an answer that belong to one response, and those with a place of their own."""

_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "function_call": ("call_id", "name", "arguments"),
    "custom_tool_call": ("call_id", "name", "input"),
}
_HOSTED: Final[Mapping[str, Mapping[str, type]]] = {
    "mcp_call": {"server_label": str, "name": str, "arguments": str},
    "mcp_list_tools": {"server_label": str, "tools": list},
    "web_search_call": {"action": dict},
}
"""Items of tools that somebody else than the client has run, and what each has."""

_SAID: Final[Mapping[str, str]] = {"output_text": "text", "refusal": "refusal"}


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """What a model answered: the output items of a completed response, as they were shown.

    ``model`` is the name it was shown with, ``usage`` a Responses ``usage`` object, ``fields`` are
    the other fields of the Response object that do not belong to one request.
    ``encrypted_reasoning`` is encrypted reasoning by item id, which is kept but was not shown.
    Everything is shared with what it was made of, and nothing of it may be changed.
    """

    model: str
    output: list[JSON] = field(repr=False)
    usage: JSON | None
    fields: JSON = field(repr=False)
    encrypted_reasoning: dict[str, str] = field(repr=False)

    @classmethod
    def of_response(
        cls,
        response: Mapping[str, Any],
        encrypted_reasoning: Mapping[str, str],
        rules: FieldRules,
        *,
        hosted: bool = False,
    ) -> CachedAnswer | None:
        """The answer in a final Response object.

        None for one that must not be kept: it is not complete, it is empty, tools on the server
        had a part in it, or there are items of an unknown kind. ``hosted``: they may have had a
        part in it, if none of them failed.
        """
        get = response.get
        model: Any = get("model")
        usage: Any = get("usage")
        output: Any = get("output")
        if get("status") != "completed" or get("error") is not None:
            return None
        if get("incomplete_details") is not None:
            return None
        if not _is_answer(model, usage, output, hosted=hosted):
            return None
        fields = dict(response)
        for name in (*_OWN, *rules.own):
            fields.pop(name, None)
        kept = {}
        if encrypted_reasoning:
            shown = {item["id"] for item in output if type(item.get("id")) is str}
            kept = {ident: blob for ident, blob in encrypted_reasoning.items() if ident in shown}
        return cls(model, output, usage, fields, kept)

    @property
    def calls(self) -> bool:
        """Whether it calls tools."""
        return any(item["type"] in _REQUIRED for item in self.output)

    @property
    def text(self) -> str:
        """The text of all its messages."""
        return "".join(
            part["text"]
            for item in self.output
            if item["type"] == "message"
            for part in item["content"]
            if part["type"] == "output_text"
        )

    def encode(self) -> bytes:
        """As JSON; raises ValueError for what JSON cannot say."""
        try:
            written = orjson.dumps(
                {
                    "v": _VERSION,
                    "model": self.model,
                    "output": self.output,
                    "usage": self.usage,
                    "fields": self.fields,
                    "hidden": self.encrypted_reasoning,
                }
            )
        except TypeError:
            raise ValueError("The answer cannot be written as JSON.") from None
        # Copied: what orjson returns keeps the whole buffer it was written into.
        return bytes(memoryview(written))

    @staticmethod
    def decode(data: bytes) -> CachedAnswer:
        """What ``encode`` wrote; raises ValueError for anything else."""
        try:
            said = orjson.loads(data)
        except orjson.JSONDecodeError:
            raise ValueError("A stored answer is not JSON.") from None
        if type(said) is not dict or said.keys() != _MEMBERS:
            raise ValueError("A stored answer is malformed.")
        if type(said["v"]) is not int or said["v"] != _VERSION:
            raise ValueError("A stored answer is of another version.")
        encrypted_reasoning = said["hidden"]
        if (
            not _is_answer(said["model"], said["usage"], said["output"], hosted=True)
            or type(said["fields"]) is not dict
            or type(encrypted_reasoning) is not dict
            or not {str}.issuperset(map(type, encrypted_reasoning.values()))
        ):
            raise ValueError("A stored answer is malformed.")
        return CachedAnswer(
            said["model"], said["output"], said["usage"], said["fields"], encrypted_reasoning
        )


_MEMBERS: Final = {"v", "model", "output", "usage", "fields", "hidden"}


def _is_answer(model: Any, usage: Any, output: Any, *, hosted: bool) -> bool:
    """Whether ``output`` is whole items of known kinds, with something said or called in them, and
    the rest what belongs to it. ``hosted``: the items of hosted tools are among the known kinds.
    """
    known = type(model) is str and (usage is None or type(usage) is dict)
    if not known or type(output) is not list:
        return False
    says = False
    for item in output:
        if type(item) is not dict or item.get("status") not in (None, "completed"):
            return False
        kind = item.get("type")
        if kind == "message":
            said = _said(item, hosted=hosted)
            if said is None:
                return False
            says = says or said
        elif kind == "reasoning":
            if not (_is_thought(item.get("summary")) and _is_thought(item.get("content"))):
                return False
        elif hosted and type(kind) is str and kind in _HOSTED:
            if not _has_worked(item, _HOSTED[kind]):
                return False
        else:
            required = _REQUIRED.get(kind) if type(kind) is str else None
            if required is None or not all(type(item.get(name)) is str for name in required):
                return False
            says = True
    return says


def _has_worked(item: JSON, required: Mapping[str, type]) -> bool:
    """Whether a hosted tool's item has what it must have, and tells of no error."""
    if item.get("error") is not None:
        return False
    return all(type(item.get(name)) is kind for name, kind in required.items())


def _said(message: JSON, *, hosted: bool) -> bool | None:
    """Whether a message says something; None for one that is malformed or must not be kept."""
    content = message.get("content")
    if message.get("role") != "assistant" or type(content) is not list:
        return None
    says = False
    for part in content:
        kind = part.get("type") if type(part) is dict else None
        if type(kind) is not str or kind not in _SAID or type(part.get(_SAID[kind])) is not str:
            return None
        # What it cites was searched for when it was asked, whether or not the search is shown.
        if part.get("annotations") and not hosted:
            return None
        says = says or part[_SAID[kind]] != ""
    return says


def _is_thought(parts: Any) -> bool:
    return parts is None or (
        type(parts) is list
        and all(type(part) is dict and type(part.get("text")) is str for part in parts)
    )
