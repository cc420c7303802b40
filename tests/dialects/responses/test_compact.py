"""The body of ``POST /v1/responses/compact``."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from router.dialects.responses.compaction import parse_compact
from router.errors import InvalidRequest
from tests.support.schema import faults

USER = {"role": "user", "content": "Hello"}


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "input": "Hello"},
        {"model": "m", "input": [USER]},
        {"model": "m", "previous_response_id": "resp_1"},
        {"model": "m", "previous_response_id": "resp_1", "input": []},
        {"model": "m", "previous_response_id": "resp_1", "input": [USER], "instructions": "x"},
        {"model": "m", "input": "x", "instructions": None, "prompt_cache_key": None},
        {"model": "m", "input": [{"type": "compaction", "encrypted_content": "x"}]},
    ],
)
def test_what_is_accepted(body: dict[str, Any]) -> None:
    assert faults("CompactResponseMethodPublicBody", body) == []
    assert parse_compact(orjson.dumps(body)) == body


def test_unknown_fields_pass() -> None:
    body = {"model": "m", "input": "x", "something_new": [1]}
    assert parse_compact(orjson.dumps(body)) == body


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"model": 5, "input": "x"}, "invalid_type", "model"),
        ({"model": "m"}, "missing_required_parameter", "input"),
        ({"model": "m", "input": []}, "missing_required_parameter", "input"),
        ({"model": "m", "input": None}, "missing_required_parameter", "input"),
        ({"model": "m", "conversation": "conv_1"}, "missing_required_parameter", "input"),
        ({"model": "m", "input": 5}, "invalid_type", "input"),
        ({"model": "m", "input": ["x"]}, "invalid_type", "input[0]"),
        ({"model": "m", "input": [{"role": "x"}]}, "invalid_value", "input[0].role"),
        ({"model": "m", "input": "x", "instructions": 5}, "invalid_type", "instructions"),
        ({"model": "m", "previous_response_id": 5}, "invalid_type", "previous_response_id"),
        ({"model": "m", "input": "x", "prompt_cache_key": 5}, "invalid_type", "prompt_cache_key"),
    ],
)
def test_what_is_refused(body: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_compact(orjson.dumps(body))
    assert (refused.value.code, refused.value.param) == (code, param)


@pytest.mark.parametrize(
    ("raw", "code"), [(b"", "invalid_json"), (b"{", "invalid_json"), (b"[]", "invalid_type")]
)
def test_what_is_no_object(raw: bytes, code: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_compact(raw)
    assert refused.value.code == code
