"""Requests that follow from one another: what is stored, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

__all__ = ["STEPS", "Step"]


@dataclass(frozen=True)
class Step:
    """``{name}`` in the path or the body is the id of an earlier answer, kept by its ``keeps``."""

    method: str
    path: str
    body: dict[str, Any] | None = None
    keeps: str = ""


_MESSAGE: Final = {"type": "message", "role": "user", "content": "I live in Paris"}
_TEXTS: Final = ["a red fox", "two blue birds"]


def _ask(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "input": text, **fields}


_STORED: Final = (
    Step("POST", "/v1/responses", _ask("My name is Ada", metadata={"a": "b"}), keeps="first"),
    Step("GET", "/v1/responses/{first}"),
    Step("GET", "/v1/responses/{first}?stream=true"),
    Step("GET", "/v1/responses/{first}/input_items"),
    Step(
        "POST",
        "/v1/responses",
        _ask("Who am I?", previous_response_id="{first}", stream=True),
    ),
    Step("POST", "/v1/responses", _ask("Forget me", store=False)),
    Step("POST", "/v1/responses", _ask("Later", background=True, stream=True)),
    Step("POST", "/v1/responses/{first}/cancel"),
    Step("DELETE", "/v1/responses/{first}"),
    Step("GET", "/v1/responses/{first}"),
)
_CONVERSATIONS: Final = (
    Step("POST", "/v1/conversations", {"items": [_MESSAGE], "metadata": {"a": "b"}}, keeps="conv"),
    Step("POST", "/v1/responses", _ask("Where do I live?", conversation="{conv}")),
    Step("GET", "/v1/conversations/{conv}/items?order=asc"),
    Step("POST", "/v1/conversations/{conv}", {"metadata": {"a": "c"}}),
    Step("GET", "/v1/conversations/{conv}"),
    Step("DELETE", "/v1/conversations/{conv}"),
    Step("GET", "/v1/conversations/{conv}/items"),
)
_OTHERS: Final = (
    Step("GET", "/health"),
    Step("GET", "/v1/models"),
    Step("GET", "/v1/models/m"),
    Step("GET", "/api/tags"),
    Step("POST", "/v1/responses/input_tokens", _ask("How long is this?")),
    Step("POST", "/v1/embeddings", _ask(_TEXTS[0])),
    Step("POST", "/v1/embeddings", {"model": "m", "input": _TEXTS, "encoding_format": "base64"}),
    Step("POST", "/api/embed", {"model": "m", "input": _TEXTS}),
    Step("POST", "/api/embeddings", {"model": "m", "prompt": _TEXTS[0]}),
    Step("POST", "/v1/rerank", {"model": "m", "query": "a fox", "documents": _TEXTS}),
)
_REFUSED: Final = (
    Step("POST", "/v1/responses", {"model": "unknown", "input": "Hi"}),
    Step("POST", "/v1/responses", {"input": "Hi"}),
    Step("POST", "/v1/responses", _ask("Hi", temperature="hot")),
    Step("POST", "/v1/chat/completions", {"model": "m", "messages": []}),
    Step("POST", "/v1/messages", {"model": "m", "messages": [{"role": "user"}]}),
    Step("POST", "/api/chat", {"model": "unknown", "messages": []}),
    Step("GET", "/v1/responses/resp_unknown"),
    Step("GET", "/v1/unknown"),
    Step("PUT", "/v1/responses", {}),
)

STEPS: Final[dict[str, tuple[Step, ...]]] = {
    "stored responses": _STORED,
    "conversations": _CONVERSATIONS,
    "other operations": _OTHERS,
    "refused requests": _REFUSED,
}
"""By the name of the trace."""
