"""For the people who run it: is it alive, is it ready, what does it count; and this description."""

from __future__ import annotations

from typing import Final

from router.dialects.json_schema import boolean, constant, mapping, ref, string, told
from router.http.description.errors import KEYED
from router.http.description.parts import (
    JSON,
    TEXT,
    Family,
    Key,
    Op,
    SuccessResponse,
    header,
    json_answer,
)

__all__ = ["OPEN", "metrics"]

_HTML: Final = "text/html"
_READY: Final = {"status": "ready", "endpoints": {"gpu-1": True}, "state": True, "limits": True}
_NOT_READY: Final = {**_READY, "status": "no endpoint can serve", "endpoints": {"gpu-1": False}}
_IF_NONE_MATCH: Final = header("If-None-Match", string(), "The `ETag` of what the client has.")
_UNCHANGED: Final = {
    304: SuccessResponse(description="What the client has is still so.", content={})
}
_KEPT: Final = ("ETag", "Cache-Control")


def _described(path: str, ident: str, summary: str, answer: SuccessResponse) -> Op:
    return Op(
        method="GET",
        path=path,
        id=ident,
        summary=summary,
        parameters=(_IF_NONE_MATCH,),
        answer=answer,
        others=_UNCHANGED,
        key="none",
        head=True,
    )


OPEN: Final = Family(
    tag="Service",
    description="For the people who run it.",
    error="Error",
    schemas={
        "Readiness": told(
            {
                "status": string("`ready`, `stopping`, `draining`, or `no endpoint can serve`."),
                "endpoints": mapping(boolean(), "Whether each can serve."),
                "state": boolean("Whether the database answers, which is no reason for a 503."),
                "limits": boolean(
                    "Whether the store of limits and budgets (`accounts.limits.store`) answers, "
                    "which is no reason for a 503."
                ),
            }
        )
    },
    ops=(
        Op(
            method="GET",
            path="/",
            id="getRoot",
            summary="Say that somebody is there",
            description="What the `ollama` command asks before all else.",
            answer=SuccessResponse(
                description="Somebody is.",
                content={TEXT: string()},
                example="Pointsman is running",
            ),
            key="none",
            head=True,
        ),
        Op(
            method="GET",
            path="/health",
            id="getHealth",
            summary="Whether the process is alive",
            answer=json_answer("It is.", told({"status": constant("ok")}), {"status": "ok"}),
            key="none",
            head=True,
        ),
        Op(
            method="GET",
            path="/ready",
            id="getReadiness",
            summary="Whether some endpoint can serve",
            answer=json_answer("One can.", ref("Readiness"), _READY),
            others={503: json_answer("None can, or it is stopping.", ref("Readiness"), _NOT_READY)},
            key="none",
            head=True,
        ),
        _described(
            "/openapi.json",
            "getDescription",
            "This description",
            SuccessResponse(
                description="An OpenAPI document.",
                content={JSON: told({"openapi": string(), "paths": mapping({})})},
                headers=_KEPT,
            ),
        ),
        _described(
            "/docs",
            "getDocs",
            "This description, to read",
            SuccessResponse(description="A page.", content={_HTML: string()}, headers=_KEPT),
        ),
    ),
)  # fmt: skip


def metrics(*, opened_by: Key) -> Family:
    """``/metrics``, which may ask for a key (``metrics.require_key``, ``metrics.key``)."""
    return Family(
        tag=OPEN.tag,
        description=OPEN.description,
        ops=(
            Op(
                method="GET",
                path="/metrics",
                id="getMetrics",
                summary="Metrics for Prometheus",
                answer=SuccessResponse(
                    description="In the form that `Accept` asks for.",
                    content={TEXT: string(), "application/openmetrics-text": string()},
                ),
                errors=() if opened_by == "none" else KEYED,
                key=opened_by,
                head=True,
            ),
        ),
    )
