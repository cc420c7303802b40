"""What the refusals of real servers teach, and what they do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.balance.capability import Abilities, Feature
from router.balance.inference import inferred_abilities
from tests.support.reading import FUZZ

REFUSALS = {
    Feature.TOOLS: [
        # Ollama
        ("registry.ollama.ai/library/gemma:2b does not support tools", None),
        ("llama3 does not support tools", None),
        ('"mistral" does not support tools', None),
        # vLLM, llama.cpp
        (
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be '
            "set",
            None,
        ),
        ("tools param requires --jinja flag", None),
        # OpenAI, Azure
        ("Unsupported parameter: 'tools' is not supported with this model.", "tools"),
        (
            "tools is not supported in this model. For a list of supported models, refer to "
            "https://platform.openai.com/docs/guides/function-calling#models.",
            "tools",
        ),
        ("Unrecognized request argument supplied: tools", None),
        # Groq, DeepSeek, Gemini, OpenRouter
        ("tool calling is not supported with this model", "tool calling"),
        ("`tool calling` is not supported with this model", "tool calling"),
        ("deepseek-reasoner does not support Function Calling", None),
        ("Function calling is not enabled for models/gemma-3-27b-it", None),
        ("No endpoints found that support tool use. To learn more about provider routing.", None),
        ("Function calling is not supported yet", "tools"),
    ],
    Feature.TOOL_CHOICE: [
        ("tool_choice param requires --jinja flag", None),
        ('tool_choice must either be a named tool, "auto", or "none".', None),
        (
            'tool_choice must either be a named tool or "auto". tool_choice="required" is not '
            "supported",
            None,
        ),
        (
            "Provider does not support tool_choice='required'. Update request to use "
            "tool_choice='auto'.",
            "tool_choice",
        ),
        ("deepseek-reasoner does not support this tool_choice", None),
        ("No endpoints found that support the provided 'tool_choice' value.", None),
        ("Unsupported parameter: 'tool_choice' is not supported with this model.", "tool_choice"),
    ],
    Feature.JSON_SCHEMA: [
        (
            "Invalid parameter: 'response_format' of type 'json_schema' is not supported with "
            "this model. Learn more about supported models at the Structured Outputs guide: "
            "https://platform.openai.com/docs/guides/structured-outputs",
            "response_format",
        ),
        (
            "Invalid parameter: 'text.format' of type 'json_schema' is not supported with model "
            "version `gpt-4-0613`.",
            "text.format",
        ),
        (
            "This model does not support response format `json_schema`. See supported models at "
            "https://console.groq.com/docs/structured-outputs#supported-models",
            "response_format",
        ),
        ("This response_format type is unavailable now", None),
        ("JSON mode is not enabled for models/gemma-3-27b-it", None),
        ("response_format is not supported", None),
        ("Structured outputs are not supported by this model.", None),
    ],
    Feature.VISION: [
        ("/models/qwen3-8b is not a multimodal model None", None),
        ("At most 0 image(s) may be provided in one prompt.", None),
        ("At most 0 image(s) may be provided in one prompt. (parameter=image)", "image"),
        (
            "image input is not supported - hint: if this is unexpected, you may need to provide "
            "the mmproj",
            None,
        ),
        (
            "Invalid content type. image_url is only supported by certain models.",
            "messages.[0].content.[1].type",
        ),
        (
            "Invalid 'input[0].content[1].type'. The model 'o3-mini' does not support image "
            "inputs.",
            "input[0].content[1].type",
        ),
        ("Model does not support images. Please use a model that does.", None),
        ("this model does not support image input (ref: b8bd630e)", None),
        ("this model is missing data required for image input", None),
        (
            "Failed to deserialize the JSON body into the target type: messages[1]: unknown "
            "variant `image_url`, expected `text` at line 1 column 746109",
            None,
        ),
        ("Image input modality is not enabled for models/gemma-3n-e4b-it", None),
        ("Unsupported content part type for text-only server: image_url", None),
        ("messages.content.type is invalid, allowed values: ['text']", None),
        ("No endpoints found that support image input", None),
        ("Image inputs are not supported by this model", None),
    ],
    Feature.REASONING: [
        ('"llama3" does not support thinking', None),
        ("registry.ollama.ai/library/gemma3:4b does not support thinking", None),
        ("Unsupported parameter: 'reasoning.effort' is not supported with this model.", None),
        (
            "Unsupported parameter: 'reasoning_effort' is not supported with this model.",
            "reasoning_effort",
        ),
        ("Unrecognized request argument supplied: reasoning_effort", None),
        ("`reasoning_effort` is not supported with this model", "reasoning_effort"),
        ("Argument not supported on this model: reasoningEffort", None),
        (
            "litellm.UnsupportedParamsError: together_ai does not support parameters: "
            "['reasoning_effort'], for model=Qwen/Qwen3.5-9B.",
            None,
        ),
    ],
}

CONTEXTS = [
    (
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens "
        "(4500 in the messages, 500 in the completion). Please reduce the length of the messages "
        "or completion.",
        4096,
    ),
    (
        "This model's maximum context length is 8192 tokens. However, you requested 512 output "
        "tokens and your prompt contains at least 7681 input tokens, for a total of at least "
        "8193 tokens. Please reduce the length of the input prompt or the number of requested "
        "output tokens.",
        8192,
    ),
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context "
        "length is 8192 tokens and your request has 20 input tokens (9000 > 8192 - 20).",
        8192,
    ),
    (
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make "
        "sure that `max_model_len` is no smaller than the number of text tokens.",
        4096,
    ),
    (
        "This endpoint's maximum context length is 131072 tokens. However, you requested about "
        "200000 tokens",
        131072,
    ),
    (
        "request (5121 tokens) exceeds the available context size (4096 tokens), try increasing it",
        4096,
    ),
    ("the request exceeds the available context size (4096 tokens)", 4096),
    (
        "The input (250000 tokens) is longer than the model's context length (200000 tokens).",
        200_000,
    ),
    (
        "Requested token count exceeds the model's maximum context length of 32768 tokens. You "
        "requested a total of 40000 tokens: 39000 tokens from the input messages and 1000 tokens "
        "for the completion.",
        32768,
    ),
    ("Input length (133889) exceeds model's maximum context length (131072).\"", 131072),
    (
        "Trying to keep the first 111490 tokens when context the overflows. However, the model is "
        "loaded with context length of only 32768 tokens, which is not enough. Try to load the "
        "model with a larger context length, or provide a shorter input",
        32768,
    ),
    (
        "The number of tokens to keep from the initial prompt is greater than the context length "
        "(n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context length, or "
        "provide a shorter input.",
        4096,
    ),
    (
        "Prompt contains 300000 tokens and 0 draft tokens, too large for model with 131072 "
        "maximum context length",
        131072,
    ),
    (
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4500 "
        "`inputs` tokens and 20 `max_new_tokens`",
        4096,
    ),
    ("Input validation error: `inputs` must have less than 1024 tokens. Given: 5000", 1024),
    ("prompt is too long: 213462 tokens > 200000 maximum", 200_000),
    (
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        1048575,
    ),
    (
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
        131072,
    ),
    (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in "
        "509178 tokens. Please reduce the length of the messages.",
        272_000,
    ),
    ("prompt token count of 200000 exceeds the limit of 128000", 128_000),
    ("Input length 131393 exceeds the maximum allowed input length of 131040 tokens.", 131_040),
    ("Your request exceeded model token limit: 262144 (requested: 300000)", 262_144),
    ("Range of input length should be [1, 30720]", 30720),
    ("Prompt has 300,000 tokens, but the configured context size is 131,072 tokens", 131_072),
]

NOTHING = [
    # What is wrong with this one request.
    ("tools[0].name is invalid", "tools[0].name"),
    ("Invalid 'tools[0].function.name': string does not match pattern.", "tools[0].function.name"),
    ("Missing required parameter: 'tools[0].function'.", "tools[0].function"),
    ("Unknown parameter: 'tools[0].foo'.", "tools[0].foo"),
    ("'tool_choice' is only allowed when 'tools' are specified.", "tool_choice"),
    ("Invalid value for 'tool_choice': the tool 'f' is not in 'tools'.", "tool_choice"),
    (
        "Invalid schema for response_format 'x': In context=(), 'additionalProperties' is "
        "required to be supplied and to be false.",
        "response_format",
    ),
    ("The provided JSON schema contains features not supported by xgrammar.", None),
    ("JSON schema is not supported: oneOf", None),
    ("Failed to call a function. Please adjust your prompt.", None),
    ("You uploaded an unsupported image. Please make sure your image is valid.", None),
    ("The image format is not supported.", None),
    ("image URLs are not currently supported, please use base64 encoded data instead", None),
    ("At most 1 image(s) may be provided in one prompt.", None),
    ("At most 10 images may be provided in one request.", None),
    ("invalid image input", None),
    # A value, not the feature.
    (
        "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model. "
        "Supported values are: 'low', 'medium', and 'high'.",
        "reasoning_effort",
    ),
    ('think value "low" is not supported for this model', None),
    ("model does not support thinking off", None),
    ('This model does not support reasoning effort "xhigh".', None),
    ("Invalid parameter: 'response_format' of type 'json_object' is not supported.", None),
    # A combination, or another way to ask.
    ("Function tools with reasoning_effort are not supported for gpt-5.4.", None),
    ("tools are not supported with streaming", None),
    ("Tools are not supported when stream is enabled.", None),
    ("response format is not supported when tools are provided", None),
    ("response_format json_object cannot be combined with tool/function calling", None),
    ("Structured outputs are not supported with function calling.", None),
    ("Thinking mode does not support this tool_choice", None),
    ("Streaming does not support tools", None),
    ("Model does not support images in system messages", None),
    ("Parallel tool calls are not supported with this model.", None),
    ("Unsupported parameter: 'parallel_tool_calls' is not supported with this model.", None),
    ("Unsupported parameter: 'reasoning.summary' is not supported with this model.", None),
    ("Encrypted content is not supported with this model.", "include"),
    ("Hosted tools are not supported with this model.", "tools"),
    ("Hosted tool 'web_search_preview' is not supported with gpt-4.1-nano.", "tools"),
    ("Custom tools are not supported with this model.", "tools"),
    (
        "Unsupported parameter: 'reasoning_effort'. In the Responses API, this parameter has "
        "moved to 'reasoning.effort'. Try again with the new parameter.",
        None,
    ),
    (
        "'messages.1' : for 'role:user' the following must be satisfied[('messages.1' : property "
        "'tool_calls' is unsupported, did you mean 'tool_call_id'?)]",
        None,
    ),
    ("property 'store' is unsupported, did you mean 'stop'?", None),
    # The field at fault is another one.
    ("tools is not supported with this model.", "tools[0].type"),
    ("This model does not support tools.", "metadata"),
    # Contexts that are none, or without a number.
    ("Your input exceeds the context window of this model. Please adjust your input.", "input"),
    ("prompt too long; exceeded max context length by 4096 tokens", None),
    ("the request exceeds the available context size, try increasing it", None),
    ("Please reduce the length of the messages or completion.", "messages"),
    (
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, "
        "whereas you provided 100000.",
        "max_tokens",
    ),
    ("This model's maximum context length is 0 tokens.", None),
    ("This model's maximum context length is 12345678901234 tokens.", None),
    # What a client sent, said again.
    ("Invalid value: 'This model does not support tools'.", "tools"),
    ("No tool is called 'registry.ollama.ai/x:1 does not support tools'", None),
    ('The model "maximum context length is 600 tokens" does not exist.', None),
    ("", None),
]


@pytest.mark.parametrize(
    ("feature", "message", "param"),
    [(feature, *said) for feature, messages in REFUSALS.items() for said in messages],
)
def test_a_feature_that_is_missing(feature: Feature, message: str, param: str | None) -> None:
    assert inferred_abilities(None, param, message) == Abilities(lacks=feature)


@pytest.mark.parametrize(("message", "tokens"), CONTEXTS)
def test_a_context_that_is_too_small(message: str, tokens: int) -> None:
    for code in (None, "context_length_exceeded"):
        assert inferred_abilities(code, "messages", message) == Abilities(context=tokens)


@pytest.mark.parametrize(("message", "param"), NOTHING)
def test_what_teaches_nothing(message: str, param: str | None) -> None:
    for code in (None, "unsupported_parameter", "invalid_value"):
        assert inferred_abilities(code, param, message) is None


@pytest.mark.parametrize("code", ["rate_limit_exceeded", "tool_use_failed"])
def test_a_refusal_of_the_moment(code: str) -> None:
    message = "This model does not support tools: its maximum context length is 4096 tokens."
    assert inferred_abilities(code, None, message) is None
    assert inferred_abilities(None, None, message) is not None


def test_only_the_beginning_of_a_message_counts() -> None:
    said = "This model does not support tools."
    assert inferred_abilities(None, None, "x" * 5000 + ". " + said) is None
    assert inferred_abilities(None, None, said + " x" * 5000) is not None


@FUZZ
@given(
    st.text(),
    st.lists(
        st.sampled_from(
            ["'", '"', "`", " ", ".", "tools", "model", "is not supported", "does not support",
             "maximum context length is ", "1" * 30, "9,999", "images", "[", "٣"]
        )
    ),
)  # fmt: skip
def test_any_message_is_read(text: str, words: list[str]) -> None:
    for message in (text, "".join(words), text.join(words)):
        learned = inferred_abilities(text, text, message)
        assert learned is None or (learned.context is None) != (not learned.lacks)
