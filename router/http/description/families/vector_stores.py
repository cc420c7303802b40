"""Vector stores, their files and batches."""

from __future__ import annotations

from typing import Any, Final

from router.dialects.json_schema import (
    Schema,
    any_of,
    array,
    asked,
    boolean,
    constant,
    enum,
    integer,
    mapping,
    metadata,
    nullable,
    number,
    page_of,
    ref,
    string,
    told,
)
from router.http.description.errors import KEYED, READING
from router.http.description.parts import PAGE, DescribedBody, Family, Op, json_answer, path, query
from router.vector_stores.requests import MAX_RESULTS

__all__ = ["FAMILY"]

_ID: Final = path("id", "The id of a vector store.", "vs_0")
_FILE_ID: Final = path("file", "The id of a file.", "file-0")
_BATCH_ID: Final = path("batch", "The id of a batch.", "vsfb_0")
_BEFORE: Final = query("before", string(), "End before this id, in the place of `after`.")
_STATUS: Final = query(
    "filter", enum("in_progress", "completed", "failed", "cancelled"), "Files with this status."
)
_STORE: Final = "/vector_stores/{id}"
_BATCH: Final = _STORE + "/file_batches/{batch}"
_FILE: Final = _STORE + "/files/{file}"

_COUNT_NAMES: Final = ("in_progress", "completed", "failed", "cancelled", "total")
_COUNTS: Final = told(dict.fromkeys(_COUNT_NAMES, integer(0)))
_ATTRIBUTES: Final = mapping(
    any_of(string(maxLength=512), number(), boolean()),
    "Up to 16, for filters.",
    maxProperties=16,
    propertyNames={"maxLength": 64},
)
_EXPIRY: Final = asked({"anchor": constant("last_active_at"), "days": integer(1, 365)}, {})
_CHUNKING: Final = any_of(
    asked({"type": constant("auto")}, {}),
    asked(
        {
            "type": constant("static"),
            "static": asked(
                {
                    "max_chunk_size_tokens": integer(100, 4096),
                    "chunk_overlap_tokens": integer(0, description="Half of the size at most."),
                },
                {},
            ),
        },
        {},
    ),
    description="How the text is cut: by default 800 tokens, of which 400 are in the next piece.",
)
_ADDED: Final = asked(
    {"file_id": string()}, {"attributes": _ATTRIBUTES, "chunking_strategy": _CHUNKING}
)
_FILTER: Final = asked(
    {"type": enum("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "and", "or")},
    {
        "key": string("The name of an attribute, for a comparison."),
        "value": {"description": "What it is compared to; a list for `in` and `nin`."},
        "filters": array(ref("AttributeFilter"), "What `and` and `or` combine."),
    },
)
_EMPTY: Final = dict.fromkeys(_COUNT_NAMES, 0)
_SHOWN_STORE: Final[dict[str, Any]] = {
    "id": "vs_0",
    "object": "vector_store",
    "created_at": 1767225600,
    "name": "Manuals",
    "description": None,
    "usage_bytes": 0,
    "file_counts": _EMPTY,
    "status": "completed",
    "expires_after": None,
    "expires_at": None,
    "last_active_at": 1767225600,
    "metadata": {},
}
_SHOWN_FILE: Final[dict[str, Any]] = {
    "id": "file-0",
    "object": "vector_store.file",
    "usage_bytes": 0,
    "created_at": 1767225600,
    "vector_store_id": "vs_0",
    "status": "in_progress",
    "last_error": None,
    "chunking_strategy": {
        "type": "static",
        "static": {"max_chunk_size_tokens": 800, "chunk_overlap_tokens": 400},
    },
    "attributes": {"year": 2024},
}
_SHOWN_BATCH: Final[dict[str, Any]] = {
    "id": "vsfb_0",
    "object": "vector_store.files_batch",
    "created_at": 1767225600,
    "vector_store_id": "vs_0",
    "status": "in_progress",
    "file_counts": {**_EMPTY, "in_progress": 1, "total": 1},
}
_FOUND: Final[dict[str, Any]] = {
    "object": "vector_store.search_results.page",
    "search_query": ["When is the lamp green?"],
    "data": [
        {
            "file_id": "file-0",
            "filename": "pump.md",
            "score": 0.71,
            "attributes": {"year": 2024},
            "content": [{"type": "text", "text": "The lamp is green when …"}],
        }
    ],
    "has_more": False,
    "next_page": None,
}
_CONTENT: Final[dict[str, Any]] = {
    "object": "vector_store.file_content.page",
    "data": [{"type": "text", "text": "The lamp is green when …"}],
    "has_more": False,
    "next_page": None,
}
_TEXTS: Final = array(told({"type": constant("text"), "text": string()}))
_OFF: Final = 501


def _deleted(kind: str) -> Schema:
    return told({"id": string(), "object": constant(kind), "deleted": boolean()})


def _page(item: dict[str, Any]) -> dict[str, Any]:
    ident = item["id"]
    return {
        "object": "list", "data": [item], "first_id": ident, "last_id": ident, "has_more": False
    }  # fmt: skip


_SCHEMAS: Final[dict[str, Schema]] = {
    "AttributeFilter": _FILTER,
    "CreateVectorStore": asked(
        {},
        {
            "name": string(maxLength=256),
            "description": string(maxLength=4096),
            "file_ids": array(string(), maxItems=500),
            "chunking_strategy": _CHUNKING,
            "expires_after": _EXPIRY,
            "metadata": metadata(),
        },
    ),
    "ChangeVectorStore": asked(
        {},
        {
            "name": nullable(string(maxLength=256)),
            "expires_after": nullable(_EXPIRY),
            "metadata": nullable(metadata()),
        },
    ),
    "VectorStore": told(
        {
            "id": string(),
            "object": constant("vector_store"),
            "created_at": integer(0),
            "name": string(),
            "description": nullable(string()),
            "usage_bytes": integer(0),
            "file_counts": _COUNTS,
            "status": enum("in_progress", "completed", "expired"),
            "expires_after": nullable(_EXPIRY),
            "expires_at": nullable(integer(0)),
            "last_active_at": integer(0),
            "metadata": metadata(),
        }
    ),
    "VectorStores": page_of(ref("VectorStore")),
    "AddVectorStoreFile": _ADDED,
    "VectorStoreFile": told(
        {
            "id": string(),
            "object": constant("vector_store.file"),
            "usage_bytes": integer(0),
            "created_at": integer(0),
            "vector_store_id": string(),
            "status": enum("in_progress", "completed", "failed", "cancelled"),
            "last_error": nullable(
                told(
                    {
                        "code": enum("server_error", "unsupported_file", "invalid_file"),
                        "message": string(),
                    }
                )
            ),
            "chunking_strategy": {"type": "object"},
            "attributes": _ATTRIBUTES,
        }
    ),
    "VectorStoreFiles": page_of(ref("VectorStoreFile")),
    "AddVectorStoreBatch": asked(
        {},
        {
            "file_ids": array(string(), minItems=1, maxItems=2000),
            "files": array(_ADDED, "In the place of `file_ids`.", maxItems=2000),
            "attributes": _ATTRIBUTES,
            "chunking_strategy": _CHUNKING,
        },
    ),
    "VectorStoreBatch": told(
        {
            "id": string(),
            "object": constant("vector_store.files_batch"),
            "created_at": integer(0),
            "vector_store_id": string(),
            "status": enum("in_progress", "completed", "cancelled", "failed"),
            "file_counts": _COUNTS,
        }
    ),
    "VectorStoreQuery": asked(
        {"query": any_of(string(minLength=1), array(string(minLength=1), minItems=1, maxItems=5))},
        {
            "max_num_results": integer(1, MAX_RESULTS),
            "filters": ref("AttributeFilter"),
            "ranking_options": asked(
                {},
                {
                    "ranker": enum("none", "auto", "default-2024-11-15"),
                    "score_threshold": number(0, 1),
                    "hybrid_search": asked(
                        {"embedding_weight": number(0), "text_weight": number(0)}, {}
                    ),
                },
            ),
            "rewrite_query": boolean("Accepted; queries are searched for as they are."),
        },
    ),
    "VectorStoreResults": told(
        {
            "object": constant("vector_store.search_results.page"),
            "search_query": array(string()),
            "data": array(
                told(
                    {
                        "file_id": string(),
                        "filename": string(),
                        "score": number(0, 1),
                        "attributes": _ATTRIBUTES,
                        "content": _TEXTS,
                    }
                )
            ),
            "has_more": boolean(),
            "next_page": nullable(string()),
        }
    ),
    "VectorStoreText": told(
        {
            "object": constant("vector_store.file_content.page"),
            "data": _TEXTS,
            "has_more": boolean(),
            "next_page": nullable(string()),
        }
    ),
}

_STORE_ANSWER: Final = json_answer("The store.", ref("VectorStore"), _SHOWN_STORE)
_FILE_ANSWER: Final = json_answer("The file.", ref("VectorStoreFile"), _SHOWN_FILE)
_BATCH_ANSWER: Final = json_answer("The batch.", ref("VectorStoreBatch"), _SHOWN_BATCH)
_FILES_ANSWER: Final = json_answer("A page of files.", ref("VectorStoreFiles"), _page(_SHOWN_FILE))
_BY_ID: Final = (*KEYED, 404, _OFF)
_PAGED: Final = (*KEYED, 400, 404, _OFF)
_SENT: Final = (*READING, 404, _OFF)


def _op(method: str, place: str, ident: str, summary: str, answer: Any, **more: Any) -> Op:
    ids = [one for one in (_ID, _FILE_ID, _BATCH_ID) if f"{{{one['name']}}}" in place]
    more["parameters"] = (*ids, *more.get("parameters", ()))
    more.setdefault("errors", _BY_ID)
    return Op(method=method, path=place, id=ident, summary=summary, answer=answer, **more)


FAMILY: Final = Family(
    tag="Vector stores",
    description="Files whose text is searched by meaning and by words. Another key's are not "
    "there. Without `vector_stores` in the configuration they are off.",
    prefixes=("/v1", "/api/v1"),
    schemas=_SCHEMAS,
    ops=(
        _op(
            "POST", "/vector_stores", "createVectorStore", "Create a vector store", _STORE_ANSWER,
            body=DescribedBody(ref("CreateVectorStore"), {"name": "Manuals"}, required=False),
            errors=_SENT,
        ),
        _op(
            "GET", "/vector_stores", "listVectorStores", "List vector stores",
            json_answer("A page of stores.", ref("VectorStores"), _page(_SHOWN_STORE)),
            parameters=(*PAGE, _BEFORE), errors=(*KEYED, 400, _OFF),
        ),
        _op("GET", _STORE, "getVectorStore", "Get a vector store", _STORE_ANSWER),
        _op(
            "POST", _STORE, "updateVectorStore", "Change a vector store", _STORE_ANSWER,
            body=DescribedBody(ref("ChangeVectorStore"), {"name": "Old manuals"}), errors=_SENT,
        ),
        _op(
            "DELETE", _STORE, "deleteVectorStore", "Delete a vector store",
            json_answer(
                "It is gone; its files stay.", _deleted("vector_store.deleted"),
                {"id": "vs_0", "object": "vector_store.deleted", "deleted": True},
            ),
        ),
        _op(
            "POST", f"{_STORE}/search", "searchVectorStore", "Search in a vector store",
            json_answer("The pieces that fit best.", ref("VectorStoreResults"), _FOUND),
            body=DescribedBody(ref("VectorStoreQuery"), {"query": "When is the lamp green?"}),
            errors=_SENT,
        ),
        _op(
            "POST", f"{_STORE}/files", "addVectorStoreFile", "Add a file", _FILE_ANSWER,
            description="It is ingested in the background.",
            body=DescribedBody(
                ref("AddVectorStoreFile"), {"file_id": "file-0", "attributes": {"year": 2024}}
            ),
            errors=_SENT,
        ),
        _op(
            "GET", f"{_STORE}/files", "listVectorStoreFiles", "List a store's files",
            _FILES_ANSWER, parameters=(*PAGE, _BEFORE, _STATUS), errors=_PAGED,
        ),
        _op("GET", _FILE, "getVectorStoreFile", "Get a file of a store", _FILE_ANSWER),
        _op(
            "POST", _FILE, "updateVectorStoreFile", "Give a file other attributes", _FILE_ANSWER,
            body=DescribedBody(
                asked({"attributes": nullable(_ATTRIBUTES)}, {}), {"attributes": {"year": 2024}}
            ),
            errors=_SENT,
        ),
        _op(
            "DELETE", _FILE, "removeVectorStoreFile", "Remove a file from a store",
            json_answer(
                "It is not in the store any more.", _deleted("vector_store.file.deleted"),
                {"id": "file-0", "object": "vector_store.file.deleted", "deleted": True},
            ),
        ),
        _op(
            "GET", f"{_FILE}/content", "getVectorStoreFileContent", "Get the text of a file",
            json_answer("Its pieces.", ref("VectorStoreText"), _CONTENT),
        ),
        _op(
            "POST", f"{_STORE}/file_batches", "addVectorStoreBatch", "Add files together",
            _BATCH_ANSWER,
            body=DescribedBody(ref("AddVectorStoreBatch"), {"file_ids": ["file-0"]}),
            errors=_SENT,
        ),
        _op("GET", _BATCH, "getVectorStoreBatch", "Get a batch", _BATCH_ANSWER),
        _op(
            "POST", f"{_BATCH}/cancel", "cancelVectorStoreBatch", "Cancel a batch", _BATCH_ANSWER
        ),
        _op(
            "GET", f"{_BATCH}/files", "listVectorStoreBatchFiles", "List a batch's files",
            _FILES_ANSWER, parameters=(*PAGE, _BEFORE, _STATUS), errors=_PAGED,
        ),
    ),
)  # fmt: skip
