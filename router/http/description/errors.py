"""Error envelopes, one for each API, and what each status says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from router.dialects.json_schema import Schema, any_of, constant, nullable, ref, string, told
from router.dialects.messages.schema import error_body as anthropic_body
from router.dialects.ollama.schema import error_body as ollama_body
from router.errors import NotFound

__all__ = ["ASKING", "ENVELOPES", "EXAMPLES", "HEADERS_OF", "KEYED", "MEANINGS", "READING"]

KEYED: Final = (401, 500, 503)
"""What everything may answer that asks for a key."""

READING: Final = (400, 413, *KEYED)
"""What everything may answer that reads a body, too."""

ASKING: Final = (*READING, 404, 429, 501, 502, 504)
"""What everything may answer for which an endpoint is asked."""

MEANINGS: Final[Mapping[int, str]] = {
    400: "The request is at fault; `param` names the field.",
    401: "No key, or one that is not known, has expired or is revoked.",
    403: "Closed, as it is configured.",
    404: "There is no such object; or no endpoint serves the model, or none that the key may use.",
    409: "What others do stands against it.",
    413: "The body exceeds `server.max_body_mb` or `server.max_body_values`; or a file those of "
    "`files`.",
    415: "The body is not declared as what it has to be.",
    429: "More than the key's limits or budgets allow, or than the endpoint's.",
    500: "A fault of the router's own; its log has more under the request id.",
    501: "Nobody here can do it.",
    502: "The endpoint failed.",
    503: "Nobody can answer now: no slot, no endpoint, no database, or the router is stopping.",
    504: "The endpoint took too long, or `only-if-cached` found no answer.",
    507: "The router's disk is full.",
}

HEADERS_OF: Final[Mapping[int, tuple[str, ...]]] = {
    401: ("WWW-Authenticate",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}
"""Headers of an error of this status."""

ENVELOPES: Final[Mapping[str, Schema]] = {
    "Error": told(
        {
            "error": told(
                {
                    "message": string("For people; says what to do about it."),
                    "type": string("`invalid_request_error`, `rate_limit_error`, `server_error` …"),
                    "param": nullable(string("The path of the field at fault.")),
                    "code": nullable(string("For machines: `invalid_type`, `model_not_found` …")),
                },
                additionalProperties=False,
            )
        },
        additionalProperties=False,
    ),
    "AnthropicError": told(
        {
            "type": constant("error"),
            "error": told({"type": string("`not_found_error` …"), "message": string()}),
            "request_id": nullable(string()),
        }
    ),
    "OllamaError": told({"error": string()}, additionalProperties=False),
    "EitherError": any_of(
        ref("Error"),
        ref("AnthropicError"),
        description="The second with the header `anthropic-version`.",
    ),
}

_NOT_FOUND: Final = NotFound.of("Response", "resp_0")

EXAMPLES: Final[Mapping[str, Any]] = {
    "Error": _NOT_FOUND.envelope(),
    "AnthropicError": anthropic_body(404, _NOT_FOUND.message, "req_0"),
    "OllamaError": ollama_body(_NOT_FOUND),
    "EitherError": _NOT_FOUND.envelope(),
}
