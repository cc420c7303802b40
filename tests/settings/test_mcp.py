"""The settings of MCP servers."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from router.settings.mcp import McpSettings


def faults(**data: Any) -> dict[str, str]:
    """Location -> message of every error."""
    with pytest.raises(ValidationError) as caught:
        McpSettings.model_validate(data)
    assert "s3cret" not in str(caught.value)
    return {".".join(map(str, error["loc"])): error["msg"] for error in caught.value.errors()}


def test_the_least() -> None:
    settings = McpSettings()
    assert (settings.servers, settings.client_servers, settings.hosts) == ((), True, None)
    assert settings.require_approval == "never"


def test_a_server_of_each_kind() -> None:
    settings = McpSettings.model_validate(
        {
            "servers": [
                {"label": "docs", "url": "https://docs.test/mcp", "authorization": "s3cret"},
                {
                    "label": "files",
                    "command": "npx",
                    "args": ["-y", "files"],
                    "env": {"TOKEN": "s3cret"},
                    "allowed_tools": ["read"],
                    "require_approval": "always",
                },
            ],
            "hosts": ["*.Docs.test:8443"],
        }
    )
    assert settings.hosts == ("*.docs.test:8443",)
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    ("server", "place", "says"),
    [
        ({}, "", "either url or command"),
        ({"url": "https://a.test", "command": "x"}, "", "either url or command"),
        ({"url": "a.test"}, "url", "must be a URL"),
        ({"url": "https://me:s3cret@a.test"}, "url", "user or password"),
        ({"url": "https://a.test/ s3cret"}, "url", "blanks"),
        ({"url": "https://a.test", "args": ["x"]}, "args", "with command only"),
        ({"url": "https://a.test", "env": {"A": "s3cret"}}, "env", "with command only"),
        ({"command": "x", "headers": {"A": "s3cret"}}, "headers", "with url only"),
        ({"command": "x", "authorization": "s3cret"}, "authorization", "with url only"),
        ({"command": "x", "transport": "sse"}, "transport", "with url only"),
        (
            {"url": "https://a.test", "authorization": "a", "headers": {"AUTHORIZATION": "b"}},
            "headers.AUTHORIZATION",
            "is given by authorization",
        ),
        ({"url": "https://a.test", "headers": {"A": "s3cret\n"}}, "headers.A", "line ends"),
        ({"url": "https://a.test", "allowed_tools": []}, "allowed_tools", "at least one"),
        ({"url": "https://a.test", "require_approval": "maybe"}, "require_approval", ""),
    ],
)
def test_a_server_that_is_wrong(server: dict[str, Any], place: str, says: str) -> None:
    [(where, message)] = faults(servers=[{"label": "it", **server}]).items()
    assert where == f"servers.0{'.' if place else ''}{place}"
    assert says in message


def test_labels_differ() -> None:
    one = {"label": "it", "url": "https://a.test"}
    assert faults(servers=[one, one]) == {
        "servers.1.label": "is already the label of another MCP server"
    }


def test_no_server_has_the_name_of_those_that_clients_name() -> None:
    with pytest.raises(ValidationError, match="servers that clients name"):
        McpSettings.model_validate({"servers": [{"label": "client", "url": "http://127.0.0.1"}]})
