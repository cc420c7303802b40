"""Rerankings in the form of Jina and Cohere, which vLLM and llama.cpp speak, too.

Who answers with nothing but a list (SGLang, Text Embeddings Inference) has it brought to that form.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from router.dialects.embeddings.decoder import WholeBodyDecoder
from router.dialects.model_name import ModelName
from router.errors import UpstreamFailure
from router.response.decoder import check_reported
from router.response.frame import load_object
from router.response.tokens import from_rerank

__all__ = ["RerankDecoder"]

_WHAT: Final = "a reranking"


class RerankDecoder(WholeBodyDecoder):
    """Passes an answer on as it came, unless it is nothing but a list, but for the name of the
    model, which is ``model``.
    """

    def __init__(self, body: dict[str, Any], model: str) -> None:
        super().__init__()
        self._documents: list[Any] = body["documents"]
        self._top: int | None = body.get("top_n")
        self._shows = bool(body.get("return_documents"))
        self._model = model

    def whole(self, body: bytes) -> bytes:
        """See ``StreamDecoder.whole``."""
        if body.lstrip()[:1] == b"[":
            answer = self._of_list(_array(body))
            body = orjson.dumps(answer)
        else:
            answer = load_object(body, _WHAT)
            check_reported(answer)
            self._check(answer.get("results"), "relevance_score")
            body = ModelName(self._model).put(body, answer)
        self.usage = from_rerank(answer)
        return body

    def _of_list(self, ranked: list[Any]) -> dict[str, Any]:
        self._check(ranked, "score")
        ranked.sort(key=lambda one: one["score"], reverse=True)
        results = []
        for one in ranked[: self._top]:
            result: dict[str, Any] = {"index": one["index"], "relevance_score": one["score"]}
            if self._shows:
                document = self._documents[one["index"]]
                result["document"] = {"text": document} if isinstance(document, str) else document
            results.append(result)
        answer: dict[str, Any] = {"model": self._model, "results": results}
        tokens = [_tokens(one) for one in ranked]
        if all(count is not None for count in tokens):
            answer["usage"] = {"total_tokens": sum(filter(None, tokens))}
        return answer

    def _check(self, results: Any, score: str) -> None:
        """Raise UpstreamFailure for what is no ranking of these documents."""
        if not isinstance(results, list):
            raise UpstreamFailure("The endpoint sent a reranking without 'results'.")
        seen = set()
        for result in results:
            place = result.get("index") if isinstance(result, dict) else None
            if type(place) is not int or not 0 <= place < len(self._documents) or place in seen:
                raise UpstreamFailure(
                    "The endpoint sent a reranking of documents that it was not given."
                )
            if type(result.get(score)) not in (int, float):
                raise UpstreamFailure("The endpoint sent a reranking without scores.")
            seen.add(place)


def _array(body: bytes) -> list[Any]:
    try:
        ranked: list[Any] = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise UpstreamFailure(f"The endpoint sent {_WHAT} that is not valid JSON.") from exc
    return ranked


def _tokens(one: dict[str, Any]) -> int | None:
    """What SGLang says that a document took."""
    meta = one.get("meta_info")
    count = meta.get("prompt_tokens") if isinstance(meta, dict) else None
    return count if type(count) is int and count >= 0 else None
