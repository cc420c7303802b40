"""What a family of operations is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from router.dialects.json_schema import (
    Schema,
    any_of,
    array,
    constant,
    enum,
    integer,
    ref,
    string,
    told,
)

__all__ = [
    "BINARY",
    "FORM",
    "INCLUDE",
    "JSON",
    "NDJSON",
    "PAGE",
    "SSE",
    "TEXT",
    "DescribedBody",
    "Family",
    "Key",
    "Op",
    "Parameter",
    "SuccessResponse",
    "header",
    "json_answer",
    "path",
    "query",
    "streamed",
]  # fmt: skip

JSON: Final = "application/json"
SSE: Final = "text/event-stream"
NDJSON: Final = "application/x-ndjson"
TEXT: Final = "text/plain"
FORM: Final = "multipart/form-data"
BINARY: Final = "application/octet-stream"

Parameter = dict[str, Any]

Key = Literal["client", "admin", "client or admin", "metrics", "none"]
"""Which key an operation asks for."""


def query(name: str, schema: Schema, description: str, **more: Any) -> Parameter:
    """A parameter of the query string."""
    return {"name": name, "in": "query", "description": description, "schema": schema, **more}


def header(name: str, schema: Schema, description: str, **more: Any) -> Parameter:
    """A header of the request."""
    return {"name": name, "in": "header", "description": description, "schema": schema, **more}


def path(name: str, description: str, example: str) -> Parameter:
    """A part of the path."""
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": string(),
        "example": example,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessResponse:
    """What an operation answers when all is well; ``headers`` are names in ``headers.HEADERS``."""

    description: str
    content: Mapping[str, Schema]
    example: Any = None
    headers: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class DescribedBody:
    """What a request brings, mostly JSON; in a ``FORM`` files are named in the example."""

    schema: Schema
    example: Any
    required: bool = True
    kind: str = JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation.

    ``errors`` are the statuses it may answer in its family's envelope, ``others`` answers of other
    statuses. ``created``: below ``/api/v1`` the status is 201. ``head``: HEAD is answered, too.
    """

    method: str
    path: str
    id: str
    summary: str
    description: str = ""
    answer: SuccessResponse
    errors: Sequence[int] = ()
    others: Mapping[int, SuccessResponse] = field(default_factory=dict)
    body: DescribedBody | None = None
    parameters: Sequence[Parameter] = ()
    key: Key = "client"
    created: bool = False
    head: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The operations of one API, and the schemas that are theirs.

    ``error`` is the schema of its errors, ``prefixes`` what its paths begin with, each of them.
    """

    tag: str
    description: str
    ops: Sequence[Op]
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    error: str = "Error"
    prefixes: Sequence[str] = ("",)


def json_answer(
    description: str, schema: Schema, example: Any = None, headers: Sequence[str] = ()
) -> SuccessResponse:
    """An answer in JSON."""
    return SuccessResponse(
        description=description, content={JSON: schema}, example=example, headers=headers
    )


def streamed(
    kind: str, events: str, description: str, *, done: str | None = None
) -> Mapping[str, Schema]:
    """The content of a stream: ``events`` is the schema of each of its events, or lines.

    The schema of server-sent events is that of one, as OpenAPI 3.1 has no other place for it;
    ``done`` is what may stand in one in place of JSON.
    """
    each = ref(events)
    about = {"description": description, "x-event-schema": each}
    if kind != SSE:
        return {kind: {"type": "string", **about}}
    data: Schema = {"contentMediaType": JSON, "contentSchema": each}
    if done is not None:
        data = any_of(constant(done), data)
    shape = told({"data": {"type": "string", **data}}, {"event": string()})
    return {kind: {**shape, **about}}


PAGE: Final = (
    query("limit", integer(1, 100, default=20), "How many at most."),
    query("order", enum("asc", "desc", default="desc"), "From the oldest, or from the newest."),
    query("after", string(), "Begin after this id: the `last_id` of the page before."),
)
INCLUDE: Final = query(
    "include",
    array(string()),
    "What to show that is hidden otherwise: `reasoning.encrypted_content`. Repeated, or with "
    "commas between; `include[]` is the same. Names that are not known do no harm.",
)
