"""Embeddings, legacy completions and reranking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.dialects.embeddings.schema import MOST_ANSWERS, MOST_DOCUMENTS, MOST_INPUTS, MOST_TOKEN
from router.dialects.json_schema import (
    ANYTHING,
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
from router.http.description.headers import CACHE_CONTROL, CACHED, SERVED
from router.http.description.parts import (
    JSON,
    SSE,
    DescribedBody,
    Family,
    Op,
    SuccessResponse,
    json_answer,
    streamed,
)

__all__ = ["ELSEWHERE", "FAMILY"]

_MODEL: Final = string(minLength=1)
_TOKENS: Final = array(integer(0, MOST_TOKEN), minItems=1)


def _texts(least: int) -> Schema:
    """A text or tokens, alone or in a batch; a text has ``least`` characters."""
    text = string(minLength=least)
    bounds: Schema = {"minItems": 1, "maxItems": MOST_INPUTS}
    return any_of(text, array(text, **bounds), _TOKENS, array(_TOKENS, **bounds))


_WITH_TEXT: Final = asked(
    {},
    anyOf=[{"required": [n], "properties": {n: string()}} for n in ("text", "image")],
    description="With a `text`, or an `image` for models that take them.",
)
_SCHEMAS: Final[Mapping[str, Schema]] = {
    "CreateEmbeddings": asked(
        {"model": _MODEL, "input": _texts(1)},
        {
            "encoding_format": enum("float", "base64", default="float"),
            "dimensions": integer(1),
            "user": string(),
        },
    ),
    "Embeddings": told(
        {
            "object": string(),
            "data": array(
                told(
                    {
                        "index": integer(0),
                        "embedding": any_of(
                            array(number()), string("With `encoding_format: base64`.")
                        ),
                    }
                )
            ),
            "model": string(),
        },
        {"usage": mapping(ANYTHING)},
    ),
    "CreateCompletion": asked(
        {"model": _MODEL, "prompt": _texts(0)},
        {
            "stream": boolean(),
            "stream_options": mapping(ANYTHING),
            "n": integer(1, MOST_ANSWERS),
            "best_of": integer(1, MOST_ANSWERS),
            "max_tokens": integer(0),
            "echo": boolean(),
            "suffix": string(),
            "user": string(),
        },
        description="What any other field means is for the endpoint to judge.",
    ),
    "Completion": told(
        {
            "id": string(),
            "object": string(),
            "choices": array(
                told(
                    {"text": string(), "index": integer(0)}, {"finish_reason": nullable(string())}
                )
            ),
        },
        {"created": integer(0), "model": string(), "usage": nullable(ref("ChatUsage"))},
    ),
    "CompletionChunk": any_of(
        told({"choices": array(mapping(ANYTHING))}),
        ref("Error"),
        description="At last comes `[DONE]`, or an error.",
    ),
    "Rerank": asked(
        {
            "model": _MODEL,
            "query": any_of(string(minLength=1), _WITH_TEXT),
            "documents": array(
                any_of(string(), _WITH_TEXT), minItems=1, maxItems=MOST_DOCUMENTS
            ),
        },
        {"top_n": integer(1), "return_documents": boolean()},
    ),
    "Reranked": told(
        {"results": array(told({"index": integer(0), "relevance_score": number()}))}
    ),
}  # fmt: skip

_HEADERS: Final = (*SERVED, *CACHED)
_QUERY: Final[dict[str, Any]] = {
    "model": "my-model",
    "query": "Where are trains put together?",
    "documents": ["In a pointsman.", "In a harbour."],
}


def _rerank(path: str, ident: str) -> Op:
    return Op(
        method="POST",
        path=path,
        id=ident,
        summary="Rank documents",
        body=DescribedBody(ref("Rerank"), _QUERY),
        answer=json_answer(
            "The documents by their relevance.",
            ref("Reranked"),
            {"results": [{"index": 0, "relevance_score": 0.97}]},
            _HEADERS,
        ),
        errors=ASKING,
    )


FAMILY: Final = Family(
    tag="Embeddings, completions, rerank",
    description="What models do beside conversations.",
    prefixes=("/v1", "/api/v1"),
    schemas=_SCHEMAS,
    ops=(
        Op(
            method="POST",
            path="/embeddings",
            id="createEmbeddings",
            summary="Create embeddings",
            parameters=(CACHE_CONTROL,),
            body=DescribedBody(
                ref("CreateEmbeddings"), {"model": "my-model", "input": "A pointsman"}
            ),
            answer=json_answer(
                "A vector for each input.",
                ref("Embeddings"),
                {
                    "object": "list",
                    "data": [{"object": "embedding", "index": 0, "embedding": [0.6, 0.8]}],
                    "model": "my-model",
                    "usage": {"prompt_tokens": 3, "total_tokens": 3},
                },
                _HEADERS,
            ),
            errors=ASKING,
        ),
        Op(
            method="POST",
            path="/completions",
            id="createCompletion",
            summary="Complete a text",
            parameters=(CACHE_CONTROL,),
            body=DescribedBody(
                ref("CreateCompletion"), {"model": "my-model", "prompt": "A pointsman is"}
            ),
            answer=SuccessResponse(
                description="The completion, or its chunks.",
                content={
                    JSON: ref("Completion"),
                    **streamed(
                        SSE, "CompletionChunk", "With `stream: true`: its chunks.", done="[DONE]"
                    ),
                },
                example={
                    "id": "cmpl-0",
                    "object": "text_completion",
                    "created": 1767225600,
                    "model": "my-model",
                    "choices": [{"text": " a yard", "index": 0, "finish_reason": "stop"}],
                },
                headers=_HEADERS,
            ),
            errors=ASKING,
        ),
        _rerank("/rerank", "rerank"),
    ),
)

ELSEWHERE: Final = Family(
    tag=FAMILY.tag,
    description=FAMILY.description,
    ops=(_rerank("/rerank", "rerankAsJina"), _rerank("/v2/rerank", "rerankAsCohere")),
)
"""What is served under other paths, too."""
