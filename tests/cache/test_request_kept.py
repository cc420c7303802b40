"""No two chats share a key, unless they ask for the same in other words: what decoding cannot say
in a Responses request is kept beside it.
"""

from __future__ import annotations

import copy
import random
from typing import Any, Final

import orjson

from cache.request import Bypass, keys
from router.dialects.responses.fields import CACHE_RULES
from tests.cache.test_request_exhaustive import CHAT, at, paths
from tests.support.asking import (
    CALL,
    CUSTOM_CALL,
    JSON,
    LARK,
    RESULT,
    SCHEMA,
    USER,
    chat,
    from_chat,
    function,
    said,
)
from tests.support.seed import seed

VARIANTS: Final = 6000
BODIES: Final = (
    chat(),
    chat(USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT, USER),
    chat(
        USER,
        {"role": "assistant", "content": "So"},
        {"role": "assistant", "tool_calls": [CALL, CUSTOM_CALL]},
        {"role": "assistant", "tool_calls": [CALL]},
        RESULT,
    ),
    *(
        chat(USER, *({"role": "assistant", "tool_calls": calls} for calls in said_in))
        for said_in in ([[CALL, CALL], [CALL]], [[CALL], [CALL, CALL]], [[CALL, CALL, CALL]])
    ),
    chat(
        {
            "role": "user",
            "content": [said("x", "text"), {"type": "image_url", "image_url": {"url": "u"}}],
        },
        {"role": "assistant", "content": "", "refusal": "No"},
        USER,
    ),
    chat(
        tools=[
            function(parameters=SCHEMA),
            {"type": "custom", "custom": {"name": "g", "format": {"type": "grammar", **LARK}}},
        ],
        tool_choice=function(),
    ),
    chat(
        response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}},
        verbosity="low",
        logprobs=True,
        top_logprobs=2,
    ),
    chat(max_tokens=5, max_completion_tokens=6, n=1, temperature=0),
    CHAT,
)
VALUES: Final[tuple[Any, ...]] = (
    *(None, "", 0, 1, 1.0, -1, True, False, [], {}, "x", "auto", "low", ["x"], {"a": None}),
    *("assistant", "user", "tool", "system", "function", "custom", "text", "refusal"),
    *([CALL], [CUSTOM_CALL], [CALL, CALL], function(), {"name": "f", "arguments": "{}"}),
    *([said("y", "text")], [said("", "text")], said("y"), {"type": "input_image"}),
)  # fmt: skip
NAMES: Final = (
    *("content", "role", "name", "tool_calls", "refusal", "reasoning_content", "reasoning"),
    *("type", "text", "id", "status", "annotations", "tool_call_id", "detail", "strict", "n"),
    *("logprobs", "top_logprobs", "max_tokens", "tool_choice", "tools", "input", "chat", "zz"),
    *("verbosity", "response_format", "truncation", "include", "phase", "call_id", "output"),
)  # fmt: skip


def test_no_two_chats_that_differ_share_a_key() -> None:
    dice = random.Random(seed())
    known: dict[str, JSON] = {}
    for _ in range(VARIANTS):
        body = _changed(dice.choice(BODIES), dice)
        made = from_chat(body)
        if not isinstance(made, Bypass):
            other = known.setdefault(keys(made, scope="s").key, body)
            assert _plain(other) == _plain(body), (other, body)
    assert len(known) > VARIANTS / 4


def _changed(body: JSON, dice: random.Random) -> JSON:
    """The body with up to three changes: a value, a member or an entry more or less."""
    body = copy.deepcopy(body)
    for _ in range(dice.randrange(4)):
        ways = [way for way, _ in paths(body) if way]
        if not ways:
            break
        way = dice.choice(ways)
        parent, value = at(body, way[:-1]), copy.deepcopy(dice.choice(VALUES))
        change = dice.randrange(4)
        if change == 0:
            del parent[way[-1]]
        elif change == 1 or isinstance(parent, list):
            parent[way[-1]] = value
        elif change == 2:
            parent[dice.choice(NAMES)] = value
        elif isinstance(parent[way[-1]], list):
            parent[way[-1]].append(dice.choice([value, *parent[way[-1]]]))
    return body


_NOTHING: Final[JSON] = {
    "annotations": [],
    "tool_calls": [],
    "tools": [],
    "detail": "auto",
    "strict": False,
    "logprobs": False,
    "modalities": ["text"],
    "n": 1,
    "format": {"type": "text"},
    "response_format": {"type": "text"},
    "tool_choice": "auto",
    "top_logprobs": 0,
    "verbosity": "medium",
    **CACHE_RULES.defaults,
}
"""What a member that says so is as good as not there for."""


def _plain(body: JSON) -> bytes:
    """What a chat asks for, in one of the ways to say it: whoever asks for something else has
    another.
    """
    fields = {k: v for k, v in body.items() if k not in CACHE_RULES.ignored or k == "model"}
    if fields.get("max_tokens") is None and "max_completion_tokens" in fields:
        fields["max_tokens"] = fields.pop("max_completion_tokens")
    return orjson.dumps(_same(fields), option=orjson.OPT_SORT_KEYS)


def _same(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        parts = [_same(part) for part in value]
        only = parts[0] if len(parts) == 1 else None
        text = isinstance(only, dict) and only.keys() == {"type", "text"} and only["type"] == "text"
        return only["text"] if text and only is not None else parts
    if not isinstance(value, dict):
        return value
    made = {name: _same(inner) for name, inner in value.items() if inner is not None}
    for name, nothing in _NOTHING.items():
        if name in made and orjson.dumps(made[name]) == orjson.dumps(_same(nothing)):
            del made[name]
    if "function" in made:
        made["type"] = made.get("type") or "function"
    if "content" not in made and isinstance(refusal := made.get("refusal"), str) and refusal:
        made["content"] = [{"type": "refusal", "refusal": made.pop("refusal")}]
    return made
