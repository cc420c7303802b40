"""The settings of the response cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, SecretStr, field_validator

from router.settings.section import Section
from router.settings.values import CacheUrl, Count, Seconds, SecondsOrZero, Share, Text, wrong

__all__ = ["CacheSettings", "EmbedderSettings", "SelfCheckSettings", "SemanticSettings"]


class EmbedderSettings(Section):
    """An endpoint, by its name, and the model there that makes embeddings."""

    endpoint: Text
    model: Text


class SelfCheckSettings(Section):
    """How the semantic tier is checked against the truth: ``share`` of its hits is also sent
    upstream and compared. Where more than ``limit`` of them turn out to be wrong the tier switches
    itself off.
    """

    share: Share = 0.02
    limit: Share = 0.05


class SemanticSettings(Section):
    """The semantic tier: questions that say the same in other words.

    ``threshold`` is the least similarity of two questions. ``embedder`` is ``local`` or an
    endpoint and its model. ``sampled`` lets requests with a temperature above 0 take part.
    """

    enabled: bool = False
    threshold: Share = 0.66
    embedder: Literal["local"] | EmbedderSettings = "local"
    sampled: bool = False
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


class CacheSettings(Section):
    """Answers that are given again instead of being asked for again.

    ``mode``: ``on-request`` is for requests that ask for it, ``always`` for all that do not refuse.
    ``store`` is ``memory://``, ``disk://PATH`` or ``redis://…``. An answer is kept for ``ttl``
    seconds, and as long as there is room in ``max_bytes``. ``scope``: whether an answer is for the
    key that asked only, or shared by all keys. ``replay_rate`` is how fast a hit is streamed, in
    tokens per second; 0 is at once.
    """

    mode: Annotated[Literal["off", "on-request", "always"], BeforeValidator(_off)] = "off"
    store: CacheUrl = SecretStr("memory://")
    ttl: Seconds = 86_400.0
    max_bytes: Count = 256 * 1024 * 1024
    scope: Literal["key", "shared"] = "key"
    replay_rate: SecondsOrZero = 0.0
    semantic: SemanticSettings = SemanticSettings()
