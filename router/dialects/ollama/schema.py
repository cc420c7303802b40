"""What Ollama's API looks like on the wire: its errors, its lines, its times, its images."""

from __future__ import annotations

import binascii
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from router.dialects.api_format import ApiFormat, encode_line
from router.dialects.parameters import wrong_type
from router.errors import InvalidRequest, RouterError, UpstreamFailure
from router.response.frame import Frame

__all__ = [
    "NDJSON",
    "OLLAMA",
    "OPTIONS",
    "WHOLE_OPTIONS",
    "error_body",
    "image_url",
    "line",
    "listed_models",
    "timestamp",
]

NDJSON: Final = "application/x-ndjson"

_STREAM_HEADERS: Final[Mapping[str, str]] = {
    "Content-Type": NDJSON,
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}
WHOLE_OPTIONS: Final = frozenset(
    {"mirostat", "num_keep", "num_predict", "repeat_last_n", "seed", "top_k"}
)
OPTIONS: Final = frozenset(
    {
        "frequency_penalty",
        "min_p",
        "mirostat_eta",
        "mirostat_tau",
        "presence_penalty",
        "repeat_penalty",
        "stop",
        "temperature",
        "top_p",
        "typical_p",
    }
)
"""Options of the sampler; ``WHOLE_OPTIONS`` are those that are whole numbers."""

_BILLION: Final = 1_000_000_000

_LINE_BREAKS: Final = {ord("\r"): None, ord("\n"): None}
"""Ollama passes over them; ``base64`` writes them."""

_MEDIA_TYPES: Final = (
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
)
"""How images begin, in base64. What begins otherwise is left to the endpoint, as a PNG."""


def error_body(error: RouterError) -> dict[str, Any]:
    """An error: a message, and nothing beside. The field at fault is named if the message does not
    do so.
    """
    message = error.message
    if error.param is not None and error.param not in message:
        message = f"{message} (field: {error.param})"
    return {"error": message}


def line(value: Mapping[str, Any]) -> Frame:
    """A line of a stream."""
    return Frame("", orjson.dumps(value))


def timestamp(nanoseconds: int) -> str:
    """A Unix time in nanoseconds as RFC 3339 with all of them, in UTC."""
    seconds, rest = divmod(nanoseconds, _BILLION)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def image_url(value: Any, param: str) -> str:
    """An image, base64 as Ollama takes it, as a ``data:`` URL; raises InvalidRequest."""
    if type(value) is not str:
        raise wrong_type(param, "a string of base64", value)
    value = value.translate(_LINE_BREAKS)
    try:
        binascii.a2b_base64(value, strict_mode=True)
    except ValueError:  # binascii.Error, and what is not ASCII
        value = ""
    if not value:
        raise InvalidRequest(
            f"Invalid '{param}': expected an image as base64, without a 'data:' prefix.",
            code="invalid_value",
            param=param,
        )
    kinds = (kind for start, kind in _MEDIA_TYPES if value.startswith(start))
    return f"data:{next(kinds, 'image/png')};base64,{value}"


def listed_models(listing: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The models of a list, with the names they go by; raises UpstreamFailure when it is none."""
    models = listing.get("models") if isinstance(listing, dict) else None
    if not isinstance(models, list):
        raise UpstreamFailure("The list of models has no 'models'.")
    for model in models:
        if isinstance(model, dict):
            name = model.get("name") or model.get("model")
            if isinstance(name, str):
                yield name, model


_NAMES: Final[Mapping[str, str]] = {
    **{name: f"options.{name}" for name in (*WHOLE_OPTIONS, *OPTIONS)},
    "max_output_tokens": "options.num_predict",
    "reasoning.effort": "think",
    "text.format": "format",
}

OLLAMA: Final = ApiFormat(
    error_body,
    lambda error: line(error_body(error)),
    _STREAM_HEADERS,
    encode_line,
    silence=b"",
    names=_NAMES,
)
"""Ollama's API: streams are lines of JSON, and nothing may stand between them."""
