"""Ollama's API for managing models, behind the admin key."""

from __future__ import annotations

from typing import Any, Final

from router.dialects.json_schema import Schema, asked, boolean, mapping, ref, string, told
from router.http.description.families.ollama import MODEL, NAMED
from router.http.description.parts import (
    JSON,
    NDJSON,
    DescribedBody,
    Family,
    Op,
    SuccessResponse,
    header,
    json_answer,
    path,
    streamed,
)

__all__ = ["FAMILY"]

_AIM: Final = header(
    "X-Pointsman-Endpoint", string(), "The only endpoint that is meant; else all that speak it."
)
_CLOSED: Final = (401, 403, 500, 501, 503)
_ERRORS: Final = (400, 404, 413, 429, 502, 504, *_CLOSED)
_DIGEST: Final = path("digest", "The digest of a file.", "sha256:0")
_DONE: Final = {"status": "success", "endpoints": {"gpu-1": "success"}}
_KEPT: Final = ("Cache-Control",)


def _follow(name: str, summary: str, **fields: Schema) -> Op:
    return Op(
        method="POST",
        path=f"/{name}",
        id=f"ollama{name.title()}",
        summary=summary,
        parameters=(_AIM,),
        body=DescribedBody(
            asked({}, {**MODEL, "stream": boolean(default=True), **fields}, **NAMED),
            {"model": "my-model", "stream": False},
        ),
        answer=SuccessResponse(
            description="How it ended at each endpoint, or lines of its progress.",
            content={
                JSON: ref("OllamaManaged"),
                **streamed(NDJSON, "OllamaProgress", "Lines, unless `stream` is false."),
            },
            example=_DONE,
            headers=_KEPT,
        ),
        errors=_ERRORS,
        key="admin",
    )


def _change(method: str, name: str, summary: str, schema: Schema, example: Any) -> Op:
    return Op(
        method=method,
        path=f"/{name}",
        id=f"ollama{name.title()}",
        summary=summary,
        parameters=(_AIM,),
        body=DescribedBody(schema, example),
        answer=json_answer(
            "How it ended at each endpoint.", ref("OllamaManaged"), _DONE, _KEPT
        ),
        errors=_ERRORS,
        key="admin",
    )  # fmt: skip


def _blobs(method: str, ident: str) -> Op:
    return Op(
        method=method,
        path="/blobs/{digest}",
        id=ident,
        summary="Files of a model, which are not passed on",
        parameters=(_DIGEST,),
        answer=SuccessResponse(description="Never: 501 instead.", content={}),
        errors=_CLOSED,
        key="admin",
    )


_NAME: Final = string(minLength=1)

FAMILY: Final = Family(
    tag="Ollama: managing",
    description="Changes what Ollama endpoints have.",
    prefixes=("/api",),
    error="OllamaError",
    schemas={
        "OllamaManaged": told({"status": string()}, {"endpoints": mapping(string())}),
        "OllamaProgress": told(
            {},
            {"status": string(), "endpoint": string(), "error": string()},
            description="At last `success`, or an error.",
        ),
    },
    ops=(
        _follow("pull", "Fetch a model"),
        _follow("push", "Upload a model"),
        _follow("create", "Make a model of another one"),
        _change(
            "POST",
            "copy",
            "Copy a model",
            asked({"source": _NAME, "destination": _NAME}),
            {"source": "my-model", "destination": "my-copy"},
        ),
        _change(
            "DELETE", "delete", "Delete a model", asked({}, MODEL, **NAMED), {"model": "my-copy"}
        ),
        _blobs("HEAD", "ollamaFindBlob"),
        _blobs("POST", "ollamaAddBlob"),
    ),
)
