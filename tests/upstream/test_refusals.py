"""What an endpoint's HTTP error means: the whole table."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import (
    UpstreamError,
    UpstreamFailure,
    UpstreamModelMissing,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamRouteMissing,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from router.upstream.refusals import refusal

OPENAI = {"message": "no", "type": "t", "param": "input[0]", "code": "bad_thing"}


@pytest.mark.parametrize(
    ("status", "kind", "elsewhere", "repeats"),
    [
        (201, UpstreamFailure, True, False),
        (204, UpstreamFailure, True, False),
        (301, UpstreamFailure, True, False),
        (307, UpstreamFailure, True, False),
        (400, UpstreamRejected, False, True),
        (401, UpstreamFailure, True, False),
        (402, UpstreamRejected, False, True),
        (403, UpstreamFailure, True, False),
        (404, UpstreamRouteMissing, True, True),
        (405, UpstreamRouteMissing, True, True),
        (408, UpstreamTimeout, True, False),
        (409, UpstreamRejected, False, True),
        (413, UpstreamRejected, False, True),
        (415, UpstreamRejected, False, True),
        (422, UpstreamRejected, False, True),
        (429, UpstreamRateLimited, True, True),
        (500, UpstreamFailure, True, False),
        (502, UpstreamFailure, True, False),
        (503, UpstreamUnavailable, True, False),
        (504, UpstreamTimeout, True, False),
        (529, UpstreamFailure, True, False),
    ],
)
def test_status(status: int, kind: type[UpstreamError], elsewhere: bool, repeats: bool) -> None:
    error = refusal("box", status, {}, orjson.dumps({"error": {**OPENAI, "param": None}}))
    assert type(error) is kind
    assert error.elsewhere is elsewhere
    assert error.again is False, "an endpoint that answered is not asked again"
    if repeats:
        assert error.message == "no"
    else:
        assert "'box'" in error.message
        assert f"HTTP {status}" in error.message


@pytest.mark.parametrize("status", [400, 404, 429, 500])
def test_without_a_word(status: int) -> None:
    assert "'box'" in refusal("box", status, {}, b"").message


@pytest.mark.parametrize(
    ("body", "message", "code", "param"),
    [
        ({"error": OPENAI}, "no", "bad_thing", "input[0]"),
        ({"error": {**OPENAI, "code": 400, "param": None}}, "no", None, None),
        ({"error": "model is loading"}, "model is loading", None, None),
        ({"detail": "too long"}, "too long", None, None),
        ({"detail": [{"loc": ["body"]}]}, '[{"loc":["body"]}]', None, None),
        ({"object": "error", **OPENAI}, "no", "bad_thing", "input[0]"),
        ({"error": {**OPENAI, "message": "x" * 5000}}, "x" * 2000, "bad_thing", "input[0]"),
        ({"error": {**OPENAI, "code": "c" * 500}}, "no", "c" * 200, "input[0]"),
    ],
)
def test_words_are_found(body: Any, message: str, code: str | None, param: str | None) -> None:
    error = refusal("box", 400, {}, orjson.dumps(body))
    assert (error.message, error.code, error.param) == (message, code, param)


@pytest.mark.parametrize(
    ("after", "passed"),
    [
        ("7", True),
        ("0.5", True),
        (" 7 ", True),
        ("Wed, 21 Oct 2026 07:28:00 GMT", True),
        ("", False),
        ("7\x01", False),
        ("<script>", False),
        ("9" * 100, False),
    ],
)
def test_retry_after(after: str, passed: bool) -> None:
    error = refusal("box", 429, {"Retry-After": after}, b"")
    assert error.headers == ({"Retry-After": after.strip()} if passed else {})


@pytest.mark.parametrize(
    ("left", "after", "told"),
    [("0", "", "17"), ("0", "<odd>", "17"), ("0", "3", "3"), ("5", "", None)],
)
def test_without_retry_after_a_rate_limit_is_told_by_what_is_left(
    left: str, after: str, told: str | None
) -> None:
    headers = {"x-ratelimit-remaining-requests": left, "x-ratelimit-reset-requests": "16.2s"}
    error = refusal("box", 429, {**headers, "Retry-After": after}, b"")
    assert error.headers.get("Retry-After") == told


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("error"), inner),
)


@given(st.integers(201, 599), st.binary() | JSON.map(orjson.dumps))
def test_anything(status: int, body: bytes) -> None:
    error = refusal("box", status, {}, body)
    assert error.message
    orjson.dumps(error.envelope())


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"detail": "Not Found"}, UpstreamRouteMissing),
        ({"error": {"message": "Invalid URL (POST /v1/chat/completions)"}}, UpstreamRouteMissing),
        ({"error": {"message": "The model `x` does not exist."}}, UpstreamModelMissing),
        (
            {"error": {"message": "It is not there.", "code": "model_not_found"}},
            UpstreamModelMissing,
        ),
        ({"error": {"message": "no", "code": "DeploymentNotFound"}}, UpstreamModelMissing),
        ({"error": 'model "x" not found, try pulling it first'}, UpstreamModelMissing),
    ],
)
def test_what_is_not_there(body: dict[str, object], kind: type[UpstreamError]) -> None:
    """A route that is not there is told from a model, as far as can be."""
    assert type(refusal("box", 404, {}, orjson.dumps(body))) is kind


def test_a_page_that_is_not_there() -> None:
    assert type(refusal("box", 404, {}, b"404 page not found")) is UpstreamRouteMissing
