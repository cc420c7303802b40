"""The endpoints, the configuration, and why a request goes where it goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.dialects.json_schema import (
    ANYTHING,
    NULL,
    Schema,
    any_of,
    array,
    asked,
    boolean,
    enum,
    integer,
    mapping,
    nullable,
    number,
    ref,
    string,
    told,
)
from router.http.description.errors import ASKING
from router.http.description.parts import DescribedBody, Family, Op, json_answer, path

__all__ = ["CLOSED", "FAMILY"]

CLOSED: Final = (401, 403, 500, 503)
"""What everything may answer that asks for the admin key."""

_NAME: Final = path("name", "The name of an endpoint.", "gpu-1")
_KEPT: Final = ("Cache-Control",)
_KNOWN: Final = nullable(number(description="Seconds; null where it is not known."))

_SCHEMAS: Final[Mapping[str, Schema]] = {
    "Breaker": told(
        {
            "state": enum("closed", "open", "half-open"),
            "half_open_in": nullable(number(0)),
            "failure_ratio": number(0, 1),
        }
    ),
    "ModelReport": told(
        {
            "model": string(),
            "grade": string(),
            "in_flight": integer(0),
            "limit": integer(0),
            "load": number(0),
            "breaker": ref("Breaker"),
            "cooling_for": nullable(number(0)),
            "rate_limited": boolean(),
            "loaded": nullable(boolean("Whether it is in memory.")),
            "loading_for": _KNOWN,
            "first_token": _KNOWN,
            "first_token_p95": _KNOWN,
            "held": _KNOWN,
            "lacks": array(string()),
            "context": nullable(integer(0)),
        }
    ),
    "Endpoint": told(
        {
            "name": string(),
            "url": string(),
            "dialect": enum("responses", "chat", "ollama", "messages"),
            "priority": integer(),
            "weight": number(),
            "state": enum("up", "down", "drained", "unknown"),
            "problem": nullable(string("What the last probe found wrong.")),
            "connection": ref("Breaker"),
            "in_flight": integer(0),
            "models": array(ref("ModelReport")),
            "unasked": array(told({"model": string(), "loaded": nullable(boolean())})),
        }
    ),
    "Queue": told({"waiting": integer(0), "size": integer(0)}),
    "Reload": told(
        {
            "at": number(description="Unix time."),
            "ok": boolean(),
            "said": array(string(), "What changed, or why it was refused."),
        }
    ),
    "Fleet": told(
        {
            "policy": string(),
            "queue": ref("Queue"),
            "retries_left": integer(0),
            "reload": nullable(ref("Reload")),
            "endpoints": array(ref("Endpoint")),
        }
    ),
    "Choice": told({"endpoint": string(), "model": string(), "why": string()}),
    "Plan": told(
        {
            "model": string(),
            "candidates": array(
                told({"endpoint": string(), "model": nullable(string())}),
                "Every endpoint, and how it compares.",
            ),
            "attempts": array(ref("Choice"), "Each is asked if those before it fail."),
            "waits": boolean("Whether it would stand in the queue."),
            "why": string(),
            "error": nullable(mapping(ANYTHING)),
        }
    ),
    "Explanation": told(
        {
            "operation": string(),
            "model": string(),
            "stream": boolean(),
            "policy": string(),
            "queue": ref("Queue"),
            "chosen": any_of(ref("Choice"), NULL),
            "request": nullable(
                told(
                    {
                        "endpoint": string(),
                        "path": string(),
                        "body": ANYTHING,
                        "answer_headers": mapping(string()),
                    }
                )
            ),
            "plans": array(ref("Plan")),
            "notes": array(string()),
        }
    ),
}  # fmt: skip

_BREAKER: Final = {"state": "closed", "half_open_in": None, "failure_ratio": 0}
_REPORT: Final[dict[str, Any]] = {
    "name": "gpu-1",
    "url": "http://gpu-1:8000/v1",
    "dialect": "chat",
    "priority": 1,
    "weight": 1,
    "state": "up",
    "problem": None,
    "connection": _BREAKER,
    "in_flight": 0,
    "models": [],
    "unasked": [{"model": "my-model", "loaded": None}],
}
_RELOAD: Final = {"at": 1767225600.0, "ok": True, "said": ["endpoints.gpu-1.weight: 1 → 2"]}
_CHOICE: Final = {"endpoint": "gpu-1", "model": "my-model", "why": "It has the least load."}
_QUEUE: Final = {"waiting": 0, "size": 256}
_EXPLAINED: Final[dict[str, Any]] = {
    "operation": "responses",
    "model": "my-model",
    "stream": False,
    "policy": "least-loaded",
    "queue": _QUEUE,
    "chosen": _CHOICE,
    "request": {
        "endpoint": "gpu-1", "path": "/chat/completions", "body": {}, "answer_headers": {}
    },
    "plans": [],
    "notes": [],
}  # fmt: skip


def _on_endpoint(verb: str, ident: str, summary: str, **more: Any) -> Op:
    return Op(
        method="POST",
        path=f"/endpoints/{{name}}/{verb}",
        id=ident,
        summary=summary,
        parameters=(_NAME,),
        answer=json_answer("How the endpoint is then.", ref("Endpoint"), _REPORT, _KEPT),
        key="admin",
        **{"errors": (*CLOSED, 404), **more},
    )


FAMILY: Final = Family(
    tag="Admin: endpoints",
    description="What the endpoints are doing, and a hand on them.",
    prefixes=("/admin",),
    schemas=_SCHEMAS,
    ops=(
        Op(
            method="GET",
            path="/endpoints",
            id="listEndpoints",
            summary="How the endpoints are",
            answer=json_answer(
                "The fleet.",
                ref("Fleet"),
                {
                    "policy": "least-loaded",
                    "queue": _QUEUE,
                    "retries_left": 10,
                    "reload": None,
                    "endpoints": [_REPORT],
                },
                _KEPT,
            ),
            errors=CLOSED,
            key="admin",
        ),
        _on_endpoint("drain", "drainEndpoint", "Send nothing new to an endpoint"),
        _on_endpoint("undrain", "undrainEndpoint", "Let traffic come back to an endpoint"),
        _on_endpoint(
            "load",
            "loadModel",
            "Bring a model into an endpoint's memory, or take it out",
            description="`keep_alive: 0` takes it out, -1 keeps it for ever.",
            body=DescribedBody(
                asked(
                    {"model": string(minLength=1)},
                    {"keep_alive": any_of(integer(-(10**9), 10**9), string())},
                    closed=True,
                ),
                {"model": "my-model", "keep_alive": "30m"},
            ),
            errors=(*CLOSED, 400, 404, 413, 429, 501, 502, 504),
        ),
        Op(
            method="POST",
            path="/reload",
            id="reloadConfiguration",
            summary="Take over the configuration's file as it is now",
            answer=json_answer("What changed.", ref("Reload"), _RELOAD, _KEPT),
            errors=(*CLOSED, 400, 501),
            key="admin",
        ),
        Op(
            method="POST",
            path="/explain",
            id="explainRequest",
            summary="Why a request goes where it goes",
            description="The body is that of a request: of `/v1/responses`, or of another API "
            "below `/v1`, which is told by the fields that only one has. Nothing is sent.",
            body=DescribedBody(
                any_of(
                    ref("CreateResponse"),
                    ref("CreateChatCompletion"),
                    ref("CreateCompletion"),
                    ref("CreateEmbeddings"),
                    ref("Rerank"),
                ),
                {"model": "my-model", "input": "What is a pointsman?"},
            ),
            answer=json_answer("What would become of it.", ref("Explanation"), _EXPLAINED, _KEPT),
            errors=tuple(sorted({*ASKING, 403} - {429, 502, 504})),
            key="admin",
        ),
    ),
)
