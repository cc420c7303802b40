"""Headers of answers, and of requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.dialects.json_schema import Schema, enum, integer, number, string
from router.http.description.parts import header

__all__ = ["CACHED", "CACHE_CONTROL", "HEADERS", "REQUEST_ID", "SERVED"]


def _header(schema: Schema, description: str, *, always: bool = False) -> dict[str, Any]:
    return {"description": description, "schema": schema} | ({"required": True} if always else {})


_COUNT: Final = integer(0)

HEADERS: Final[Mapping[str, dict[str, Any]]] = {
    "X-Request-Id": _header(
        string(pattern="^[A-Za-z0-9._:-]{1,64}$"),
        "The request's own id, from its `X-Request-Id` or made here; it stands in the log.",
        always=True,
    ),
    "request-id": _header(string(), "The same for clients of Anthropic's API.", always=True),
    "X-Pointsman-Endpoint": _header(string(), "The name of the endpoint that answered."),
    "X-Pointsman-Attempts": _header(_COUNT, "How many times an endpoint was asked."),
    "X-Pointsman-Dropped-Parameters": _header(
        string(),
        "What of the request could not be sent to the endpoint, with commas between. With "
        "`server.unsupported: strict` such a request is refused instead.",
    ),
    "X-Pointsman-Fallback": _header(string(), "The model that answered in place of another."),
    "X-Pointsman-Truncated": _header(
        _COUNT,
        "How many items `truncation: auto`, or messages `server.chat_truncation: auto`, left out.",
    ),
    "X-Pointsman-Compaction": _header(
        enum("failed"), "The conversation was to be compacted, and is answered as it is."
    ),
    "X-Pointsman-Reasoning-Dropped": _header(
        _COUNT, "How many reasoning items of another account's were left out."
    ),
    "X-Pointsman-Store": _header(
        enum("degraded"), "The answer could not be stored: the database does not answer."
    ),
    "X-Pointsman-Estimated": _header(
        enum("true"), "The tokens are estimated: no endpoint counts them."
    ),
    "X-Pointsman-Version": _header(string(), "The router's version."),
    "X-Cache": _header(enum("HIT", "MISS", "BYPASS"), "What the response cache did."),
    "X-Cache-Tier": _header(string(), "Where a hit was found: `exact` or `semantic`."),
    "X-Cache-Entry": _header(string(), "The key of the entry that answered."),
    "X-Cache-Similarity": _header(
        number(-1, 1.001), "How similar the stored question is, of a semantic hit."
    ),
    "X-Cache-Reason": _header(string(), "Why the cache was passed by."),
    "Age": _header(_COUNT, "Seconds since the answer was stored, of a hit."),
    "Retry-After": _header(_COUNT, "Seconds after which to try again."),
    "WWW-Authenticate": _header(string(), "How to send a key: `Bearer`."),
    "Cache-Control": _header(string(), "Whether the answer may be kept."),
    "ETag": _header(string(), "Names this version; send it as `If-None-Match`.", always=True),
    **{
        f"x-ratelimit-{part}-{what}": _header(string(), f"{words} {what} per minute.")
        for part, words in (
            ("limit", "The key's limit of"),
            ("remaining", "What is left of the key's"),
            ("reset", "When nothing is missing any more (`1.5s`, `6m0s`) of the key's"),
        )
        for what in ("requests", "tokens")
    },
}
"""Each by its name."""

CACHED: Final = (
    "X-Cache", "X-Cache-Tier", "X-Cache-Entry", "X-Cache-Similarity", "X-Cache-Reason", "Age"
)  # fmt: skip
_LIMITS: Final = tuple(name for name in HEADERS if name.startswith("x-ratelimit-"))
SERVED: Final = (
    "X-Pointsman-Endpoint", "X-Pointsman-Attempts", "X-Pointsman-Dropped-Parameters",
    "X-Pointsman-Fallback", *_LIMITS,
)  # fmt: skip
"""Of an answer that an endpoint made."""

REQUEST_ID: Final = header(
    "X-Request-Id",
    string(),
    "An id for the request, of up to 64 letters, digits and `._:-`. Anything else is disregarded.",
)
CACHE_CONTROL: Final = header(
    "Cache-Control",
    string(),
    "What the response cache may do: `no-cache`, `no-store`, `max-age=SECONDS`, `only-if-cached`.",
)
