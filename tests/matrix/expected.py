"""What the cells of the matrix are to be: ``yes`` where nothing else is said here.

A cell that changes has to be changed here too, so that what is lost is never just written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tests.matrix.asking import OVER_WEBSOCKET, PATHS
from tests.matrix.cases import FEATURES, HIDDEN, PASSED_ON, YES
from tests.matrix.others import ESTIMATED, NO_CITATIONS, NO_FIELD, OTHERS
from tests.matrix.stand import COLUMNS, EMBEDDER, MODEL, ONLY

__all__ = ["cells", "expected"]

Rule = tuple[str | Iterable[str], Iterable[str], Iterable[str], str]

_ALL: Final = tuple(COLUMNS)
_EMBEDDINGS: Final = ("text", "batch", "base64", "dimensions", "usage")
_OTHERS_APIS: Final = (
    "Responses",
    OVER_WEBSOCKET,
    "Chat Completions",
    "Ollama chat",
    "Ollama generate",
)
_OF_OPENAI: Final = ("/v1/responses", "/v1/chat/completions")
_WAYS: Final = ("whole", "streamed")
_LACKED: Final = ("tools", "parallel tools", "images", "structured output", "reasoning")


def _cannot(what: str, model: str = MODEL) -> str:
    return f"No endpoint that serves the model '{model}' can {what} with it."


_RULES: Final[list[Rule]] = [
    # OpenAI's chats never show what a model thought: nor does an endpoint in its style.
    ("Chat Completions", ["reasoning"], ["responses", ONLY], HIDDEN),
    (
        "Completions",
        FEATURES,
        [ONLY, "messages"],
        f"501 not_supported: {_cannot('serve legacy completions')}",
    ),
    ("Completions", _LACKED, _ALL, PASSED_ON),
    ("Anthropic Messages", ["logprobs"], ["messages"], PASSED_ON),
    (_OTHERS_APIS, ["logprobs"], ["messages"], "ignored: top_logprobs"),
    ("Anthropic Messages", ["logprobs"], _ALL, "ignored: logprobs"),
    ("Ollama generate", ["tools", "parallel tools"], _ALL, "ignored: tools"),
    (
        "/v1/embeddings",
        _EMBEDDINGS,
        [ONLY, "messages"],
        f"501 not_supported: {_cannot('make embeddings', EMBEDDER)}",
    ),
    (
        "/api/embeddings",
        ["batch"],
        _ALL,
        "400: Invalid type for 'prompt': expected a string, but got an array instead.",
    ),
    (
        ["/api/embed", "/api/embeddings"],
        _EMBEDDINGS,
        [ONLY, "messages"],
        f"501: {_cannot('make embeddings', EMBEDDER)}",
    ),
    (["/api/embed", "/api/embeddings"], ["base64"], _ALL, "ignored: encoding_format"),
    ("/api/embeddings", ["usage"], _ALL, NO_FIELD),
    (
        OTHERS["Rerank"],
        ["order", "top_n", "documents"],
        [ONLY, "ollama", "messages"],
        f"501 not_supported: {_cannot('rerank documents')}",
    ),
    ("/v1/messages", _WAYS, ["messages"], PASSED_ON),
    ("/v1/messages", _WAYS, _ALL, "ignored: citations"),
    ("/v1/chat/completions", _WAYS, ["messages"], NO_FIELD),
    (_OF_OPENAI, _WAYS, ["responses", ONLY, "chat", "ollama"], NO_CITATIONS),
    (OTHERS["Token counting"], ["text", "tools", "images"], ["chat", "ollama"], ESTIMATED),
]
"""Surfaces, features, kinds of endpoints, and what becomes of them; the first that fits."""


def expected(surface: str, feature: str, column: str) -> str:
    """What is to become of a feature."""
    for surfaces, features, columns, found in _RULES:
        named = [surfaces] if isinstance(surfaces, str) else surfaces
        if surface in named and feature in features and column in columns:
            return found
    return YES


def cells() -> Iterator[tuple[str, str]]:
    """Surface and feature of every row."""
    for surface in PATHS:
        for feature in FEATURES:
            yield surface, feature
    for table in OTHERS.values():
        for path, features in table.items():
            for feature in features:
                yield path, feature
