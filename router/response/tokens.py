"""Token counts, brought to the form of the Responses API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from router.balance.averages import PromptTokens

__all__ = [
    "answers",
    "estimate_tokens",
    "estimated_prompt",
    "estimated_usage",
    "from_chat",
    "from_embeddings",
    "from_messages",
    "from_ollama",
    "from_rerank",
    "from_response",
    "is_text",
    "longest_prompt_chars",
    "output_chars",
    "prompt_chars",
    "prompt_estimates",
    "prompt_size",
    "prompts",
    "response_usage",
]

_CHARS_PER_TOKEN: Final = 4
_FRAME_TOKENS: Final = 4
"""What a chat template adds to a message: where it begins and ends, and its role."""

_NO_TEXT_PARTS: Final = frozenset(
    {"computer_screenshot", "file", "image_url", "input_audio", "input_file", "input_image"}
)
_MOST_LOOKED_AT: Final = 256
_NOT_TEXT: Final = frozenset({"id", "type", "role", "status", "encrypted_content", "file_data"})
_MAX_COUNT: Final = 2**53 - 1
_BATCHES: Final = ("input", "prompt")
"""What may hold several prompts, and tokens instead of text."""

_PROMPT: Final = (*_BATCHES, "instructions", "tools", "messages", "query", "documents", "suffix")


def response_usage(
    input_tokens: int, output_tokens: int, *, cached: int = 0, reasoning: int = 0
) -> dict[str, Any]:
    """A Responses ``usage`` object."""
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input_tokens + output_tokens,
    }


def from_chat(usage: Any) -> dict[str, Any] | None:
    """The ``usage`` of a chat completion, as a Responses ``usage``; None when it has no counts."""
    if not isinstance(usage, dict):
        return None
    inputs, read = usage.get("prompt_tokens"), usage.get("prompt_tokens_details")
    outputs, thought = usage.get("completion_tokens"), usage.get("completion_tokens_details")
    return _counted(
        inputs,
        outputs,
        cached=_detail(read, "cached_tokens") if read else 0,
        reasoning=_detail(thought, "reasoning_tokens") if thought else 0,
    )


def from_embeddings(usage: Any) -> dict[str, Any] | None:
    """The ``usage`` of embeddings, as a Responses ``usage``; None when it has no counts.

    What they cost is what was read: some count it only in total.
    """
    if not isinstance(usage, dict):
        return None
    count = usage.get("prompt_tokens")
    return _counted(usage.get("total_tokens") if _count(count) is None else count, None)


def from_rerank(answer: dict[str, Any]) -> dict[str, Any] | None:
    """What a reranking cost, as a Responses ``usage``: told in Jina's form, or in Cohere's; None
    where no tokens are counted.
    """
    meta = _object(answer.get("meta"))
    for counts in (meta.get("tokens"), meta.get("billed_units")):
        if (found := _counted(_object(counts).get("input_tokens"), None)) is not None:
            return found
    return from_embeddings(answer.get("usage"))


def from_messages(usage: Any) -> dict[str, Any] | None:
    """The ``usage`` of a message, as a Responses ``usage``; None when it has no counts.

    ``input_tokens`` is there what was neither read from the cache nor written to it.
    """
    if not isinstance(usage, dict):
        return None
    read = _count(usage.get("cache_read_input_tokens")) or 0
    written = _count(usage.get("cache_creation_input_tokens")) or 0
    inputs = _count(usage.get("input_tokens"))
    thought = _detail(usage.get("output_tokens_details"), "thinking_tokens")
    known = _counted(
        None if inputs is None else inputs + read + written,
        usage.get("output_tokens"),
        cached=read,
        reasoning=thought,
    )
    if known is not None:
        known["input_tokens_details"]["cache_write_tokens"] = written
    return known


def from_ollama(line: dict[str, Any]) -> dict[str, Any] | None:
    """The counts of Ollama's last line; None when it has none.

    Ollama leaves ``prompt_eval_count`` out when the whole prompt was cached.
    """
    return _counted(line.get("prompt_eval_count"), line.get("eval_count"))


def from_response(usage: Any) -> dict[str, Any] | None:
    """The ``usage`` of a Response object, with the details where they are missing.

    None when it has no counts. Fields that are not known here are kept, and so is the endpoint's
    own total.
    """
    if not isinstance(usage, dict):
        return None
    inputs = usage.get("input_tokens_details")
    outputs = usage.get("output_tokens_details")
    if type(inputs) is dict and type(outputs) is dict and _is_complete(usage, inputs, outputs):
        written = _detail(inputs, "cache_write_tokens")
        return {**usage, "input_tokens_details": {**inputs, "cache_write_tokens": written}}
    known = _counted(
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        cached=_detail(inputs, "cached_tokens"),
        reasoning=_detail(outputs, "reasoning_tokens"),
    )
    if known is None:
        return None
    total = _count(usage.get("total_tokens"))
    return {
        **usage,
        **known,
        "input_tokens_details": {
            **_object(inputs),
            **known["input_tokens_details"],
            "cache_write_tokens": _detail(inputs, "cache_write_tokens"),
        },
        "output_tokens_details": {**_object(outputs), **known["output_tokens_details"]},
        "total_tokens": known["total_tokens"] if total is None else total,
    }


def _is_complete(usage: dict[str, Any], inputs: dict[str, Any], outputs: dict[str, Any]) -> bool:
    """Whether every count of a ``usage`` is there, and plausible: of most it is."""
    for count in (
        usage.get("input_tokens"),
        inputs.get("cached_tokens"),
        usage.get("output_tokens"),
        outputs.get("reasoning_tokens"),
        usage.get("total_tokens"),
    ):
        if type(count) is not int or not 0 <= count <= _MAX_COUNT:
            return False
    return True


def estimate_tokens(chars: int) -> int:
    """A rough count for text nobody counted: four characters to a token, rounded up."""
    return -(-chars // _CHARS_PER_TOKEN)


def estimated_prompt(body: dict[str, Any], prompts: PromptTokens | None) -> int:
    """The tokens of a request's prompt, where nobody has counted them.

    Four characters are a token. With ``prompts``, of the model whose chat template makes the
    prompt, what the template adds to each message and to the whole is counted too, and all of it
    corrected by what the model has reported before.
    """
    return prompt_estimates(body, prompts)[1]


def prompt_estimates(body: dict[str, Any], prompts: PromptTokens | None) -> tuple[int, int]:
    """The tokens of a request's prompt by its text alone, and like ``estimated_prompt``."""
    text, share = prompt_size(body)
    return text, text if prompts is None else prompts.estimate(share)


def estimated_usage(input_tokens: int, items: list[dict[str, Any]]) -> dict[str, Any]:
    """What an answer without usage is taken to have cost, marked ``estimated``."""
    usage = response_usage(input_tokens, estimate_tokens(output_chars(items)))
    usage["estimated"] = True
    return usage


def output_chars(items: Sequence[Any]) -> int:
    """The characters of text in output items, which may be whatever an endpoint sent."""
    chars = 0
    for item in map(_object, items):
        chars += _length(item.get("arguments")) or _length(item.get("input"))
        for name in ("content", "summary"):
            parts = item.get(name)
            for part in map(_object, parts if isinstance(parts, list) else ()):
                chars += _length(part.get("text")) or _length(part.get("refusal"))
    return chars


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str) else 0


def _counted(
    input_tokens: Any, output_tokens: Any, *, cached: int = 0, reasoning: int = 0
) -> dict[str, Any] | None:
    inputs, outputs = _count(input_tokens), _count(output_tokens)
    if inputs is None and outputs is None:
        return None
    return response_usage(inputs or 0, outputs or 0, cached=cached, reasoning=reasoning)


def _count(value: Any) -> int | None:
    """A number of tokens; None for anything else, such as a number no answer can have."""
    if type(value) is int and 0 <= value <= _MAX_COUNT:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= _MAX_COUNT else None


def _detail(details: Any, name: str) -> int:
    return (_count(details.get(name)) or 0) if isinstance(details, dict) else 0


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def prompt_chars(body: dict[str, Any]) -> int:
    """The characters of text in a request; images and files sent as data do not count.

    A token that is sent as its number is as long as a token is taken to be.
    """
    said = 0
    for name in _PROMPT:
        value = body.get(name)
        if isinstance(value, str):
            said += 0 if value.startswith("data:") else len(value)
        elif value:
            said += _batch_chars(value) if name in _BATCHES else _chars(value)
    return said


def prompt_size(body: dict[str, Any]) -> tuple[int, int]:
    """The tokens of a request's text, and those with what a chat template adds to its messages,
    about. What a template adds to each prompt as a whole is not in it.
    """
    text = estimate_tokens(prompt_chars(body))
    messages = 0
    for name in ("instructions", "input", "messages"):
        if value := body.get(name):
            messages += len(value) if isinstance(value, list) else 1
    return text, text + _FRAME_TOKENS * messages


def is_text(body: dict[str, Any]) -> bool:
    """Whether a request is known to be of text only, which can be counted by its characters.

    False also for one that is too long to be looked at for that.
    """
    items: list[Any] = []
    for name in ("instructions", "input", "messages"):
        if isinstance(value := body.get(name), list):
            items += value[: _MOST_LOOKED_AT + 1]
    if len(items) > _MOST_LOOKED_AT:
        return False
    for item in map(_object, items):
        for name in ("content", "output"):
            parts = item.get(name)
            for part in map(_object, parts if isinstance(parts, list) else ()):
                kind = part.get("type")  # anything: of a chat that passes, nobody has checked it
                if kind is not None and (type(kind) is not str or kind in _NO_TEXT_PARTS):
                    return False
    return True


def longest_prompt_chars(body: dict[str, Any]) -> int:
    """The characters of the longest prompt in a request, which has to fit into a context.

    Of a reranking it is none: a document that is too long is cut, or read in pieces.
    """
    if _is_rerank(body):
        return 0
    if (several := _batch(body)) is None:
        return prompt_chars(body)
    return _chars(body.get("suffix")) + max(map(_batch_chars, several))


def prompts(body: dict[str, Any]) -> int:
    """How many prompts there are in a request, each with a context of its own."""
    several = body["documents"] if _is_rerank(body) else _batch(body)
    return len(several) if several else 1


def answers(body: dict[str, Any]) -> int:
    """How many answers a request to Chat Completions, or to legacy completions, asks for."""
    counts = (body.get("n"), body.get("best_of"))
    return prompts(body) * max([1, *(count for count in counts if type(count) is int)])


def _is_rerank(body: dict[str, Any]) -> bool:
    return isinstance(body.get("documents"), list) and "query" in body


def _batch(body: dict[str, Any]) -> list[Any] | None:
    """The prompts of a request that has several; those of tokens are lists."""
    for name in _BATCHES:
        value = body.get(name)
        if isinstance(value, list) and value and isinstance(value[0], str | list):
            return value
    return None


def _batch_chars(value: Any) -> int:
    if isinstance(value, dict):  # a stored prompt, whose text is in the input by then
        return 0
    if not isinstance(value, list) or not value:
        return _chars(value)
    if type(value[0]) is int:
        return _CHARS_PER_TOKEN * len(value)
    if type(value[0]) is not list:
        return _chars(value)
    return sum(
        _CHARS_PER_TOKEN * len(inner)
        if isinstance(inner, list) and inner and type(inner[0]) is int
        else _chars(inner)
        for inner in value
    )


def _chars(value: Any) -> int:
    # Not recursive: a client's schema may be nested more deeply than Python's stack.
    chars = 0
    todo = [value]
    while todo:
        value = todo.pop()
        if isinstance(value, str):
            chars += 0 if value.startswith("data:") else len(value)
        elif isinstance(value, dict):
            todo.extend(inner for name, inner in value.items() if name not in _NOT_TEXT)
        elif isinstance(value, list):
            todo.extend(value)
    return chars
