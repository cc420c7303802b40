"""Uploaded files."""

from __future__ import annotations

from typing import Final

from router.dialects.json_schema import (
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
    DescribedBody,
    Family,
    Op,
    SuccessResponse,
    json_answer,
    path,
    query,
)
from router.http.files import EXPIRY, MOST_LISTED, PURPOSES

__all__ = ["FAMILY"]

_ID: Final = path("id", "The id of a file.", "file-0")
_FILE: Final = {
    "id": "file-0",
    "object": "file",
    "bytes": 5,
    "created_at": 1767225600,
    "filename": "notes.txt",
    "purpose": "user_data",
    "status": "processed",
}
_UPLOAD: Final = asked(
    {
        "file": string("The file, in a part with a filename.", format="binary"),
        "purpose": enum(*PURPOSES, description="What it is for."),
    },
    {
        "expires_after[anchor]": constant("created_at"),
        "expires_after[seconds]": integer(
            *EXPIRY, description="After so long it is deleted; files for `batch` after 30 days."
        ),
    },
)

FAMILY: Final = Family(
    tag="Files",
    description="Files for requests (`input_file`) and tools. Another key's are not there. "
    "Without `files.path` in the configuration nothing can be uploaded.",
    prefixes=("/v1", "/api/v1"),
    schemas={
        "File": told(
            {
                "id": string(),
                "object": constant("file"),
                "bytes": integer(0),
                "created_at": integer(0),
                "filename": string(),
                "purpose": string(),
                "status": constant("processed"),
            },
            {"expires_at": integer(0)},
        ),
        "Files": page_of(ref("File")),
    },
    ops=(
        Op(
            method="POST",
            path="/files",
            id="createFile",
            summary="Upload a file",
            description="Limits are those of `files`: one file, and all files of a key together.",
            body=DescribedBody(_UPLOAD, {"purpose": "user_data", "file": "@notes.txt"}, kind=FORM),
            answer=json_answer("The file.", ref("File"), _FILE),
            errors=(*READING, 415, 501, 507),
        ),
        Op(
            method="GET",
            path="/files",
            id="listFiles",
            summary="List files",
            parameters=(
                query("limit", integer(1, MOST_LISTED, default=MOST_LISTED), "How many at most."),
                query(
                    "order", enum("asc", "desc", default="desc"), "From the oldest, or the newest."
                ),
                query("purpose", string(), "Only files for this purpose."),
            ),
            answer=json_answer(
                "A page of files.",
                ref("Files"),
                {
                    "object": "list",
                    "data": [_FILE],
                    "first_id": "file-0",
                    "last_id": "file-0",
                    "has_more": False,
                },
            ),
            errors=(*KEYED, 400, 501),
        ),
        Op(
            method="GET",
            path="/files/{id}",
            id="getFile",
            summary="Get a file's description",
            parameters=(_ID,),
            answer=json_answer("The file.", ref("File"), _FILE),
            errors=(*KEYED, 404, 501),
        ),
        Op(
            method="DELETE",
            path="/files/{id}",
            id="deleteFile",
            summary="Delete a file",
            parameters=(_ID,),
            answer=json_answer(
                "It is gone.",
                told({"id": string(), "object": constant("file"), "deleted": boolean()}),
                {"id": "file-0", "object": "file", "deleted": True},
            ),
            errors=(*KEYED, 404, 501),
        ),
        Op(
            method="GET",
            path="/files/{id}/content",
            id="readFile",
            summary="Get the content of a file",
            parameters=(_ID,),
            answer=SuccessResponse(
                description="The bytes that were uploaded.",
                content={BINARY: string(format="binary")},
            ),
            errors=(*KEYED, 404, 501),
        ),
    ),
)
