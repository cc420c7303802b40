"""Overflow of a context is recognised in the words of every engine, and nothing else is."""

from __future__ import annotations

import pytest

from router.balance.inference import inferred_abilities
from router.errors import UpstreamRejected
from router.response.upstream_errors import rejection, reported

WORDS = {
    # engine, HTTP status, body, the context that it states (None: none, or too small a number)
    "llama.cpp": (
        400,
        {
            "error": {
                "code": 400,
                "message": "request (2024 tokens) exceeds the available context size (1024 "
                "tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 2024,
                "n_ctx": 1024,
            }
        },
        1024,
    ),
    "llama.cpp, 2025": (
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size. try increasing the "
                "context size or enable context shift",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 14429,
                "n_ctx": 8192,
            }
        },
        None,
    ),
    "llama.cpp while it generates": (
        500,
        {
            "error": {
                "code": 500,
                "message": "Context size has been exceeded.",
                "type": "server_error",
            }
        },
        None,
    ),
    "llama-cpp-python": (
        400,
        {
            "error": {
                "message": "Requested tokens (2285) exceed context window of 2048",
                "type": "invalid_request_error",
                "param": None,
                "code": None,
            }
        },
        2048,
    ),
    "LiteLLM": (
        400,
        {
            "error": {
                "message": "litellm.ContextWindowExceededError: litellm.BadRequestError: "
                "ContextWindowExceededError: OpenAIException - Error code: 400 - {'error': "
                "{'message': \"This model's maximum context length is 128000 tokens. However, "
                'your messages resulted in 419624 tokens."}}',
                "type": None,
                "param": None,
                "code": "400",
            }
        },
        None,
    ),
    "LiteLLM for Gemini": (
        400,
        {
            "error": {
                "message": "litellm.ContextWindowExceededError: litellm.BadRequestError: "
                'Vertex_ai_betaException - b\'{ "error": { "code": 400 } }\'',
                "type": "None",
                "param": "None",
                "code": "400",
            }
        },
        None,
    ),
    "vLLM": (
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens. However, you "
            "requested 4472 tokens (376 in the messages, 4096 in the completion). Please reduce "
            "the length of the messages or completion.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        4096,
    ),
    "vLLM, 2025": (
        400,
        {
            "error": {
                "message": "You passed 12289 input tokens and requested 4096 output tokens. "
                "However, the model's context length is only 16384 tokens, resulting in a maximum "
                "input length of 12288 tokens. Please reduce the length of the input prompt. "
                "(parameter=input_tokens, value=12289)",
                "type": "BadRequestError",
                "param": "input_tokens",
                "code": 400,
            }
        },
        16384,
    ),
    "vLLM, the engine": (
        400,
        {
            "error": {
                "message": "The decoder prompt (length 3000) is longer than the maximum model "
                "length of 2048. Make sure that `max_model_len` is no smaller than the number of "
                "text tokens.",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            }
        },
        2048,
    ),
    "SGLang": (
        400,
        {
            "object": "error",
            "message": "The input (61709 tokens) is longer than the model's context length "
            "(40960 tokens).",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        40960,
    ),
    "SGLang with the answer": (
        400,
        {
            "object": "error",
            "message": "Requested token count exceeds the model's maximum context length of "
            "131072 tokens. You requested a total of 140000 tokens: 130000 tokens from the input "
            "messages and 10000 tokens for the completion.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        131072,
    ),
    "SGLang, memory": (
        400,
        {
            "object": "error",
            "message": "Input length (160062 tokens) exceeds the maximum allowed length (59862 "
            "tokens). Use a shorter input or enable --allow-auto-truncate.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
        59862,
    ),
    "Text Generation Inference": (
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. "
            "Given: 1218 `inputs` tokens and 1500 `max_new_tokens`",
            "error_type": "validation",
        },
        2048,
    ),
    "Text Generation Inference, input": (
        422,
        {
            "error": {
                "message": "Input validation error: `inputs` must have less than 1024 tokens. "
                "Given: 1100",
                "http_status_code": 422,
            }
        },
        1024,
    ),
    "Ollama": (400, {"error": "the input length exceeds the context length"}, None),
    "Ollama before 0.10": (500, {"error": "the input length exceeds the context length"}, None),
    "Ollama, /api/chat": (
        400,
        {"error": "prompt too long; exceeded max context length by 1200 tokens"},
        None,
    ),
    "transformers, tokenizer": (
        500,
        {
            "detail": "Token indices sequence length is longer than the specified maximum sequence "
            "length for this model (18294 > 16384). Running this sequence through the model will "
            "result in indexing errors"
        },
        16384,
    ),
    "transformers, generate": (
        400,
        {
            "detail": "Input length of input_ids is 2048, but `max_length` is set to 1024. This "
            "can lead to unexpected behavior. You should consider increasing `max_length` or, "
            "better yet, setting `max_new_tokens`."
        },
        None,
    ),
    "OpenAI": (
        400,
        {
            "error": {
                "message": "Your input exceeds the context window of this model. Please adjust "
                "your input and try again.",
                "type": "invalid_request_error",
                "param": "input",
                "code": "context_length_exceeded",
            }
        },
        None,
    ),
    "Anthropic": (
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 213462 tokens > 200000 maximum",
            },
        },
        200000,
    ),
}


@pytest.mark.parametrize("engine", WORDS)
def test_the_words_of_every_engine(engine: str) -> None:
    status, body, context = WORDS[engine]
    error = reported(body, status)
    rejected = rejection(error, "nothing was said")
    assert isinstance(rejected, UpstreamRejected)
    assert (rejected.status, rejected.type) == (400, "invalid_request_error")
    assert rejected.code == "context_length_exceeded"
    assert rejected.message == error.message
    taught = inferred_abilities(rejected.code, rejected.param, rejected.message)
    assert (taught.context if taught is not None else None) == context


@pytest.mark.parametrize("engine", WORDS)
def test_within_a_stream_there_is_no_status(engine: str) -> None:
    rejected = rejection(reported(WORDS[engine][1]), "nothing was said")
    assert rejected is not None
    assert (rejected.status, rejected.code) == (400, "context_length_exceeded")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        # limits of another kind
        (400, {"error": {"message": "max_tokens is too large: 99999. This model supports at most "
               "16384 completion tokens", "param": "max_tokens"}}),
        (400, {"error": {"message": "Expected a string with maximum allowed length 512",
               "param": "metadata.name"}}),
        (413, {"error": {"message": "Request too large for model `m` on tokens per minute (TPM): "
               "Limit 6000, Requested 7000", "code": "rate_limit_exceeded"}}),
        # what the client wrote
        (400, {"error": {"message": "unknown tool 'it exceeds the available context size'"}}),
        (400, {"error": {"message": "no"}}),
    ],
)  # fmt: skip
def test_other_limits_are_not_the_context(status: int, body: dict[str, object]) -> None:
    rejected = rejection(reported(body, status), "nothing was said")
    assert rejected is None or rejected.code != "context_length_exceeded"


@pytest.mark.parametrize("status", [401, 403, 408, 429, 502, 503, 504])
def test_not_with_a_status_that_says_otherwise(status: int) -> None:
    body = {"error": {"message": "prompt is too long: 213462 tokens > 200000 maximum"}}
    assert rejection(reported(body, status), "nothing was said") is None


@pytest.mark.parametrize(
    "error",
    [
        {"code": "context_length_exceeded", "param": "messages"},
        {"code": "context_length_exceeded", "type": "invalid_request_error", "param": "x"},
        {"type": "exceed_context_size_error"},
        {"code": "model_context_window_exceeded"},
    ],
)
@pytest.mark.parametrize("status", [None, 400, 413])
def test_the_code_alone_says_it(status: int | None, error: dict[str, str]) -> None:
    """In words that are not known, or in another language."""
    body = {"error": {**error, "message": "Trop long."}, "status": 400}
    rejected = rejection(reported(body, status), "nothing was said")
    assert rejected is not None
    assert (rejected.status, rejected.code) == (400, "context_length_exceeded")
    assert rejected.message == "Trop long."
