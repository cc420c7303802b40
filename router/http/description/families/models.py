"""The list of models."""

from __future__ import annotations

from typing import Final

from router.dialects.json_schema import (
    any_of,
    array,
    boolean,
    constant,
    enum,
    integer,
    nullable,
    ref,
    string,
    told,
)
from router.http.description.errors import KEYED
from router.http.description.parts import Family, Op, header, json_answer, path, query

__all__ = ["FAMILY"]

_VERSION: Final = header(
    "anthropic-version", string(), "With it the answer, and errors, are in Anthropic's form."
)
_MODEL: Final = {
    "id": "my-model",
    "object": "model",
    "created": 1767225600,
    "owned_by": "pointsman",
}
_SHOWN: Final = any_of(ref("Model"), ref("AnthropicModel"))

FAMILY: Final = Family(
    tag="Models",
    description="What the caller's key may use of all that some endpoint serves.",
    prefixes=("/v1", "/api/v1"),
    error="EitherError",
    schemas={
        "Model": told(
            {
                "id": string(),
                "object": constant("model"),
                "created": integer(0),
                "owned_by": string(),
            }
        ),
        "AnthropicModel": told(
            {
                "id": string(),
                "type": constant("model"),
                "display_name": string(),
                "created_at": string(format="date-time"),
            }
        ),
        "CodexModel": told(
            {
                "slug": string(),
                "display_name": string(),
                "priority": integer(0, description="Its place in the list, 0 first."),
                "base_instructions": string(),
                "input_modalities": array(enum("text", "image")),
            },
            {
                "context_window": integer(1, description="In tokens, where it is known."),
                "auto_compact_token_limit": integer(1),
                "supported_reasoning_levels": array(told({"effort": string()})),
            },
            description="A `ModelInfo` of Codex, which has more fields.",
        ),
        "Models": any_of(
            told(
                {"object": constant("list"), "data": array(ref("Model"))},
                {"models": array(ref("CodexModel"))},
            ),
            told(
                {
                    "data": array(ref("AnthropicModel")),
                    "has_more": boolean(),
                    "first_id": nullable(string()),
                    "last_id": nullable(string()),
                }
            ),
        ),
    },
    ops=(
        Op(
            method="GET",
            path="/models",
            id="listModels",
            summary="List models",
            description="The first three parameters are for Anthropic's form. For Codex, which "
            "sends `client_version`, its own catalogue stands beside, under `models`.",
            parameters=(
                query("limit", integer(1, 1000, default=20), "How many at most."),
                query("after_id", string(), "Those after this model."),
                query("before_id", string(), "Those right before this model."),
                query("client_version", string(), "Codex' version; any will do."),
                _VERSION,
            ),
            answer=json_answer(
                "The models, each once.", ref("Models"), {"object": "list", "data": [_MODEL]}
            ),
            errors=(*KEYED, 400),
        ),
        Op(
            method="GET",
            path="/models/{id}",
            id="getModel",
            summary="Get a model",
            parameters=(
                path("id", "The name of a model; it may have slashes.", "my-model"),
                _VERSION,
            ),
            answer=json_answer("The model.", _SHOWN, _MODEL),
            errors=(*KEYED, 404),
        ),
    ),
)
