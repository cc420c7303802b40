"""Whatever a client of Ollama's API sends is translated, or refused with the field named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from router.dialects.embeddings.schema import check_embeddings
from router.dialects.ollama.decode_request import (
    DecodedRequest,
    decode_chat_request,
    decode_generate_request,
)
from router.dialects.ollama.embeddings import embed_request
from router.dialects.ollama.encode_request import encode_ollama_request
from router.dialects.responses.schema import validate_create
from router.errors import InvalidRequest
from tests.support.chat import encoded
from tests.support.reading import FUZZ

PNG = "iVBORw0KGgo="
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}

ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 9), st.floats(allow_nan=False), st.text(max_size=3),
    st.just([]), st.just({}), st.just(["x"]), st.just([{}]), st.just({"a": 1}),
)  # fmt: skip


def objects(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of these fields, each of which may be anything else."""
    return st.fixed_dictionaries(
        {}, optional={name: st.one_of(value, value, ODD) for name, value in fields.items()}
    )


CALLS = st.lists(
    objects(
        id=st.sampled_from(["a", "b"]),
        function=objects(name=st.sampled_from(["f", "g"]), arguments=st.just({"x": 1})),
    ),
    max_size=3,
)
MESSAGES = st.lists(
    objects(
        role=st.sampled_from(["system", "user", "assistant", "tool"]),
        content=st.text(max_size=5),
        images=st.just([PNG]),
        thinking=st.text(max_size=5),
        tool_calls=CALLS,
        tool_name=st.sampled_from(["f", "g"]),
        tool_call_id=st.sampled_from(["a", "b"]),
    ),
    max_size=4,
)
TOOL = objects(
    type=st.just("function"),
    function=objects(name=st.just("f"), description=st.just("d"), parameters=st.just(SCHEMA)),
)
OPTIONS = objects(
    **{name: st.integers(0, 1) for name in ("temperature", "top_k", "num_predict", "num_ctx")},
    stop=st.just(["x"]),
)
COMMON = {
    "model": st.just("m"), "stream": st.booleans(), "format": st.just(SCHEMA),
    "options": OPTIONS, "think": st.booleans(), "logprobs": st.booleans(),
    "top_logprobs": st.integers(0, 20), "keep_alive": st.just("5m"), "truncate": st.booleans(),
}  # fmt: skip


def translated(
    translate: Callable[[dict[str, Any]], DecodedRequest], body: dict[str, Any]
) -> DecodedRequest | None:
    """The translation; None where the body is refused, with the field named."""
    try:
        return translate(body)
    except InvalidRequest as error:
        refused = error
    assert refused.param is not None
    return None


@FUZZ
@given(st.data())
def test_whatever_comes_is_translated_or_refused(data: st.DataObject) -> None:
    for translate, fields in (
        (
            decode_chat_request,
            {"messages": MESSAGES, "tools": st.lists(TOOL, max_size=2), **COMMON},
        ),
        (decode_generate_request, {"prompt": st.text(), "images": st.just([PNG]), **COMMON}),
    ):
        body = data.draw(objects(**fields))
        made = translated(translate, body)
        if made is None:
            continue
        validate_create(made.body)
        encoded(made.body, model="m", stream=True)
        encode_ollama_request(made.body, model="m", stream=True, num_ctx=None)


@FUZZ
@given(objects(**{**COMMON, "input": st.text(min_size=1), "dimensions": st.just(3)}))
def test_whatever_comes_is_embedded_or_refused(body: dict[str, Any]) -> None:
    made = translated(embed_request, body)
    if made is not None and made.body["input"] not in ("", []):
        check_embeddings(made.body)
