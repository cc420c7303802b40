"""Headers are looked up without regard to case."""

from __future__ import annotations

import pytest

from router.upstream.answer import Headers


def test_lookup_ignores_case() -> None:
    headers = Headers({b"content-type": b"text/event-stream", b"retry-after": b"3"})
    assert headers["Content-Type"] == headers["content-type"] == "text/event-stream"
    assert headers.get("RETRY-AFTER") == "3"
    assert "retry-After" in headers
    assert dict(headers) == {"content-type": "text/event-stream", "retry-after": "3"}
    assert len(headers) == 2


def test_absent() -> None:
    headers = Headers({b"x": b"\xe9"})
    assert headers["X"] == "é"
    assert headers.get("Retry-After") is None
    assert "Ünknown" not in headers
    with pytest.raises(KeyError, match="Retry-After"):
        headers["Retry-After"]
