"""Keys, for the people who run it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.dialects.json_schema import (
    Schema,
    array,
    asked,
    boolean,
    constant,
    enum,
    integer,
    mapping,
    nullable,
    number,
    ref,
    string,
    told,
)
from router.http.description.families.admin import CLOSED
from router.http.description.parts import DescribedBody, Family, Op, json_answer, path, query

__all__ = ["FAMILY"]

_PATTERN: Final = r"^(?!tag:)[A-Za-z0-9][A-Za-z0-9._@:-]{0,63}$"
_NAME: Final = string("1 to 64 letters, digits or `. _ @ : -`.", pattern=_PATTERN)
_MOST: Final = 2**53
_LONGEST_GRACE: Final = 366 * 86_400
_COUNT: Final = integer(1, _MOST)
_TEXTS: Final = array(string(minLength=1), minItems=1, uniqueItems=True)
_NAMED: Final = path("name", "The name of a key.", "team-a")
_KEPT: Final = ("Cache-Control",)

_LIMITS: Final = asked(
    {},
    dict.fromkeys(("requests_per_minute", "tokens_per_minute", "concurrent"), _COUNT),
    closed=True,
)
_PERIOD: Final = enum("day", "week", "month", "total")
_BUDGET: Final = asked(
    {"period": _PERIOD},
    {"usd": number(exclusiveMinimum=0, maximum=9_000_000), "tokens": _COUNT},
    closed=True,
    description="Either `usd` or `tokens`.",
)
_FIELDS: Final[Mapping[str, Schema]] = {
    "models": {**_TEXTS, "description": "Names or patterns; all where it is left out."},
    "endpoints": {**_TEXTS, "description": "Names or patterns; all where it is left out."},
    "default_model": string("The model of requests that name none."),
    "expires": string("A date or time, such as `2030-01-31` or `2030-01-31T12:00Z`."),
    "tags": array(
        string(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:-]{0,63}$"),
        "They share budgets.",
        uniqueItems=True,
    ),
    "priority": integer(1, _MOST, "The place in the queue for a slot: 1 is first."),
    "budgets": array(_BUDGET),
    "limits": _LIMITS,
    "model_limits": mapping(nullable(_LIMITS), "Further limits by name or pattern of models."),
}
_CHANGES: Final = asked({}, _FIELDS, closed=True)
_NEW: Final = asked({"name": _NAME}, _FIELDS, closed=True)

_KEY: Final[dict[str, Any]] = {
    "object": "key",
    "name": "team-a",
    "source": "virtual",
    "state": "active",
    "hint": "sk-sy-...abcd",
    "created_at": 1767225600,
    "changed_at": 1767225600,
    "revoked_at": None,
    "previous_until": None,
    "models": None,
    "endpoints": None,
    "default_model": None,
    "expires": None,
    "tags": [],
    "priority": 1,
    "budgets": [],
    "limits": {},
    "model_limits": {},
}
_ISSUED: Final = {**_KEY, "key": "sk-sy-…"}


def _on_key(method: str, verb: str, ident: str, summary: str, **more: Any) -> Op:
    return Op(
        method=method,
        path=f"/keys/{{name}}{verb}",
        id=ident,
        summary=summary,
        parameters=(_NAMED,),
        key="admin",
        **{"answer": json_answer("The key.", ref("Key"), _KEY, _KEPT), **more},
    )


FAMILY: Final = Family(
    tag="Admin: keys",
    description="Virtual keys are made, changed, rotated and revoked here; those of the "
    "configuration are shown.",
    prefixes=("/admin",),
    schemas={
        "Key": told(
            {
                "object": constant("key"),
                "name": string(),
                "source": enum("virtual", "configuration"),
                "state": enum("active", "expired", "revoked", "unreadable"),
            },
            {
                "hint": string(),
                "created_at": integer(0),
                "changed_at": integer(0),
                "revoked_at": nullable(integer(0)),
                "previous_until": nullable(string()),
                "expires": nullable(string()),
                "models": nullable(array(string())),
                "endpoints": nullable(array(string())),
                "default_model": nullable(string()),
                "tags": array(string()),
                "warnings": array(string(), "What may be a slip."),
            },
        ),
        "IssuedKey": {
            "allOf": [ref("Key"), told({"key": string("The secret. It is shown once.")})]
        },
        "Keys": told(
            {"object": constant("list"), "data": array(ref("Key")), "has_more": boolean()}
        ),
    },
    ops=(
        Op(
            method="POST",
            path="/keys",
            id="createKey",
            summary="Make a virtual key",
            body=DescribedBody(_NEW, {"name": "team-a", "limits": {"requests_per_minute": 60}}),
            answer=json_answer("The key and its secret.", ref("IssuedKey"), _ISSUED, _KEPT),
            errors=(*CLOSED, 400, 409, 413),
            key="admin",
        ),
        Op(
            method="GET",
            path="/keys",
            id="listKeys",
            summary="List keys",
            description="Those of the configuration first, then virtual ones by name.",
            parameters=(
                query("limit", integer(1, 1000, default=100), "How many at most."),
                query("after", string(), "The name of the last one the client has."),
            ),
            answer=json_answer(
                "A page of keys.",
                ref("Keys"),
                {"object": "list", "data": [_KEY], "has_more": False},
                _KEPT,
            ),
            errors=(*CLOSED, 400),
            key="admin",
        ),
        _on_key("GET", "", "getKey", "Show a key", errors=(*CLOSED, 404)),
        _on_key(
            "PATCH",
            "",
            "changeKey",
            "Change a virtual key",
            description="Null is as if a field was never given.",
            body=DescribedBody(_CHANGES, {"priority": 2}),
            errors=(*CLOSED, 400, 404, 409, 413),
        ),
        _on_key(
            "DELETE",
            "",
            "revokeKey",
            "Revoke a virtual key",
            description="Its name stays taken.",
            errors=(*CLOSED, 404, 409),
        ),
        _on_key(
            "POST",
            "/rotate",
            "rotateKey",
            "Give a virtual key another secret",
            body=DescribedBody(
                asked({}, {"grace": number(0, _LONGEST_GRACE, "Seconds.")}, closed=True),
                {"grace": 3600},
                required=False,
            ),
            answer=json_answer("The key and its secret.", ref("IssuedKey"), _ISSUED, _KEPT),
            errors=(*CLOSED, 400, 404, 409, 413),
        ),
    ),
)
