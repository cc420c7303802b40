"""Conversations and their items."""

from __future__ import annotations

from typing import Any, Final

from router.dialects.json_schema import (
    Schema,
    array,
    asked,
    boolean,
    constant,
    integer,
    mapping,
    page_of,
    ref,
    string,
    told,
)
from router.http.description.errors import KEYED, READING
from router.http.description.parts import (
    INCLUDE,
    PAGE,
    DescribedBody,
    Family,
    Op,
    json_answer,
    path,
)

__all__ = ["FAMILY"]

_ID: Final = path("id", "The id of a conversation.", "conv_0")
_ITEM: Final = path("item", "The id of an item.", "msg_0")
_MOST_ITEMS: Final = 20
_ORDER: Final[Schema] = {
    "required": ["type"],
    "properties": {"type": constant("compaction_trigger")},
}
_ITEMS: Final = array(
    {"allOf": [ref("InputItem"), {"not": _ORDER}]},
    "Items as in a request, but for `compaction_trigger`.",
    maxItems=_MOST_ITEMS,
)

_CONVERSATION: Final = {
    "id": "conv_0",
    "object": "conversation",
    "created_at": 1767225600,
    "metadata": {"topic": "trains"},
}
_SAID: Final = {"type": "message", "role": "user", "content": "Hello!"}
_STORED: Final = {
    "id": "msg_0",
    "type": "message",
    "status": "completed",
    "role": "user",
    "content": [{"type": "input_text", "text": "Hello!"}],
}
_PAGE: Final = {"object": "list", "first_id": "msg_0", "last_id": "msg_0", "has_more": False}


def _deleted(kind: str, ident: str) -> tuple[Schema, dict[str, Any]]:
    shape = told({"id": string(), "object": constant(kind), "deleted": boolean()})
    return shape, {"id": ident, "object": kind, "deleted": True}


FAMILY: Final = Family(
    tag="Conversations",
    description="Histories that responses are made in. Another key's are not there.",
    prefixes=("/v1", "/api/v1"),
    schemas={
        "Conversation": told(
            {
                "id": string(),
                "object": constant("conversation"),
                "created_at": integer(0),
                "metadata": mapping(string()),
            },
            {"items": array(ref("Item"))},
        ),
        "Conversations": page_of(ref("Conversation")),
    },
    ops=(
        Op(
            method="POST",
            path="/conversations",
            id="createConversation",
            summary="Create a conversation",
            description="The body may be empty. Below `/api/v1` the answer has the items, too.",
            body=DescribedBody(
                asked({}, {"metadata": ref("Metadata"), "items": _ITEMS}),
                {"metadata": {"topic": "trains"}, "items": [_SAID]},
                required=False,
            ),
            answer=json_answer("The conversation.", ref("Conversation"), _CONVERSATION),
            errors=(*READING, 404, 409),
            created=True,
        ),
        Op(
            method="GET",
            path="/conversations",
            id="listConversations",
            summary="List conversations",
            parameters=PAGE,
            answer=json_answer(
                "A page of conversations.",
                ref("Conversations"),
                {**_PAGE, "data": [_CONVERSATION], "first_id": "conv_0", "last_id": "conv_0"},
            ),
            errors=(*KEYED, 400),
        ),
        Op(
            method="GET",
            path="/conversations/{id}",
            id="getConversation",
            summary="Get a conversation",
            parameters=(_ID,),
            answer=json_answer("The conversation.", ref("Conversation"), _CONVERSATION),
            errors=(*KEYED, 404),
        ),
        Op(
            method="POST",
            path="/conversations/{id}",
            id="updateConversation",
            summary="Replace the metadata of a conversation",
            parameters=(_ID,),
            body=DescribedBody(
                asked({"metadata": ref("Metadata")}), {"metadata": {"topic": "ships"}}
            ),
            answer=json_answer("The conversation.", ref("Conversation"), _CONVERSATION),
            errors=(*READING, 404),
        ),
        Op(
            method="DELETE",
            path="/conversations/{id}",
            id="deleteConversation",
            summary="Delete a conversation",
            description="Responses that were made in it stay.",
            parameters=(_ID,),
            answer=json_answer("It is gone.", *_deleted("conversation.deleted", "conv_0")),
            errors=(*KEYED, 404),
        ),
        Op(
            method="POST",
            path="/conversations/{id}/items",
            id="addConversationItems",
            summary="Add items to a conversation",
            parameters=(_ID,),
            body=DescribedBody(asked({"items": {**_ITEMS, "minItems": 1}}), {"items": [_SAID]}),
            answer=json_answer(
                "The items, as they are stored; in `items` once more.",
                ref("Items"),
                {**_PAGE, "data": [_STORED], "items": [_STORED]},
            ),
            errors=(*READING, 404, 409),
        ),
        Op(
            method="GET",
            path="/conversations/{id}/items",
            id="listConversationItems",
            summary="List the items of a conversation",
            parameters=(_ID, *PAGE, INCLUDE),
            answer=json_answer("A page of items.", ref("Items"), {**_PAGE, "data": [_STORED]}),
            errors=(*KEYED, 400, 404),
        ),
        Op(
            method="GET",
            path="/conversations/{id}/items/{item}",
            id="getConversationItem",
            summary="Get an item of a conversation",
            parameters=(_ID, _ITEM, INCLUDE),
            answer=json_answer("The item.", ref("Item"), _STORED),
            errors=(*KEYED, 404),
        ),
        Op(
            method="DELETE",
            path="/conversations/{id}/items/{item}",
            id="deleteConversationItem",
            summary="Delete an item of a conversation",
            parameters=(_ID, _ITEM),
            answer=json_answer("It is gone.", *_deleted("conversation.item.deleted", "msg_0")),
            errors=(*KEYED, 404),
        ),
    ),
)
