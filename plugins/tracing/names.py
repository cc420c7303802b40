"""What spans and metrics carry, by OpenTelemetry's conventions for generative AI.

Those conventions are not final. The names are therefore written out here, in one place, and not
taken from a package, in which they move about. No prompt and no answer is in any of them.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from router.plugin import (
    NANO,
    AnswerKind,
    EndpointSettings,
    Exchange,
    Provenance,
    UsageRecord,
)

__all__ = [
    "CHAT",
    "ERROR",
    "MODEL",
    "OPERATION",
    "OPERATIONS",
    "PROVIDER",
    "RESPONSE_MODEL",
    "SERVER",
    "Attributes",
    "of_attempt",
    "of_record",
    "of_request",
    "of_result",
    "title",
]  # fmt: skip

Attributes = dict[str, str | int | float | bool]

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
SERVER: Final = "server.address"
ERROR: Final = "error.type"

CHAT: Final = "chat"
OPERATIONS: Final = {
    AnswerKind.RESPONSE: CHAT,
    AnswerKind.CHAT: CHAT,
    AnswerKind.COMPACT: "compact",
    AnswerKind.COMPLETIONS: "text_completion",
    AnswerKind.EMBEDDINGS: "embeddings",
    AnswerKind.RERANK: "rerank",
    AnswerKind.COUNT: "count_tokens",
}
"""What is traced, and what it is called."""

_PROVIDERS: Final = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "api.cohere.com": "cohere",
    "api.cohere.ai": "cohere",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
    "generativelanguage.googleapis.com": "gcp.gemini",
}
_PROVIDERS_WITHIN: Final = {
    ".openai.azure.com": "azure.ai.openai",
    ".services.ai.azure.com": "azure.ai.inference",
    ".amazonaws.com": "aws.bedrock",
    ".googleapis.com": "gcp.vertex_ai",
}
_PORTS: Final = {"http": 80, "https": 443}
_SHOWN: Final = 200
"""Characters of a name that a client gave."""


def title(kind: AnswerKind, model: str | None) -> str:
    """A span's name."""
    return f"{OPERATIONS[kind]} {model[:_SHOWN]}" if model else OPERATIONS[kind]


def of_request(exchange: Exchange) -> Attributes:
    """What is known of a request at its beginning."""
    found: Attributes = {
        OPERATION: OPERATIONS[exchange.request.operation.kind],
        "gen_ai.request.stream": exchange.stream,
        "http.request.method": exchange.request.method,
        "http.route": exchange.request.route,
        "pointsman.request.id": exchange.request.id,
        "pointsman.key": exchange.context.caller,
    }
    if exchange.model:
        found[MODEL] = exchange.model[:_SHOWN]
    return found


def of_result(exchange: Exchange) -> Attributes:
    """What is known of it at its end."""
    found: Attributes = {
        "http.response.status_code": exchange.result.status,
        "pointsman.attempts": exchange.result.attempts,
    }
    if exchange.result.outcome is not None:
        found["pointsman.outcome"] = exchange.result.outcome.value
    if exchange.result.endpoint is not None:
        found["pointsman.endpoint"] = exchange.result.endpoint
        found[RESPONSE_MODEL] = exchange.shown_model[:_SHOWN]
    if exchange.result.cache is not None:
        found["pointsman.cache"] = exchange.result.cache
    if exchange.result.error_code is not None:
        found[ERROR] = exchange.result.error_code
    if exchange.result.first_output is not None:
        found["pointsman.first_output"] = exchange.result.first_output - exchange.request.started
    return found


def of_tool(name: str, kind: str, server: str, error: str | None) -> Attributes:
    """What is known of a call of a tool that the router ran."""
    found: Attributes = {
        OPERATION: "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "extension",
        "pointsman.tool": kind,
        "pointsman.tool.server": server,
    }
    if error is not None:
        found[ERROR] = error
    return found


def of_attempt(exchange: Exchange, endpoint: EndpointSettings, model: str) -> Attributes:
    """What is known of an attempt at its beginning."""
    url = urlsplit(endpoint.url)
    host = url.hostname or ""
    return {
        OPERATION: OPERATIONS[exchange.request.operation.kind],
        PROVIDER: _provider(host, endpoint.dialect),
        MODEL: model[:_SHOWN],
        "gen_ai.request.stream": exchange.stream,
        SERVER: host,
        "server.port": url.port or _PORTS[url.scheme],
        "pointsman.endpoint": endpoint.name,
    }


def of_record(record: UsageRecord) -> Attributes:
    """What is known of it at its end. Cost is in USD; what is not known is left out."""
    found: Attributes = {
        "pointsman.attempt.kind": record.kind.value,
        "pointsman.outcome": record.outcome,
        "pointsman.usage.provenance": record.provenance.value,
    }
    tokens = record.tokens
    if tokens.total or record.provenance is Provenance.REPORTED:
        found["gen_ai.usage.input_tokens"] = tokens.input
        found["gen_ai.usage.output_tokens"] = tokens.output
    if tokens.cached:
        found["gen_ai.usage.cache_read.input_tokens"] = tokens.cached
    if tokens.reasoning:
        found["gen_ai.usage.reasoning.output_tokens"] = tokens.reasoning
    if record.cost is not None:
        found["pointsman.cost"] = record.cost / NANO
    if record.first_token is not None:
        found["gen_ai.response.time_to_first_chunk"] = record.first_token
    if record.response is not None:
        found["gen_ai.response.id"] = record.response
    if (error := error_of(record)) is not None:
        found[ERROR] = error
    return found


def error_of(record: UsageRecord) -> str | None:
    """Why an attempt failed, if it did."""
    return record.error or (record.outcome if record.outcome != "ok" else None)


def _provider(host: str, dialect: str) -> str:
    """Who it is, or else, as the conventions want it, whose way of speaking it has."""
    if (known := _PROVIDERS.get(host)) is not None:
        return known
    for end, name in _PROVIDERS_WITHIN.items():
        if host.endswith(end):
            return name
    return "ollama" if dialect == "ollama" else "openai"
