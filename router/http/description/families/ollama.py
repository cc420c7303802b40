"""Ollama's API: what models write, embeddings, and what models there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from router.dialects.json_schema import (
    ANYTHING,
    Schema,
    any_of,
    array,
    asked,
    boolean,
    constant,
    enum,
    integer,
    mapping,
    number,
    ref,
    string,
    told,
)
from router.dialects.responses.fields import SCHEMAS
from router.http.description.errors import ASKING, KEYED
from router.http.description.headers import CACHE_CONTROL, CACHED, SERVED
from router.http.description.parts import (
    JSON,
    NDJSON,
    DescribedBody,
    Family,
    Op,
    SuccessResponse,
    json_answer,
    streamed,
)

__all__ = ["FAMILY", "MODEL", "NAMED"]

MODEL: Final = {
    "model": string("A name from `/api/tags`; older clients call it `name`."),
    "name": string(),
}
NAMED: Final[Schema] = {
    "anyOf": [{"required": [n], "properties": {n: string(minLength=1)}} for n in ("model", "name")]
}
"""For a schema: one of the two names is there."""

_SAMPLER: Final = (
    "frequency_penalty", "min_p", "mirostat_eta", "mirostat_tau", "presence_penalty",
    "repeat_penalty", "typical_p",
)  # fmt: skip
_WHOLE: Final = ("mirostat", "num_keep", "num_predict", "repeat_last_n", "seed", "top_k")
_OPTIONS: Final = asked(
    {},
    {
        "temperature": number(0, 2),
        "top_p": number(0, 1),
        "stop": any_of(string(), array(string())),
        **dict.fromkeys(_SAMPLER, number()),
        **dict.fromkeys(_WHOLE, integer()),
    },
    description="Those of the sampler. Those of the runner (`num_ctx` …) are the configuration's.",
)
_IMAGES: Final = array(string(contentEncoding="base64", minLength=1))
_CALL: Final = asked(
    {
        "function": asked(
            {"name": string(minLength=1)}, {"arguments": any_of(mapping(ANYTHING), string())}
        )
    },
    {"id": string()},
)
_MESSAGE: Final = asked(
    {"role": string(pattern="^(?:[Ss]ystem|[Dd]eveloper|[Uu]ser|[Aa]ssistant|[Tt]ool)$")},
    {
        "content": string(),
        "images": _IMAGES,
        "thinking": string(),
        "tool_calls": array(_CALL),
        "tool_call_id": string(),
        "tool_name": string(),
    },
)
_TOOL: Final = asked(
    {
        "function": asked(
            {"name": string(minLength=1)},
            {"description": string(), "parameters": mapping(ANYTHING)},
        )
    },
    {"type": constant("function")},
)
_KEEP_ALIVE: Final = any_of(
    string(), number(), description="For how long the model is kept in memory; see below."
)
_COMMON: Final[Mapping[str, Schema]] = {
    **MODEL,
    "stream": boolean(default=True),
    "format": any_of(
        enum("json", ""), mapping(ANYTHING), description="`json`, or a JSON Schema."
    ),
    "options": _OPTIONS,
    "think": any_of(boolean(), enum("minimal", "low", "medium", "high", "xhigh", "max")),
    "logprobs": boolean(),
    "top_logprobs": integer(0, 20),
    "truncate": boolean(),
    "keep_alive": _KEEP_ALIVE,
    "cache": SCHEMAS["cache"],
}  # fmt: skip
_EMBED: Final[Mapping[str, Schema]] = {
    **MODEL,
    "options": mapping(ANYTHING),
    "dimensions": integer(1),
    "truncate": boolean(),
}
_DONE: Final = {"model": string(), "created_at": string(), "done": boolean()}
_TALLIES: Final = {
    "done_reason": string(),
    **dict.fromkeys(
        (
            "total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration",
            "eval_count", "eval_duration",
        ),
        integer(0),
    ),
}  # fmt: skip
_DETAILS: Final = mapping(ANYTHING)

_SCHEMAS: Final[Mapping[str, Schema]] = {
    "OllamaChat": asked(
        {}, {**_COMMON, "messages": array(_MESSAGE), "tools": array(_TOOL)}, **NAMED
    ),
    "OllamaGenerate": asked(
        {}, {**_COMMON, "prompt": string(), "system": string(), "images": _IMAGES}, **NAMED
    ),
    "OllamaEmbed": asked({}, {**_EMBED, "input": any_of(string(), array(string()))}, **NAMED),
    "OllamaEmbeddings": asked({}, {**_EMBED, "prompt": string()}, **NAMED),
    "OllamaChatAnswer": told(
        {**_DONE, "message": told({"role": constant("assistant"), "content": string()})}, _TALLIES
    ),
    "OllamaGenerateAnswer": told({**_DONE, "response": string()}, _TALLIES),
    "OllamaChatLine": any_of(ref("OllamaChatAnswer"), ref("OllamaError")),
    "OllamaGenerateLine": any_of(ref("OllamaGenerateAnswer"), ref("OllamaError")),
    "OllamaModel": told(
        {
            "name": string(),
            "model": string(),
            "size": integer(0),
            "digest": string(),
            "details": _DETAILS,
        },
        {
            "modified_at": string(),
            "expires_at": string(),
            "size_vram": integer(0),
            "context_length": integer(0),
            "endpoint": string("Where it is in memory."),
        },
    ),
    "OllamaModels": told({"models": array(ref("OllamaModel"))}),
    "OllamaShown": told(
        {},
        {
            "details": _DETAILS,
            "model_info": mapping(ANYTHING),
            "capabilities": array(string()),
            "modified_at": string(),
        },
    ),
}  # fmt: skip

_HEADERS: Final = (*SERVED, *CACHED)
_MOVES: Final = (
    "Without {0} the model is loaded; with `keep_alive: 0` it is taken out of memory, which needs "
    "the admin key."
)
_TIME: Final = "2026-01-01T00:00:00.000000000Z"
_ANSWER: Final = {"model": "my-model", "created_at": _TIME, "done": True, "done_reason": "stop"}
_SAID: Final = "Where trains are put together."
_TAG: Final = {
    "name": "my-model",
    "model": "my-model",
    "modified_at": _TIME,
    "size": 0,
    "digest": "0" * 64,
    "details": {"family": ""},
}
_ASKING: Final = (*ASKING, 403)

FAMILY: Final = Family(
    tag="Ollama",
    description="Ollama's API in front of every endpoint, whatever it speaks.",
    prefixes=("/api",),
    error="OllamaError",
    schemas=_SCHEMAS,
    ops=(
        Op(
            method="POST",
            path="/chat",
            id="ollamaChat",
            summary="Chat",
            description=_MOVES.format("messages"),
            parameters=(CACHE_CONTROL,),
            body=DescribedBody(
                ref("OllamaChat"),
                {
                    "model": "my-model",
                    "messages": [{"role": "user", "content": "What is a pointsman?"}],
                    "stream": False,
                },
            ),
            answer=SuccessResponse(
                description="The answer, or lines of it.",
                content={
                    JSON: ref("OllamaChatAnswer"),
                    **streamed(NDJSON, "OllamaChatLine", "Lines, unless `stream` is false."),
                },
                example={**_ANSWER, "message": {"role": "assistant", "content": _SAID}},
                headers=_HEADERS,
            ),
            errors=_ASKING,
            key="client or admin",
        ),
        Op(
            method="POST",
            path="/generate",
            id="ollamaGenerate",
            summary="Generate",
            description=_MOVES.format("a prompt"),
            parameters=(CACHE_CONTROL,),
            body=DescribedBody(
                ref("OllamaGenerate"),
                {"model": "my-model", "prompt": "What is a pointsman?", "stream": False},
            ),
            answer=SuccessResponse(
                description="The answer, or lines of it.",
                content={
                    JSON: ref("OllamaGenerateAnswer"),
                    **streamed(NDJSON, "OllamaGenerateLine", "Lines, unless `stream` is false."),
                },
                example={**_ANSWER, "response": _SAID},
                headers=_HEADERS,
            ),
            errors=_ASKING,
            key="client or admin",
        ),
        Op(
            method="POST",
            path="/embed",
            id="ollamaEmbed",
            summary="Embed texts",
            description="Without a text the model is loaded.",
            body=DescribedBody(ref("OllamaEmbed"), {"model": "my-model", "input": ["A pointsman"]}),
            answer=json_answer(
                "A vector for each text.",
                told(
                    {"model": string(), "embeddings": array(array(number()))},
                    {
                        "total_duration": integer(0),
                        "load_duration": integer(0),
                        "prompt_eval_count": integer(0),
                    },
                ),
                {"model": "my-model", "embeddings": [[0.6, 0.8]], "prompt_eval_count": 3},
                _HEADERS,
            ),
            errors=ASKING,
        ),
        Op(
            method="POST",
            path="/embeddings",
            id="ollamaEmbeddings",
            summary="Embed a text, as older clients do",
            body=DescribedBody(
                ref("OllamaEmbeddings"), {"model": "my-model", "prompt": "A pointsman"}
            ),
            answer=json_answer(
                "A vector.",
                told({"embedding": array(number())}),
                {"embedding": [0.6, 0.8]},
                _HEADERS,
            ),
            errors=ASKING,
        ),
        Op(
            method="GET",
            path="/tags",
            id="ollamaTags",
            summary="List models",
            answer=json_answer(
                "What the caller's key may use.", ref("OllamaModels"), {"models": [_TAG]}
            ),
            errors=KEYED,
        ),
        Op(
            method="GET",
            path="/ps",
            id="ollamaPs",
            summary="List models in memory",
            answer=json_answer(
                "Each once for every endpoint where it is.",
                ref("OllamaModels"),
                {"models": [{**_TAG, "size_vram": 0, "endpoint": "gpu-1"}]},
            ),
            errors=KEYED,
        ),
        Op(
            method="POST",
            path="/show",
            id="ollamaShow",
            summary="Show a model",
            body=DescribedBody(
                asked({}, {**MODEL, "verbose": boolean()}, **NAMED), {"model": "my-model"}
            ),
            answer=json_answer(
                "What an endpoint, or else the router, knows of it.",
                ref("OllamaShown"),
                {"details": {}, "model_info": {}, "capabilities": ["completion"]},
            ),
            errors=(*KEYED, 400, 404, 413),
        ),
        Op(
            method="GET",
            path="/version",
            id="ollamaVersion",
            summary="The version of Ollama whose requests are understood",
            answer=json_answer(
                "A version.",
                told({"version": string()}),
                {"version": "0.12.11"},
                ("X-Pointsman-Version",),
            ),
            errors=KEYED,
        ),
    ),
)
