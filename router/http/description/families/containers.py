"""Containers, in which the code of models runs, and their files."""

from __future__ import annotations

from typing import Any, Final

from router.dialects.json_schema import (
    array,
    asked,
    boolean,
    constant,
    enum,
    integer,
    page_of,
    ref,
    string,
    told,
)
from router.http.description.errors import KEYED, READING
from router.http.description.parts import (
    BINARY,
    FORM,
    PAGE,
    DescribedBody,
    Family,
    Op,
    SuccessResponse,
    json_answer,
    path,
    query,
)

__all__ = ["FAMILY"]

_ID: Final = path("id", "The id of a container.", "cntr_0")
_FILE_ID: Final = path("file", "The id of one of its files.", "cfile_0")
_MEMORY: Final = enum("1g", "4g", "16g", "64g")
_EXPIRY: Final = {"anchor": constant("last_active_at"), "minutes": integer(1, 20)}
_POLICY: Final = {"type": constant("disabled")}
_SHOWN: Final[dict[str, Any]] = {
    "id": "cntr_0",
    "object": "container",
    "created_at": 1767225600,
    "status": "running",
    "expires_after": {"anchor": "last_active_at", "minutes": 20},
    "last_active_at": 1767225600,
    "memory_limit": "1g",
    "name": "analysis",
    "network_policy": {"type": "disabled"},
}
_FILE: Final[dict[str, Any]] = {
    "id": "cfile_0",
    "object": "container.file",
    "created_at": 1767225600,
    "bytes": 5,
    "container_id": "cntr_0",
    "path": "/mnt/data/notes.txt",
    "source": "user",
}
_USING: Final = (*KEYED, 400, 404, 409, 501)


def _page(shown: dict[str, Any]) -> dict[str, Any]:
    ident = shown["id"]
    return {
        "object": "list",
        "data": [shown],
        "first_id": ident,
        "last_id": ident,
        "has_more": False,
    }


def _deleted(kind: str, ident: str) -> SuccessResponse:
    return json_answer(
        "It is gone.",
        told({"id": string(), "object": constant(kind), "deleted": boolean()}),
        {"id": ident, "object": kind, "deleted": True},
    )


_FILES: Final = (
    Op(
        method="POST",
        path="/containers/{id}/files",
        id="createContainerFile",
        summary="Put a file into a container",
        description="As a form with the file, or as JSON with the `file_id` of an uploaded file, "
        "of which a copy is made.",
        parameters=(_ID,),
        body=DescribedBody(
            asked({"file": string("The file, in a part with a filename.", format="binary")}),
            {"file": "@notes.txt"},
            kind=FORM,
        ),
        answer=json_answer("The file.", ref("ContainerFile"), _FILE),
        errors=(*READING, 403, 404, 409, 415, 501),
        created=True,
    ),
    Op(
        method="GET",
        path="/containers/{id}/files",
        id="listContainerFiles",
        summary="List a container's files",
        parameters=(_ID, *PAGE),
        answer=json_answer("A page of files.", ref("ContainerFiles"), _page(_FILE)),
        errors=_USING,
    ),
    Op(
        method="GET",
        path="/containers/{id}/files/{file}",
        id="getContainerFile",
        summary="Get a file's description",
        parameters=(_ID, _FILE_ID),
        answer=json_answer("The file.", ref("ContainerFile"), _FILE),
        errors=_USING,
    ),
    Op(
        method="GET",
        path="/containers/{id}/files/{file}/content",
        id="readContainerFile",
        summary="Get the content of a file",
        parameters=(_ID, _FILE_ID),
        answer=SuccessResponse(
            description="The bytes of the file.", content={BINARY: string(format="binary")}
        ),
        errors=_USING,
    ),
    Op(
        method="DELETE",
        path="/containers/{id}/files/{file}",
        id="deleteContainerFile",
        summary="Delete a file",
        parameters=(_ID, _FILE_ID),
        answer=_deleted("container.file.deleted", "cfile_0"),
        errors=_USING,
    ),
)

FAMILY: Final = Family(
    tag="Containers",
    description="Where `code_interpreter` runs code, if the router does that. Another key's are "
    "not there.",
    prefixes=("/v1", "/api/v1"),
    schemas={
        "CreateContainer": asked(
            {"name": string(maxLength=256)},
            {
                "memory_limit": _MEMORY,
                "expires_after": asked(_EXPIRY),
                "file_ids": {**array(string()), "maxItems": 50},
                "network_policy": asked(_POLICY),
            },
        ),
        "Container": told(
            {
                "id": string(),
                "object": constant("container"),
                "created_at": integer(0),
                "status": enum("running", "expired"),
                "expires_after": told(_EXPIRY),
                "last_active_at": integer(0),
                "memory_limit": _MEMORY,
                "name": string(),
                "network_policy": told(_POLICY),
            }
        ),
        "Containers": page_of(ref("Container")),
        "ContainerFile": told(
            {
                "id": string(),
                "object": constant("container.file"),
                "created_at": integer(0),
                "bytes": integer(0),
                "container_id": string(),
                "path": string(),
                "source": enum("user", "assistant"),
            }
        ),
        "ContainerFiles": page_of(ref("ContainerFile")),
    },
    ops=(
        Op(
            method="POST",
            path="/containers",
            id="createContainer",
            summary="Create a container",
            body=DescribedBody(ref("CreateContainer"), {"name": "analysis"}),
            answer=json_answer("The container.", ref("Container"), _SHOWN),
            errors=(*READING, 403, 429, 501),
            created=True,
        ),
        Op(
            method="GET",
            path="/containers",
            id="listContainers",
            summary="List containers",
            parameters=(*PAGE, query("name", string(), "Only those of this name.")),
            answer=json_answer("A page of containers.", ref("Containers"), _page(_SHOWN)),
            errors=(*KEYED, 400, 501),
        ),
        Op(
            method="GET",
            path="/containers/{id}",
            id="getContainer",
            summary="Get a container",
            parameters=(_ID,),
            answer=json_answer("The container.", ref("Container"), _SHOWN),
            errors=(*KEYED, 404, 501),
        ),
        Op(
            method="DELETE",
            path="/containers/{id}",
            id="deleteContainer",
            summary="End a container, with everything in it",
            parameters=(_ID,),
            answer=_deleted("container.deleted", "cntr_0"),
            errors=(*KEYED, 404, 409, 501),
        ),
        *_FILES,
    ),
)
