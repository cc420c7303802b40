"""The response cache, for the people who run it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.dialects.json_schema import (
    ANYTHING,
    Schema,
    any_of,
    array,
    asked,
    boolean,
    integer,
    mapping,
    nullable,
    number,
    ref,
    string,
    told,
)
from router.http.description.families.admin import CLOSED
from router.http.description.parts import DescribedBody, Family, Op, json_answer

__all__ = ["FAMILY"]

_TEXT: Final = string(minLength=1)
_REQUEST: Final = any_of(ref("CreateResponse"), ref("CreateChatCompletion"))
_KEPT: Final = ("Cache-Control",)
_READING: Final = (*CLOSED, 400, 413, 501)


def _only(**fields: Schema) -> Schema:
    return asked(fields, closed=True)


_SCHEMAS: Final[Mapping[str, Schema]] = {
    "CacheEntry": told(
        {
            "key": string(),
            "namespace": string(),
            "model": string(),
            "question": nullable(string()),
            "answer": ANYTHING,
            "tags": array(string()),
            "created": number(),
            "expires": number(),
            "age": number(0),
            "semantic": boolean("Whether similar questions may find it."),
        }
    ),
    "CacheExplained": any_of(
        told({"cacheable": {"const": False}, "reason": string()}),
        told(
            {
                "cacheable": {"const": True},
                "key": string(),
                "namespace": string(),
                "tier": nullable(string()),
                "entry": nullable(ref("CacheEntry")),
                "semantic": mapping(ANYTHING),
            }
        ),
    ),
}


def _post(
    name: str,
    ident: str,
    summary: str,
    schema: Schema,
    example: Any,
    answer: Schema,
    said: Any,
    *errors: int,
) -> Op:
    return Op(
        method="POST",
        path=f"/cache/{name}",
        id=ident,
        summary=summary,
        body=DescribedBody(schema, example),
        answer=json_answer("Done.", answer, said, _KEPT),
        errors=(*_READING, *errors),
        key="admin",
    )  # fmt: skip


FAMILY: Final = Family(
    tag="Admin: cache",
    description="What is in the response cache. 501 where it is off.",
    prefixes=("/admin",),
    schemas=_SCHEMAS,
    ops=(
        Op(
            method="GET",
            path="/cache",
            id="getCache",
            summary="How full the cache is, and what its self-check found",
            answer=json_answer(
                "How it is.",
                told(
                    {
                        "mode": string(),
                        "scope": string(),
                        "store": told(
                            dict.fromkeys(("entries", "bytes", "max_bytes", "evicted"), integer(0))
                        ),
                        "semantic": nullable(mapping(ANYTHING)),
                    }
                ),
                {
                    "mode": "on-request",
                    "scope": "key",
                    "store": {"entries": 0, "bytes": 0, "max_bytes": 1073741824, "evicted": 0},
                    "semantic": None,
                },
                _KEPT,
            ),
            errors=(*CLOSED, 501),
            key="admin",
        ),
        _post(
            "lookup",
            "lookUpInCache",
            "What a request would be answered with, and why",
            any_of(
                _only(entry=_TEXT),
                _only(request=_REQUEST),
                _only(request=_REQUEST, caller=_TEXT),
            ),
            {"request": {"model": "my-model", "input": "What is a pointsman?"}},
            any_of(ref("CacheExplained"), ref("CacheEntry")),
            {"cacheable": False, "reason": "state"},
            404,
        ),
        _post(
            "invalidate",
            "invalidateCache",
            "Have entries be served no more",
            any_of(
                *(_only(**{kind: _TEXT}) for kind in ("entry", "tag", "model", "namespace")),
                asked({"all": {"const": True}}, closed=True),
            ),
            {"tag": "docs"},
            told({"invalidated": mapping(any_of(string(), boolean())), "removed": integer(0)}),
            {"invalidated": {"tag": "docs"}, "removed": 3},
        ),
        _post(
            "feedback",
            "reproachCache",
            "An entry answered what it should not have",
            _only(entry=_TEXT),
            {"entry": "0123abcd"},
            told({"removed": string(), "required_similarity": nullable(number())}),
            {"removed": "0123abcd", "required_similarity": 0.93},
            404,
        ),
        _post(
            "forgive",
            "forgiveCache",
            "Use the semantic tier again where the self-check switched it off",
            _only(namespace=_TEXT),
            {"namespace": "0123abcd"},
            told({"forgiven": string()}),
            {"forgiven": "0123abcd"},
            404,
        ),
    ),
)
