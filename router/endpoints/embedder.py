"""An endpoint of the fleet that makes embeddings, for what the router itself compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

from cache.embedder import EmbedderError
from router.core.upstream import LoadRequest
from router.endpoints.endpoint import Endpoint
from router.errors import RouterError, UpstreamTimeout
from router.settings.cache import EmbedderSettings
from router.settings.words import install_extra

if TYPE_CHECKING:
    from cache.embedder import Vectors

__all__ = ["EmbeddingFailed", "EndpointEmbedder"]

_SECONDS: Final = 2.0
_LONGEST: Final = 1000
"""Characters of a text: what every model of embeddings reads whole."""

_MOST_TOKENS: Final = 10**12
"""An endpoint's number of tokens above it is no number of tokens."""


class EmbeddingFailed(EmbedderError):
    """A request for embeddings failed: ``code`` of the error; ``worked`` says that the endpoint may
    have had work with it.
    """

    def __init__(self, message: str, code: str, *, worked: bool) -> None:
        super().__init__(message)
        self.code = code
        self.worked = worked


class EndpointEmbedder:
    """Implements ``cache.embedder.Embedder``. ``find`` gives the endpoint as it is configured now;
    ``timeout`` is in seconds, ``model`` the endpoint's
    own name for it.

    Its requests take no slot: a model of embeddings is another one than those that answer.
    """

    def __init__(
        self,
        settings: EmbedderSettings,
        find: Callable[[str], Endpoint | None],
        timeout: float = _SECONDS,
    ) -> None:
        self.name = f"{settings.endpoint}/{settings.model}"
        self.dimensions = 0
        self.model = settings.model
        self._settings = settings
        self._find = find
        self._timeout = timeout

    async def start(self) -> None:
        """See ``Embedder.start``: whether the endpoint has the model is seen when it is asked."""
        try:
            import numpy  # noqa: F401
        except ImportError:
            raise EmbedderError(f"numpy is not installed; {install_extra('semantic')}") from None

    async def close(self) -> None:
        """See ``Embedder.close``: the connections are the endpoint's."""

    def refuses(self, text: str) -> str | None:
        """See ``Embedder.refuses``. Tokens that the model does not know are not told of."""
        return "too_long" if len(text) > _LONGEST else None

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """See ``Embedder.embed``."""
        vectors, _ = await self.ask(self.endpoint(), texts)
        return vectors

    def endpoint(self) -> Endpoint:
        """Raises EmbedderError where it is not configured any more."""
        endpoint = self._find(self._settings.endpoint)
        if endpoint is None:
            raise EmbedderError(f"there is no endpoint '{self._settings.endpoint}'")
        return endpoint

    async def ask(self, endpoint: Endpoint, texts: Sequence[str]) -> tuple[Vectors, int | None]:
        """The vectors, and the tokens of the texts as far as the endpoint reports them.

        Raises EmbeddingFailed.
        """
        import numpy as np

        of_ollama = endpoint.settings.dialect == "ollama"
        body = orjson.dumps({"model": self._settings.model, "input": list(texts)})
        request = LoadRequest("/api/embed" if of_ollama else "/embeddings", body)
        try:
            status, answer = await endpoint.transport.post(request, self._timeout)
        except RouterError as error:
            worked = isinstance(error, UpstreamTimeout)
            raise EmbeddingFailed(
                error.message, error.code or "upstream_error", worked=worked
            ) from None
        if status != 200:
            raise EmbeddingFailed(
                f"endpoint '{endpoint.name}' answered {status} to an embedding",
                "upstream_error",
                worked=False,
            )
        tokens = None
        try:
            said = orjson.loads(answer)
            tokens = _tokens(said, of_ollama)
            vectors = np.array(_vectors(said, of_ollama), dtype=np.float32)
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            lengths = vectors = np.zeros((0, 0), dtype=np.float32)
        if len(vectors) != len(texts) or not (np.isfinite(lengths).all() and lengths.all()):
            raise EmbeddingFailed(
                f"endpoint '{endpoint.name}' sent no embeddings",
                "upstream_error",
                worked=True,
            )
        self.dimensions = vectors.shape[1]
        unit: Vectors = vectors / lengths
        return unit, tokens


def _vectors(answer: Any, of_ollama: bool) -> Any:
    if of_ollama:
        return answer["embeddings"]
    return [one["embedding"] for one in sorted(answer["data"], key=lambda one: one["index"])]


def _tokens(answer: Any, of_ollama: bool) -> int | None:
    """None where it reports none."""
    usage = answer if of_ollama else answer.get("usage") or {}
    count = usage.get("prompt_eval_count" if of_ollama else "prompt_tokens")
    return count if type(count) is int and 0 < count <= _MOST_TOKENS else None
