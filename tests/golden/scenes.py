"""What is asked in every API, and what the endpoint then answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from router.settings.schema import Dialect
from tests.matrix.asking import Ask
from tests.support.upstream import Script, Wire, streamed, whole

__all__ = ["COLUMNS", "PAIRS", "SCENES", "Scene", "answer"]

_ANSWERS: Final = Path(__file__).parent / "answers"
_KINDS: Final[dict[Dialect, str]] = {
    "responses": "text/event-stream; charset=utf-8",
    "chat": "text/event-stream; charset=utf-8",
    "ollama": "application/x-ndjson",
    "messages": "text/event-stream; charset=utf-8",
}

COLUMNS: Final[dict[str, Dialect]] = {
    "responses": "responses",
    "responses only": "responses",
    "chat": "chat",
    "ollama": "ollama",
    "messages": "messages",
}
"""The kinds of endpoints, and the dialects they are configured with: the second one has no
``/v1/chat/completions`` and no ``/v1/completions``.
"""

_TRANSLATED: Final = ("Responses", "Anthropic Messages", "Ollama chat", "Ollama generate")
_PASSED_ON: Final = ("Chat Completions", "Completions")
PAIRS: Final = (
    *((api, column) for api in _TRANSLATED for column in ("responses", "chat", "ollama")),
    *((api, "messages") for api in (*_TRANSLATED, "Chat Completions")),
    *((api, column) for api in _PASSED_ON for column in ("responses only", "chat", "ollama")),
)
"""An API in front and a kind of endpoint behind. What is passed on as it came is the same at every
endpoint that has its path.
"""


@dataclass(frozen=True)
class Scene:
    """``answer`` is the file with what the endpoint says; ``refusal`` a status and an error that
    it answers instead; ``cut`` whether it breaks off halfway. ``fields`` go into the body.
    """

    ask: Ask
    answer: str = "text"
    refusal: tuple[int, dict[str, Any]] | None = None
    cut: bool = False
    fields: dict[str, Any] = field(default_factory=dict)


_WEATHER: Final = "What is the weather in Paris and Rome?"
_INVALID: Final = {
    "message": "temperature must be at most 2",
    "type": "invalid_request_error",
    "param": "temperature",
    "code": "integer_above_max_value",
}
_BUSY: Final = {"message": "out of memory", "type": "server_error", "param": None, "code": None}

SCENES: Final[dict[str, Scene]] = {
    "text": Scene(Ask("Greet me")),
    "settings": Scene(Ask("Greet me"), fields={"temperature": 0, "top_p": 0.5, "seed": 7}),
    "dropped parameters": Scene(Ask("Greet me"), fields={"temprature": 0}),
    "reasoning": Scene(Ask("Think a little", reasoning=True), "reasoning"),
    "tool calls": Scene(Ask(_WEATHER, tools=True), "tools"),
    "tool results": Scene(Ask(_WEATHER, tools=True, result="Sunny")),
    "image": Scene(Ask("What is this?", image=True)),
    "schema": Scene(Ask("3 days in Paris", schema=True)),
    "logprobs": Scene(Ask("Are you sure?", logprobs=True), "logprobs"),
    "length": Scene(Ask("Count to 30"), "length"),
    "refused": Scene(Ask("What is wrong?"), refusal=(400, _INVALID)),
    "overloaded": Scene(Ask("Are you there?"), refusal=(503, _BUSY)),
    "broken": Scene(Ask("What comes next?"), cut=True),
}
"""By name, in the order in which they are asked of one router."""


def answer(column: str, path: str, scene: Scene, asked: dict[str, Any]) -> Script:
    """What the endpoint answers to this body on this path of its own."""
    dialect = COLUMNS[column]
    spoken = _spoken(dialect, path)
    if spoken is None or (column == "responses only" and spoken != "responses"):
        return _file(path, asked)
    if scene.refusal:
        status, error = scene.refusal
        said = error["message"] if dialect == "ollama" else error
        around = {"type": "error"} if dialect == "messages" else {}
        return whole(orjson.dumps({**around, "error": said}), status)
    stream = asked.get("stream", dialect == "ollama")
    said = "text" if spoken == "completions" else scene.answer
    data = (_ANSWERS / f"{spoken}.{said}.{'stream' if stream else 'whole'}").read_bytes()
    if stream:
        return _stream(data, _KINDS[dialect], cut=scene.cut)
    return _half(data) if scene.cut else whole(data)


def _spoken(dialect: Dialect, path: str) -> str | None:
    """How the names of the answers to a generation begin; None for other operations."""
    if path.endswith("/chat/completions"):
        return "chat"
    if path.endswith("/completions"):
        return "completions"
    return (
        dialect
        if path.endswith(("/responses", "/messages", "/api/chat", "/api/generate"))
        else None
    )


def _file(path: str, asked: dict[str, Any]) -> Script:
    """The answer to an operation that generates nothing, or that the endpoint does not have."""
    several = "s" if isinstance(asked.get("input"), list) else ""
    files = {
        "/v1/embeddings": f"chat.embedding{several}",
        "/api/embed": f"ollama.embedding{several}",
        "/v1/rerank": "chat.rerank",
        "/v1/responses/input_tokens": "responses.input_tokens",
    }
    if path not in files:
        return whole(orjson.dumps({"error": {"message": "Not Found", "code": 404}}), 404)
    return whole((_ANSWERS / files[path]).read_bytes())


def _stream(data: bytes, kind: str, *, cut: bool) -> Script:
    end = b"\n" if kind == "application/x-ndjson" else b"\n\n"
    pieces = [piece + end for piece in data.split(end) if piece]
    if cut:
        return streamed(*pieces[: len(pieces) // 2], kind=kind, then=_hang_up)
    return streamed(*pieces, kind=kind)


async def _hang_up(wire: Wire) -> None:
    wire.close()


def _half(data: bytes) -> Script:
    """The first half of an answer that was to be whole."""

    async def script(wire: Wire) -> None:
        kind = {"Content-Type": "application/json"}
        wire.head(200, kind, framing="length", length=len(data))
        wire.raw(data[: len(data) // 2])
        wire.close()

    return script
