"""A router that runs no code."""

from __future__ import annotations

import pytest

from tests.support.fleet import http_client, routed

ENDPOINT = {"name": "one", "url": "http://127.0.0.1:1/v1", "dialect": "chat", "models": ["m"]}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/containers"),
        ("GET", "/containers"),
        ("GET", "/containers/cntr_1"),
        ("DELETE", "/containers/cntr_1"),
        ("GET", "/containers/cntr_1/files"),
    ],
)
async def test_it_says_so(method: str, path: str) -> None:
    async with routed(ENDPOINT) as url, http_client() as http:
        body = {"name": "mine"} if method == "POST" else None
        async with http.request(method, f"{url}/v1{path}", json=body) as answer:
            error = (await answer.json())["error"]
        assert answer.status == 501
        assert "tools.code_interpreter" in error["message"]
