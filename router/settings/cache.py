"""The settings of the response cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, SecretStr, field_validator

from router.settings.section import Section
from router.settings.values import CacheUrl, Count, Seconds, SecondsOrZero, Share, Text, wrong

__all__ = ["CacheSettings", "EmbedderSettings", "SelfCheckSettings", "SemanticSettings"]


class EmbedderSettings(Section):
    """An endpoint, by its name, and the model there that makes embeddings."""

    endpoint: Text
    """The endpoint that makes embeddings."""
    model: Text
    """Its embedding model."""


class SelfCheckSettings(Section):
    """Hits that are sent upstream all the same, to compare the answers."""

    share: Share = 0.02
    """The share of semantic hits that is compared."""
    limit: Share = 0.05
    """With a larger share of wrong hits the semantic tier switches itself off."""


class SemanticSettings(Section):
    """Answers to the same question in other words."""

    enabled: bool = False
    """Whether such questions are answered from the cache."""
    threshold: Share = 0.66
    """The least similarity of two questions, from 0 to 1."""
    embedder: Literal["local"] | EmbedderSettings = "local"
    """`local` (needs the extra `semantic`), or an endpoint and a model there."""
    sampled: bool = False
    """Whether requests with a temperature above 0 take part."""
    self_check: SelfCheckSettings = SelfCheckSettings()

    @field_validator("embedder", mode="before")
    @classmethod
    def _local_or_an_endpoint(cls, value: Any) -> Any:
        if value == "local" or isinstance(value, EmbedderSettings):
            return value
        if isinstance(value, Mapping) and value.keys() == EmbedderSettings.model_fields.keys():
            return value
        raise wrong('must be "local", or an endpoint and its model: {endpoint: NAME, model: NAME}')


def _off(value: Any) -> Any:
    """YAML takes ``off`` for false where it is not in quotes."""
    return "off" if value is False else value


def _cached_tool(value: str) -> str:
    kind, _, label = value.partition(":")
    if value != "web_search" and not (kind == "mcp" and label):
        raise wrong('must be "web_search", or "mcp:" and the label of a server')
    return value


CachedTool = Annotated[str, AfterValidator(_cached_tool)]


class CacheSettings(Section):
    """Answers given again instead of asked for again."""

    mode: Annotated[Literal["off", "on-request", "always"], BeforeValidator(_off)] = "off"
    """`on-request` serves requests that ask for the cache, `always` all that do not refuse it."""
    store: CacheUrl = SecretStr("memory://")
    """`memory://`, `disk://PATH`, or `redis://HOST:PORT/0` for several routers."""
    ttl: Seconds = 86_400.0
    """The longest that an answer is kept."""
    max_bytes: Count = 256 * 1024 * 1024
    """The room for all answers; then the least recently used go."""
    scope: Literal["key", "shared"] = "key"
    """Whose answers a key is given: its own (`key`), or everybody's (`shared`)."""
    replay_rate: SecondsOrZero = 0.0
    """How fast a hit is streamed, in tokens per second; 0 is at once."""
    tools: tuple[CachedTool, ...] = ()
    """Hosted tools with which answers are kept, for questions in the same words: `web_search`, or
    `mcp:LABEL` for a server of `tools.mcp.servers` whose tools change nothing.
    """
    semantic: SemanticSettings = SemanticSettings()
