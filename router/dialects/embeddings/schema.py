"""The bodies of ``POST /v1/embeddings``, ``/v1/completions`` and ``/v1/rerank``: validation.

What the router reads itself is checked, and what OpenAI's API says of the fields; what any other
field means is for the endpoint to judge. ``null`` counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from router.dialects.parameters import (
    Check,
    boolean,
    integer,
    missing,
    object_,
    one_of,
    string,
    wrong_type,
)
from router.errors import InvalidRequest

__all__ = [
    "MOST_ANSWERS",
    "MOST_DOCUMENTS",
    "MOST_INPUTS",
    "MOST_TOKEN",
    "PLAIN_FIELDS",
    "check_completions",
    "check_embeddings",
    "check_rerank",
    "inputs_of",
]

MOST_INPUTS: Final = 2048
"""OpenAI's limit for a batch."""

MOST_DOCUMENTS: Final = 10_000
"""Cohere's limit, the highest there is."""

MOST_TOKEN: Final = 2**32 - 1
"""The largest number of a token."""

MOST_ANSWERS: Final = 128
"""As many as OpenAI's API takes."""

_PARTS: Final = ("text", "image")
_TEXTS: Final = "a string, an array of strings, an array of tokens or an array of arrays of tokens"


def check_embeddings(body: Mapping[str, Any]) -> None:
    """Check the body of an embeddings request; raises InvalidRequest."""
    _check(body, _EMBEDDINGS, required=("model", "input"))


def check_completions(body: Mapping[str, Any]) -> None:
    """Check the body of a legacy completions request; raises InvalidRequest."""
    _check(body, _COMPLETIONS, required=("model", "prompt"))


def check_rerank(body: Mapping[str, Any]) -> None:
    """Check the body of a rerank request; raises InvalidRequest."""
    _check(body, _RERANK, required=("model", "query", "documents"))


def inputs_of(value: Any) -> list[Any]:
    """What a checked ``input``, or ``prompt``, has in it: each a string, or a list of tokens."""
    if type(value) is not list or (value and type(value[0]) is int):
        return [value]
    return value


def _check(body: Mapping[str, Any], fields: Mapping[str, Check], required: tuple[str, ...]) -> None:
    for name in required:
        if body.get(name) is None:
            raise missing(name)
    for name, check in fields.items():
        value = body.get(name)
        if value is not None:
            check(value, name)


def _model(value: Any, param: str) -> None:
    string(value, param)
    if not value:
        raise missing(param)


def _texts(*, may_be_empty: bool) -> Check:
    """A check for texts and tokens, alone or in a batch."""

    def check(value: Any, param: str) -> None:
        if type(value) is str:
            check_text(value, param)
            return
        if type(value) is not list:
            raise wrong_type(param, _TEXTS, value)
        if not value:
            raise _empty(param, "array")
        first = type(value[0])
        if first is int:
            _tokens(value, param)
            return
        if first is not str and first is not list:
            raise wrong_type(
                f"{param}[0]", "a string, an integer or an array of integers", value[0]
            )
        _bounded(value, param, MOST_INPUTS)
        check_one = check_text if first is str else _tokens
        for i, one in enumerate(value):
            if type(one) is not first:
                expected = "a string" if first is str else "an array of integers"
                raise wrong_type(f"{param}[{i}]", f"{expected}, like the first", one)
            check_one(one, f"{param}[{i}]")

    def check_text(value: Any, param: str) -> None:
        if not (value or may_be_empty):
            raise _empty(param, "string")

    return check


def _tokens(value: Any, param: str) -> None:
    if not value:
        raise _empty(param, "array")
    for i, token in enumerate(value):
        if type(token) is not int or not 0 <= token <= MOST_TOKEN:
            integer(0, MOST_TOKEN)(token, f"{param}[{i}]")


def _documents(value: Any, param: str) -> None:
    if type(value) is not list:
        raise wrong_type(param, "an array", value)
    if not value:
        raise _empty(param, "array")
    _bounded(value, param, MOST_DOCUMENTS)
    for i, document in enumerate(value):
        if type(document) is str:
            continue
        if type(document) is not dict:
            raise wrong_type(f"{param}[{i}]", "a string or an object with a text", document)
        if not any(type(document.get(name)) is str for name in _PARTS):
            raise missing(f"{param}[{i}].text")


def _query(value: Any, param: str) -> None:
    if type(value) is dict:  # of models that take pictures
        if not any(type(value.get(name)) is str for name in _PARTS):
            raise missing(f"{param}.text")
        return
    if type(value) is not str:
        raise wrong_type(param, "a string", value)
    if not value:
        raise _empty(param, "string")


def _bounded(value: list[Any], param: str, most: int) -> None:
    if len(value) > most:
        raise InvalidRequest(
            f"Invalid '{param}': array too long. Expected an array with maximum length {most}, "
            f"but got an array with length {len(value)} instead.",
            code="array_above_max_length",
            param=param,
        )


def _empty(param: str, what: str) -> InvalidRequest:
    code = "empty_array" if what == "array" else "empty_string"
    return InvalidRequest(
        f"Invalid '{param}': empty {what}. Expected {'an' if what == 'array' else 'a'} {what} with "
        f"minimum length 1, but got an empty {what} instead.",
        code=code,
        param=param,
    )


_positive: Final[Callable[[Any, str], None]] = integer(1)

_EMBEDDINGS: Final[Mapping[str, Check]] = {
    "model": _model,
    "input": _texts(may_be_empty=False),
    "encoding_format": one_of("float", "base64"),
    "dimensions": _positive,
    "user": string,
}
_COMPLETIONS: Final[Mapping[str, Check]] = {
    "model": _model,
    "prompt": _texts(may_be_empty=True),
    "stream": boolean,
    "stream_options": object_,
    "n": integer(1, MOST_ANSWERS),
    "best_of": integer(1, MOST_ANSWERS),
    "max_tokens": integer(0),
    "echo": boolean,
    "suffix": string,
    "user": string,
}
_RERANK: Final[Mapping[str, Check]] = {
    "model": _model,
    "query": _query,
    "documents": _documents,
    "top_n": _positive,
    "return_documents": boolean,
}

PLAIN_FIELDS: Final = frozenset({*_EMBEDDINGS, *_COMPLETIONS, *_RERANK, "max_tokens_per_doc"})
"""The names of what these APIs have, but for the sampling that Chat Completions have as well."""
