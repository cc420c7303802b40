"""Stored prompts and their versions."""

from __future__ import annotations

from typing import Any, Final

from router.dialects.json_schema import (
    NULL,
    asked,
    boolean,
    constant,
    integer,
    nullable,
    page_of,
    ref,
    string,
    told,
)
from router.dialects.responses.fields import PER_REQUEST, PRIVATE_FIELDS, SCHEMAS
from router.http.description.errors import KEYED, READING
from router.http.description.parts import PAGE, DescribedBody, Family, Op, json_answer, path, query

__all__ = ["FAMILY"]

_ID: Final = path("id", "The id of a prompt, or its name.", "greeting")
_NAME: Final = string(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", maxLength=64)
_LABELS: Final = {"display_name": string(maxLength=256), "description": string(maxLength=4096)}
_SETTABLE: Final = {
    name: schema
    for name, schema in SCHEMAS.items()
    if name not in PER_REQUEST and name not in PRIVATE_FIELDS
}
_FIELDS: Final = asked({}, {**_LABELS, **_SETTABLE})
_FIELDS["properties"] |= {"name": _NAME, **dict.fromkeys((*sorted(PER_REQUEST), "messages"), NULL)}

_SENT: Final = {
    "name": "greeting",
    "model": "my-model",
    "instructions": "Greet {{who}} in one sentence.",
}
_SHOWN: Final[dict[str, Any]] = {
    "id": "pmpt_0",
    "object": "prompt",
    "display_name": None,
    "description": None,
    "version": "1",
    "created_at": 1767225600,
    "updated_at": 1767225600,
    **_SENT,
}
_PAGE: Final = {
    "object": "list",
    "data": [_SHOWN],
    "first_id": "pmpt_0",
    "last_id": "pmpt_0",
    "has_more": False,
}


def _update(method: str, ident: str) -> Op:
    return Op(
        method=method,
        path="/prompts/{id}",
        id=ident,
        summary="Change a prompt",
        description="Makes a new version with these fields changed; null removes one.",
        parameters=(_ID,),
        body=DescribedBody(ref("ChangePrompt"), {"instructions": "Greet {{who}} warmly."}),
        answer=json_answer("The new version.", ref("Prompt"), {**_SHOWN, "version": "2"}),
        errors=(*READING, 404, 409),
    )


FAMILY: Final = Family(
    tag="Prompts",
    description="Defaults for responses, with `{{variables}}` in their texts. Another key's are "
    "not there.",
    prefixes=("/v1", "/api/v1"),
    schemas={
        "CreatePrompt": {
            **_FIELDS,
            "required": ["name"],
            "description": "Fields that are not known are kept: they become fields of requests.",
        },
        "ChangePrompt": _FIELDS,
        "Prompt": told(
            {
                "id": string(),
                "object": constant("prompt"),
                "name": string(),
                "display_name": nullable(string()),
                "description": nullable(string()),
                "version": string(),
                "created_at": integer(0),
                "updated_at": integer(0),
            }
        ),
        "Prompts": page_of(ref("Prompt")),
    },
    ops=(
        Op(
            method="POST",
            path="/prompts",
            id="createPrompt",
            summary="Create a prompt",
            body=DescribedBody(ref("CreatePrompt"), _SENT),
            answer=json_answer("The prompt.", ref("Prompt"), _SHOWN),
            errors=(*READING, 409),
            created=True,
        ),
        Op(
            method="GET",
            path="/prompts",
            id="listPrompts",
            summary="List prompts",
            description="Each in its latest version.",
            parameters=PAGE,
            answer=json_answer("A page of prompts.", ref("Prompts"), _PAGE),
            errors=(*KEYED, 400),
        ),
        Op(
            method="GET",
            path="/prompts/{id}",
            id="getPrompt",
            summary="Get a prompt",
            parameters=(
                _ID,
                query(
                    "version",
                    string(pattern="^[1-9][0-9]{0,8}$"),
                    "The latest where it is left out.",
                ),
            ),
            answer=json_answer("The prompt.", ref("Prompt"), _SHOWN),
            errors=(*KEYED, 400, 404),
        ),
        _update("PUT", "replacePrompt"),
        _update("POST", "updatePrompt"),
        Op(
            method="DELETE",
            path="/prompts/{id}",
            id="deletePrompt",
            summary="Delete a prompt with all its versions",
            parameters=(_ID,),
            answer=json_answer(
                "It is gone.",
                told(
                    {
                        "id": string(),
                        "object": constant("prompt.deleted"),
                        "deleted": boolean(),
                    }
                ),
                {"id": "pmpt_0", "object": "prompt.deleted", "deleted": True},
            ),
            errors=(*KEYED, 404),
        ),
        Op(
            method="GET",
            path="/prompts/{id}/versions",
            id="listPromptVersions",
            summary="List the versions of a prompt",
            parameters=(_ID, *PAGE),
            answer=json_answer(
                "A page of versions; `after` is the number of one.",
                ref("Prompts"),
                {**_PAGE, "first_id": "1", "last_id": "1"},
            ),
            errors=(*KEYED, 400, 404),
        ),
    ),
)
