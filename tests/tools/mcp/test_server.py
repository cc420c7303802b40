"""What names a server, and that it keeps its secrets."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import mcp_types as types
import pytest

from router.fetch.guard import FetchGuard
from router.settings.fetch import FetchSettings
from router.settings.mcp import McpServerSettings
from router.settings.tools import ToolsSettings
from router.tools.mcp import McpClients, McpInvalid, McpNotInstalled, McpServer
from router.tools.mcp.content import as_result, cut

URL = "https://it.test/mcp"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "server_url"),
        ({"url": URL, "label": ""}, "server_label"),
        ({"url": URL, "label": "a" * 257}, "server_label"),
        ({"url": "it.test/mcp"}, "server_url"),
        ({"url": "ftp://it.test/"}, "server_url"),
        ({"url": "file:///etc/passwd"}, "server_url"),
        ({"url": "http://"}, "server_url"),
        ({"url": "http://[::1"}, "server_url"),
        ({"url": "http://it.test:99999/"}, "server_url"),
        ({"url": "http://it.test:0/"}, "server_url"),
        ({"url": "http://me:s3cret@it.test/"}, "server_url"),
        ({"url": "http://it.test/a b"}, "server_url"),
        ({"url": "http://it.test/\r\nX: y"}, "server_url"),
        ({"url": "http://it.test/" + "a" * 9000}, "server_url"),
        ({"command": "sh"}, "server_url"),
        ({"url": URL, "headers": {"a b": "c"}}, "headers"),
        ({"url": URL, "headers": {"": "c"}}, "headers"),
        ({"url": URL, "headers": {"A": "s3cret\r\nB: c"}}, "headers"),
        ({"url": URL, "headers": {"A": "é"}}, "headers"),
        ({"url": URL, "headers": {"HOST": "inside"}}, "headers"),
        ({"url": URL, "headers": {"Transfer-Encoding": "chunked"}}, "headers"),
        ({"url": URL, "headers": {"Mcp-Session-Id": "1"}}, "headers"),
        ({"url": URL, "headers": {str(n): "" for n in range(65)}}, "headers"),
        ({"url": URL, "authorization": ""}, "authorization"),
        ({"url": URL, "authorization": "s3cret\n"}, "authorization"),
        ({"url": URL, "authorization": "a", "headers": {"authorization": "b"}}, "authorization"),
    ],
)
def test_what_cannot_be_used(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(McpInvalid) as caught:
        McpServer(**{"label": "it", **fields})
    assert caught.value.param == param
    assert "s3cret" not in caught.value.message


def test_authorization() -> None:
    assert McpServer("it", url=URL, authorization="t").all_headers == {"Authorization": "Bearer t"}
    basic = McpServer("it", url=URL, authorization="Basic dDp0", headers={"X": "y"})
    assert basic.all_headers == {"X": "y", "Authorization": "Basic dDp0"}


def test_a_fingerprint_is_that_of_all_that_matters() -> None:
    key = bytes(32)
    base = McpServer("it", url=URL, authorization="s3cret", headers={"A": "b"})
    assert base.fingerprint(key) == dataclasses.replace(base, label="other").fingerprint(key)
    others: list[dict[str, Any]] = [
        {"url": f"{URL}2"},
        {"authorization": "other"},
        {"headers": {"A": "c"}},
        {"owner": "anna"},
        {"trusted": True},
        {"transport": "sse"},
        {"url": None, "command": "sh", "trusted": True},
        {"url": None, "command": "sh", "args": ("a",), "trusted": True},
        {"url": None, "command": "sh", "env": {"A": "b"}, "trusted": True},
        {"url": None, "command": "sh", "cwd": "/", "trusted": True},
    ]
    prints = [dataclasses.replace(base, **fields).fingerprint(key) for fields in others]
    assert len({base.fingerprint(key), base.fingerprint(b"k"), *prints}) == len(others) + 2
    assert not any("s3cret" in one for one in prints)


def test_a_server_of_the_configuration() -> None:
    settings = McpServerSettings.model_validate(
        {
            "label": "it",
            "url": "http://10.0.0.1/mcp?key=s3cret",
            "headers": {"X": "s3cret x"},
            "authorization": "s3cret",
            "transport": "sse",
        }
    )
    server = McpServer.configured(settings)
    assert server.trusted
    assert server.url == "http://10.0.0.1/mcp?key=s3cret"
    assert server.all_headers == {"X": "s3cret x", "Authorization": "Bearer s3cret"}
    assert repr(server) == "McpServer('it')"
    assert "s3cret" not in repr(settings)


async def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith(("mcp.", "router.tools.mcp.session", "router.tools.mcp.connect")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    guard = FetchGuard(FetchSettings())
    clients = McpClients(ToolsSettings(), guard)
    with pytest.raises(McpNotInstalled, match=r"pip install '\.\[tools\]'"):
        await clients.list_tools(McpServer("it", url=URL))
    await clients.close()


def test_content_that_is_no_text() -> None:
    blocks: list[Any] = [
        {"type": "text", "text": "one"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "audio", "data": "AAA=", "mimeType": "audio/wav"},
        {"type": "resource_link", "name": "n", "uri": "file:///a", "mimeType": "text/plain"},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "two"}},
        {"type": "resource", "resource": {"uri": "file:///c", "blob": "AA=="}},
    ]
    result = types.CallToolResult.model_validate({"content": blocks})
    assert as_result(result, 1000).text.split("\n") == [
        "one",
        "[image: image/png, 3 bytes]",
        "[audio: audio/wav, 2 bytes]",
        "[link to n: file:///a, text/plain]",
        "[file:///b]",
        "two",
        "[file file:///c: application/octet-stream, 1 bytes]",
    ]


@pytest.mark.parametrize(
    ("content", "structured", "text", "kept"),
    [
        ([], {"a": 1}, '{"a":1}', {"a": 1}),
        ([{"type": "text", "text": "t"}], {"a": 1}, "t", {"a": 1}),
        ([], {"a": "x" * 50}, None, None),
        ([], None, "", None),
    ],
)
def test_structured_content(content: Any, structured: Any, text: str | None, kept: Any) -> None:
    given = {"content": content, "structuredContent": structured}
    result = as_result(types.CallToolResult.model_validate(given), 20)
    assert result.structured == kept
    assert text is None or result.text == text


def test_structured_content_that_is_too_deep() -> None:
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    result = types.CallToolResult(content=[], structured_content=deep)
    assert as_result(result, 20).structured is None


def test_a_cut_is_not_in_the_middle_of_a_character() -> None:
    assert cut("äöü", 6) == "äöü"
    assert cut("äöü", 5) == "äö\n[cut: these are the first 5 of 6 bytes]"
    assert cut("a\ud800b", 10) == "a?b"
