"""Embeddings in the cache: whatever changes the answer changes the key, and they are kept whole."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cache.request import Bypass, CachedAnswer, CacheKeys, CacheRequest, keys
from cache.vectors import VectorAnswer
from tests.support.asking import from_chat, from_embeddings, from_responses

TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=6)
TOKENS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4)
INPUTS = st.one_of(
    TEXT, TOKENS, st.lists(TEXT, min_size=1, max_size=4), st.lists(TOKENS, min_size=1)
)
BODIES = st.fixed_dictionaries(
    {"model": st.sampled_from(["a", "b"]), "input": INPUTS},
    optional={
        "encoding_format": st.sampled_from(["float", "base64", None]),
        "dimensions": st.sampled_from([1, 2, None]),
        "truncate": st.booleans(),
        "input_type": st.sampled_from(["query", "passage"]),
        "options": st.fixed_dictionaries({}, optional={"num_ctx": st.integers(1, 3)}),
        "user": TEXT,
        "metadata": st.just({"a": "b"}),
        "cache": st.booleans(),
    },
)
WITHOUT_EFFECT = ("user", "metadata", "cache")


def request(body: dict[str, Any]) -> CacheRequest:
    made = from_embeddings(body)
    assert isinstance(made, CacheRequest), made
    return made


def key(body: dict[str, Any], scope: str = "key:a") -> CacheKeys:
    return keys(request(body), scope=scope)


def meant(body: dict[str, Any]) -> Any:
    """What a body asks for, as a person would compare it."""
    given = body["input"]
    batch = given if isinstance(given, list) and not isinstance(given[0], int) else [given]
    settings = {
        name: value
        for name, value in body.items()
        if name not in (*WITHOUT_EFFECT, "input") and value is not None
    }
    if settings.get("encoding_format") == "float":
        del settings["encoding_format"]
    return batch, settings


@given(BODIES, BODIES)
def test_keys_are_the_same_exactly_where_the_answer_is(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert (key(one) == key(other)) == (meant(one) == meant(other))


@given(BODIES, st.data())
def test_what_changes_the_answer_changes_the_key(body: dict[str, Any], data: st.DataObject) -> None:
    batch, _ = meant(body)
    place = data.draw(st.integers(0, len(batch) - 1))
    changed = [*batch]
    changed[place] = (
        [*changed[place], 1] if isinstance(changed[place], list) else changed[place] + "x"
    )
    format_now = "float" if body.get("encoding_format") == "base64" else "base64"
    others = [
        {**body, "input": changed},
        {**body, "input": [*batch, batch[0]]},
        {**body, "model": body["model"] + "x"},
        {**body, "dimensions": 77},
        {**body, "encoding_format": format_now},
        {**body, "anything": 1},
    ]
    if len(batch) > 1 and batch[0] != batch[-1]:
        others.append({**body, "input": batch[::-1]})
    assert key(body) not in [key(other) for other in others]
    assert key(body) != key(body, "key:b")
    assert key(body) == key({**body, "user": "someone", "cache": {"ttl": 5}, "stream": False})


def test_embeddings_are_no_answers_to_questions() -> None:
    body = {"model": "m", "input": "hi", "messages": [{"role": "user", "content": "hi"}]}
    asked = [from_responses(body), from_chat(body), from_embeddings(body)]
    found = {keys(one, scope="s").key for one in asked if isinstance(one, CacheRequest)}
    assert len(found) >= 2
    assert request(body).text is None
    assert request(body).exact_only == "vectors"


@pytest.mark.parametrize(
    "fields",
    [
        {"input": None},
        {"input": []},
        {"input": [None]},
        {"input": [[1], {}]},
        {"input": "\ud800"},
        {"input": [2**70]},
        {"model": None},
        {"model": "\ud800"},
        {"odd": float("nan")},
        {"odd": {"a": [float("inf")]}},
        {"odd": "\ud800"},
    ],
)
def test_what_cannot_be_told_apart_is_not_cached(fields: dict[str, Any]) -> None:
    assert from_embeddings({"model": "m", "input": "a", **fields}) == Bypass("unsupported")


@example("", {"": 0, "body": 0})
@given(st.text(max_size=9), st.dictionaries(st.text(max_size=5), st.integers(0, 9), max_size=3))
def test_an_answer_is_read_as_it_was_written(odd: str, usage: dict[str, int]) -> None:
    body = orjson.dumps({"data": [{"embedding": [0.1]}], "model": 'x","body":'})
    model = odd.encode("utf-8", "replace").decode() + '","body":{}'
    answer = VectorAnswer.of_body(model, usage or None, body)
    written = answer.encode()
    assert orjson.loads(written)["body"] == orjson.loads(body)
    assert VectorAnswer.decode(written) == answer
    assert (answer.text, answer.calls) == ("", False)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[:-2] + b"}",
        lambda data: data.replace(b"0.1", b"0.2"),
        lambda data: data.replace(b'"v":2', b'"v":1'),
        lambda data: data.replace(b'"usage":"null"', b'"usage":7'),
        lambda data: data.replace(b'"usage":"null"', b'"usage":"7"'),
        lambda data: data.replace(b'"usage":"null"', b'"usage":"{"'),
        lambda data: data.replace(b'"model":"m"', b'"model":7'),
        lambda data: data.replace(b',"body":', b',"text":'),
        lambda data: CachedAnswer("m", [], None, {}, {}).encode(),
    ],
)
def test_what_is_damaged_is_not_read(damage: Any) -> None:
    written = VectorAnswer.of_body("m", None, b'{"data":[{"embedding":[0.1]}]}').encode()
    with pytest.raises(ValueError, match="Stored embeddings"):
        VectorAnswer.decode(damage(written))


def test_what_json_cannot_say_is_not_written() -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        VectorAnswer.of_body("\ud800", None, b"{}").encode()
