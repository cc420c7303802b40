"""What was used: everybody's for the people who run it, their own for clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.dialects.json_schema import (
    Schema,
    array,
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
from router.http.description.errors import KEYED
from router.http.description.families.admin import CLOSED
from router.http.description.parts import Family, Op, Parameter, json_answer, query
from router.usage.report import BUCKETS, COLUMNS, FILTERS

__all__ = ["EVERYBODY", "OWN"]

_TIME: Final = string(description="A time ago (`7d`, `24h`, `30m`), a date, a time, or Unix time.")
_KEPT: Final = ("Cache-Control",)
_MOST: Final = 10_000
_COUNTS: Final = dict.fromkeys(("input", "cached", "output", "reasoning"), integer(0))
_TOKENS: Final = told(_COUNTS)
_SUMS: Final = told(
    {
        "requests": integer(0),
        "attempts": integer(0),
        "hits": integer(0, description="Answers from the cache."),
        "tokens": told({**_COUNTS, "reported": _TOKENS, "estimated": _TOKENS}),
        "cost_usd": nullable(number(0, description="Null where no price is known.")),
        "unpriced": integer(0, description="Attempts that used tokens and have no price."),
        "saved_tokens": _TOKENS,
        "saved_usd": number(0),
    },
    {
        "start": integer(0, description="Where its bucket of time begins, in Unix time."),
        **dict.fromkeys(COLUMNS, string()),
    },
)
_LIMITS: Final = told(
    dict.fromkeys(
        ("requests_per_minute", "tokens_per_minute", "concurrent"), nullable(integer(1))
    )
)  # fmt: skip
_AMOUNT: Final = nullable(number(0))
_REPORT: Final[Mapping[str, Schema]] = {
    "object": constant("usage"),
    "since": number(0),
    "until": nullable(number(0)),
    "bucket": nullable(enum(*BUCKETS)),
    "data": array(ref("UsageSums")),
    "total": ref("UsageSums"),
    "has_more": boolean(),
}
_SCHEMAS: Final[Mapping[str, Schema]] = {
    "UsageSums": _SUMS,
    "Usage": told({**_REPORT, "by": array(string())}),
    "OwnUsage": told(
        {
            **_REPORT,
            "key": string(),
            "expires_at": nullable(number()),
            "budgets": array(
                told(
                    {
                        "owner": string(),
                        "period": string(),
                        "unit": enum("usd", "tokens"),
                        "budget": number(0),
                        "spent": _AMOUNT,
                        "reserved": _AMOUNT,
                        "left": _AMOUNT,
                        "resets_at": nullable(number()),
                    }
                )
            ),
            "limits": _LIMITS,
            "model_limits": mapping(_LIMITS),
        }
    ),
}
_ZERO: Final[dict[str, Any]] = dict.fromkeys(_COUNTS, 0)
_NOTHING: Final[dict[str, Any]] = {
    "requests": 0,
    "attempts": 0,
    "hits": 0,
    "tokens": {**_ZERO, "reported": _ZERO, "estimated": _ZERO},
    "cost_usd": 0.0,
    "unpriced": 0,
    "saved_tokens": _ZERO,
    "saved_usd": 0.0,
}
_EMPTY: Final[dict[str, Any]] = {
    "object": "usage",
    "since": 1767225600.0,
    "until": None,
    "bucket": None,
    "data": [],
    "total": _NOTHING,
    "has_more": False,
}


def _period(since: str) -> tuple[Parameter, ...]:
    return (
        query("since", _TIME, f"From when on; {since} where it is left out."),
        query("until", _TIME, "To before when."),
        query("bucket", enum(*BUCKETS), "Apart by hour or day (of UTC)."),
    )


OWN: Final = Family(
    tag="Usage",
    description="What was used.",
    prefixes=("/v1", "/api/v1"),
    schemas=_SCHEMAS,
    ops=(
        Op(
            method="GET",
            path="/usage",
            id="getOwnUsage",
            summary="What the caller's key used, and how its budgets stand",
            parameters=_period("the beginning of the month"),
            answer=json_answer(
                "By model.",
                ref("OwnUsage"),
                {
                    **_EMPTY,
                    "key": "team-a",
                    "expires_at": None,
                    "budgets": [],
                    "limits": {
                        "requests_per_minute": 60,
                        "tokens_per_minute": None,
                        "concurrent": None,
                    },
                    "model_limits": {},
                },
                _KEPT,
            ),
            errors=(*KEYED, 400),
        ),
    ),
)
EVERYBODY: Final = Family(
    tag=OWN.tag,
    description=OWN.description,
    prefixes=("/admin",),
    ops=(
        Op(
            method="GET",
            path="/usage",
            id="getUsage",
            summary="What everybody used, in groups",
            parameters=(
                query(
                    "by",
                    array(enum(*COLUMNS)),
                    "What to group by, with commas between.",
                    style="form",
                    explode=False,
                ),
                *_period("7d"),
                query("limit", integer(1, _MOST, default=1000), "How many groups at most."),
                *(query(name, string(), f"Only this {name}.") for name in FILTERS),
            ),
            answer=json_answer("Sums.", ref("Usage"), {**_EMPTY, "by": []}, _KEPT),
            errors=(*CLOSED, 400),
            key="admin",
        ),
    ),
)
