"""Vector stores, their files and batches, as the database and the API have them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from router.vector_stores.chunking import ChunkingStrategy

__all__ = ["FileBatch", "FileCounts", "VectorStore", "VectorStoreFile"]

FileStatus = Literal["in_progress", "completed", "failed", "cancelled", "removing"]

_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class FileCounts:
    """So many files of a store, or of a batch, have each status."""

    in_progress: int
    completed: int
    failed: int
    cancelled: int

    def as_object(self) -> dict[str, int]:
        """As the API has it."""
        counts = {name: getattr(self, name) for name in FileCounts.__slots__}
        return {**counts, "total": sum(counts.values())}


@dataclass(frozen=True, slots=True)
class VectorStore:
    """A store. Times are in unix seconds."""

    id: str
    owner: str
    name: str
    description: str | None
    created_at: int
    last_active_at: int
    expires_days: int | None
    expired: bool
    metadata: Mapping[str, str]
    counts: FileCounts
    usage_bytes: int

    @property
    def expires_at(self) -> int | None:
        """When it expires unless it is used before; None where it does not."""
        if self.expires_days is None:
            return None
        return self.last_active_at + self.expires_days * _DAY

    @property
    def is_expired(self) -> bool:
        """Whether its time is over, noticed by the sweep or not."""
        return self.expired or (self.expires_at is not None and self.expires_at < time.time())

    def as_object(self) -> dict[str, Any]:
        """The VectorStore object of the API."""
        status = "in_progress" if self.counts.in_progress else "completed"
        days = self.expires_days
        return {
            "id": self.id,
            "object": "vector_store",
            "created_at": self.created_at,
            "name": self.name,
            "description": self.description,
            "usage_bytes": self.usage_bytes,
            "file_counts": self.counts.as_object(),
            "status": "expired" if self.is_expired else status,
            "expires_after": None if days is None else {"anchor": "last_active_at", "days": days},
            "expires_at": self.expires_at,
            "last_active_at": self.last_active_at,
            "metadata": dict(self.metadata),
        }


@dataclass(frozen=True, slots=True)
class VectorStoreFile:
    """A file in a store. ``attempts`` counts how often its ingestion was begun."""

    store: str
    file: str
    owner: str
    place: str
    filename: str
    batch: str | None
    created_at: int
    status: FileStatus
    error_code: str | None
    error_message: str | None
    usage_bytes: int
    attributes: Mapping[str, Any]
    strategy: ChunkingStrategy
    embedder: str | None
    fence: int
    attempts: int

    def as_object(self) -> dict[str, Any]:
        """The VectorStoreFile object of the API."""
        error = None
        if self.error_code is not None:
            error = {"code": self.error_code, "message": self.error_message or ""}
        return {
            "id": self.file,
            "object": "vector_store.file",
            "usage_bytes": self.usage_bytes,
            "created_at": self.created_at,
            "vector_store_id": self.store,
            "status": self.status,
            "last_error": error,
            "chunking_strategy": {
                "type": "static",
                "static": {
                    "max_chunk_size_tokens": self.strategy.size,
                    "chunk_overlap_tokens": self.strategy.overlap,
                },
            },
            "attributes": dict(self.attributes),
        }


@dataclass(frozen=True, slots=True)
class FileBatch:
    """Files that were added together."""

    id: str
    store: str
    created_at: int
    cancelled: bool
    counts: FileCounts

    def as_object(self) -> dict[str, Any]:
        """The VectorStoreFileBatch object of the API."""
        status = "in_progress" if self.counts.in_progress else "completed"
        return {
            "id": self.id,
            "object": "vector_store.files_batch",
            "created_at": self.created_at,
            "vector_store_id": self.store,
            "status": "cancelled" if self.cancelled else status,
            "file_counts": self.counts.as_object(),
        }
