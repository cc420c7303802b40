"""The settings of vector stores: what makes their vectors, and their limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from router.settings.cache import EmbedderSettings
from router.settings.section import Section
from router.settings.values import Count, Seconds, Text, wrong

__all__ = ["VectorStoresSettings"]


class VectorStoresSettings(Section):
    """Vector stores (`/v1/vector_stores`), and `file_search` in them; needs `files.path` and the
    extra `vector-stores`.
    """

    embedder: Literal["local"] | EmbedderSettings = "local"
    """`local` (English; needs the extra `semantic`), or an endpoint and a model there. Another one
    has all files embedded again at the next start.
    """
    embedder_tokens: Annotated[Count, Field(ge=64, le=32_768)] = 1000
    """The longest text that the endpoint's model is sent, in tokens as they are estimated; a longer
    piece has several vectors.
    """
    embedder_timeout: Seconds = 60.0
    """The longest that a request to the endpoint may take."""
    index: Text | None = None
    """The file of the index, with a state in SQLite; by default beside the state's, with `-vectors`
    behind its name. With PostgreSQL the index is in the same database.
    """
    ingest_parallel: Count = 2
    """Files that each worker ingests at once; others wait."""
    ingest_timeout: Seconds = 1800.0
    """The longest that the ingestion of one file may take."""
    max_stores: Count = 1000
    """The most vector stores of one key."""
    max_files: Count = 10_000
    """The most files in one vector store."""
    max_chunks: Count = 20_000
    """The most pieces that a file may be cut into; one with more fails."""

    @field_validator("embedder", mode="before")
    @classmethod
    def _local_or_an_endpoint(cls, value: Any) -> Any:
        if value == "local" or isinstance(value, EmbedderSettings):
            return value
        if isinstance(value, Mapping) and value.keys() == EmbedderSettings.model_fields.keys():
            return value
        raise wrong('must be "local", or an endpoint and its model: {endpoint: NAME, model: NAME}')
