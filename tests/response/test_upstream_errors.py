"""Whether an error is the request's own fault: by status, code, type, param and message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.response.upstream_errors import rejection, reported


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, {"error": {"message": "no", "type": "external_connector_error"}}),
        (401, {"error": {"message": "no", "code": "external_connector_error"}}),
        (401, {"error": "Error retrieving tool list from MCP server: 'x'. Http status code: 401"}),
        (403, {"error": {"message": "no", "param": "tools[0].authorization"}}),
        (403, {"error": {"message": "It requires moderation. Your input was flagged for 'x'"}}),
        (404, {"error": {"message": "File with id 'file-1' not found."}}),
        (404, {"error": {"message": "No such File object: file-1"}}),
        (404, {"error": {"message": "no", "param": "previous_response_id"}}),
    ],
)
def test_what_is_about_the_request(status: int, body: Any) -> None:
    rejected = rejection(reported(body, status), "x")
    assert rejected is not None
    assert rejected.status == status


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}),
        (401, {"error": {"message": "no", "type": "auth_error", "param": "None", "code": "401"}}),
        (401, {"error": {"message": "no", "type": "key_model_access_denied", "param": "model"}}),
        (403, {"error": {"message": "Country, region, or territory not supported"}}),
        (404, {"error": {"message": "The model `m` does not exist.", "param": "model"}}),
        (404, {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}}),
        (404, {"error": 'model "x" not found, try pulling it first'}),
        (404, {"detail": "Not Found"}),
        (405, {"detail": "Method Not Allowed"}),
        (407, {}),
        (408, {"error": {"param": "input", "type": "invalid_request_error"}}),
        (425, {"error": {"param": "input", "type": "invalid_request_error"}}),
        (429, {"error": {"param": "input", "type": "invalid_request_error"}}),
        (500, {"error": {"param": "input", "type": "invalid_request_error"}}),
        (302, {}),
    ],
)
def test_what_is_not(status: int, body: Any) -> None:
    assert rejection(reported(body, status), "x") is None


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"error": {"message": "no", "code": 400}}, 400),
        ({"error": {"message": "no", "code": "422"}}, 422),
        ({"error": {"message": "no", "status": 409}}, 409),
        ({"type": "error", "status": 413, "error": {"message": "no"}}, 413),
        ({"type": "error", "code": "invalid_prompt", "message": "no", "param": None}, 400),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}, 400),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "no"}}, 429),
        ({"error": "no", "error_type": "validation"}, 422),
        ({"error": {"message": "no", "code": 502}}, 502),
        ({"error": {"message": "no", "code": 7}}, None),
        ({"error": {"message": "no", "type": "server_error"}}, None),
        ({"error": "no"}, None),
        ("no", None),
    ],
)
def test_the_status_of_an_error_within_a_stream(body: Any, status: int | None) -> None:
    error = reported(body)
    assert error.status == status
    assert error.message == "no"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 700) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["error", "detail", "message", "type", "code", "param", "status"]),
            inner,
        )
    ),
)


@given(JSON, st.none() | st.integers(200, 599))
def test_anything(body: Any, status: int | None) -> None:
    rejected = rejection(reported(body, status), "x")
    assert rejected is None or (400 <= rejected.status < 500 and rejected.message)
