"""What the adapters read of lists of models, and how they have models loaded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.upstream import Adapter, Listed, LoadRequest, leaves_memory
from router.errors import UpstreamFailure
from router.settings.schema import EndpointSettings
from router.settings.values import KeepAlive
from router.upstream.adapters import make_adapter


def adapter(dialect: str, **fields: Any) -> Adapter:
    settings = {"name": "one", "url": "http://one", "dialect": dialect, **fields}
    return make_adapter(EndpointSettings.model_validate(settings))


def entry(**fields: Any) -> dict[str, Any]:
    return {"id": "m", "object": "model", "created": 0, **fields}


LLAMACPP = {"owned_by": "llamacpp"}


@pytest.mark.parametrize(
    ("fields", "listed"),
    [
        ({}, Listed("m")),
        # llama.cpp's router mode
        ({**LLAMACPP, "status": {"value": "loaded", "args": []}}, Listed("m", True)),
        ({**LLAMACPP, "status": {"value": "unloaded"}}, Listed("m", False)),
        (
            {**LLAMACPP, "status": {"value": "unloaded", "failed": True, "exit_code": 1}},
            Listed("m", False),
        ),
        ({**LLAMACPP, "status": {"value": "loading"}}, Listed("m", False, loading=True)),
        ({**LLAMACPP, "status": {"value": "sleeping"}}, Listed("m", False)),
        ({**LLAMACPP, "status": {"value": "downloading"}}, Listed("m", False)),
        # vLLM, SGLang
        ({"owned_by": "vllm", "root": "m", "max_model_len": 32768}, Listed("m", True, 32768)),
        ({"owned_by": "vllm", "max_model_len": None}, Listed("m")),
        # LM Studio's own API
        ({"state": "not-loaded", "max_context_length": 131072}, Listed("m", False)),
        (
            {"state": "loaded", "max_context_length": 131072, "loaded_context_length": 4096},
            Listed("m", True, 4096),
        ),
        # OpenRouter, Groq
        ({"context_length": 200_000}, Listed("m", None, 200_000)),
        ({"context_window": 8192, "active": True}, Listed("m", None, 8192)),
        # Whatever is odd says nothing.
        ({"status": "loaded"}, Listed("m")),
        ({"status": {"value": "brooding"}}, Listed("m")),
        ({"status": {"value": {}}}, Listed("m")),
        ({"state": ["loaded"]}, Listed("m")),
        ({"state": "active"}, Listed("m")),
        ({"max_model_len": "32768"}, Listed("m")),
        ({"max_model_len": True}, Listed("m")),
        ({"max_model_len": 0, "context_length": -1, "context_window": 2.5}, Listed("m")),
    ],
)
@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_a_list_in_openais_style(dialect: str, fields: dict[str, Any], listed: Listed) -> None:
    listing = {"object": "list", "data": [entry(**fields), {"object": "model"}, 5, {"id": 7}]}
    # Its server notices that a client has left only while it streams.
    listed = replace(listed, outlives_clients=fields.get("owned_by") == "llamacpp")
    assert adapter(dialect).models(listing) == [listed]


@pytest.mark.parametrize(
    ("model", "listed"),
    [
        ({"name": "m:latest", "model": "m:latest", "size": 1}, Listed("m:latest")),
        ({"model": "m:latest"}, Listed("m:latest")),
        # Ollama's cloud models run elsewhere.
        (
            {"name": "m:cloud", "remote_model": "m", "remote_host": "https://ollama.com:443"},
            Listed("m:cloud", True),
        ),
        ({"name": "m", "remote_host": None}, Listed("m")),
    ],
)
def test_ollamas_list(model: dict[str, Any], listed: Listed) -> None:
    listing = {"models": [model, {"name": 5}, None, {}]}
    assert adapter("ollama").models(listing) == [listed]


def test_what_ollama_has_in_memory() -> None:
    ollama = adapter("ollama")
    assert ollama.loaded_path() == "/api/ps"
    assert ollama.loaded({"models": []}) == []
    listing = {"models": [{"name": "a:7b", "size_vram": 1}, {"model": "b"}, {}, 5]}
    assert ollama.loaded(listing) == ["a:7b", "b"]
    odd_ones: list[Any] = [{}, {"models": None}, [], "models"]
    for odd in odd_ones:
        with pytest.raises(UpstreamFailure):
            ollama.loaded(odd)


KEYS = (
    *("data", "models", "id", "name", "model", "status", "value", "state", "owned_by"),
    *("max_model_len", "context_length", "remote_host"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("dialect", ["chat", "responses", "ollama"])
@given(listing=JSON | st.builds(lambda rows: {"data": rows, "models": rows}, st.lists(JSON)))
def test_no_list_is_too_odd(dialect: str, listing: Any) -> None:
    one = adapter(dialect)
    for read in (one.models, one.loaded):
        try:
            read(listing)
        except UpstreamFailure:
            continue


def loaded(request: LoadRequest | None) -> dict[str, Any]:
    assert request is not None
    body: dict[str, Any] = orjson.loads(request.body)
    return body


@pytest.mark.parametrize(
    ("settings", "keep_alive", "body"),
    [
        ({}, None, {}),
        ({"num_ctx": 8192}, None, {"options": {"num_ctx": 8192}}),
        ({"keep_alive": "30m"}, None, {"keep_alive": "30m"}),
        ({"keep_alive": -1}, None, {"keep_alive": -1}),
        ({"keep_alive": "30m"}, "1h", {"keep_alive": "1h"}),
        # A load for a request to come must not take the model out again.
        ({"keep_alive": 0}, None, {}),
        ({"keep_alive": "0s"}, None, {}),
        ({}, 0, {"keep_alive": 0}),
    ],
)
def test_how_ollama_loads(
    settings: dict[str, Any], keep_alive: KeepAlive | None, body: dict[str, Any]
) -> None:
    request = adapter("ollama", **settings).load("m", keep_alive)
    assert loaded(request) == {"model": "m", "stream": False, **body}
    assert request is not None
    assert (request.path, request.unversioned, request.at_once) == ("/api/generate", False, False)
    assert request.unloads is (keep_alive == 0)


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_llamacpp_is_known_by_its_list(dialect: str) -> None:
    one = adapter(dialect)
    assert one.load("m") is None
    one.models({"data": [entry(owned_by="llamacpp", status={"value": "unloaded"})]})
    load, unload = one.load("m"), one.load("m", 0)
    assert loaded(load) == loaded(unload) == {"model": "m"}
    assert load == LoadRequest("/models/load", b'{"model":"m"}', unversioned=True, at_once=True)
    assert unload is not None
    assert (unload.path, unload.unloads) == ("/models/unload", True)
    # In front of it is something else now.
    one.models({"data": [entry(owned_by="somebody", status={"value": "unloaded"})]})
    assert one.load("m") is None


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        (b'{"done": true, "load_duration": 2500000000}', 2.5),
        (b'{"done": true, "done_reason": "load"}', None),
        (b'{"load_duration": "2500000000"}', None),
        (b'{"load_duration": 0}', None),
        (b'{"load_duration": -1}', None),
        (b'{"load_duration": true}', None),
        (b"[]", None),
        (b"", None),
        (b"nonsense", None),
    ],
)
def test_what_a_load_took(body: bytes, seconds: float | None) -> None:
    assert adapter("ollama").load_seconds(body) == seconds
    assert adapter("chat").load_seconds(body) is None


@pytest.mark.parametrize(
    ("keep_alive", "leaves"),
    [
        (None, False), (0, True), (5, False), (-1, False),
        ("0s", True), ("0m", True), ("0.0h", True), ("-0ms", True), ("0µs", True), ("0ns", True),
        ("5m", False), ("0.5s", False), ("-1m", False), ("10us", False),
    ],
)  # fmt: skip
def test_what_is_kept_for_no_time(keep_alive: KeepAlive | None, leaves: bool) -> None:
    assert leaves_memory(keep_alive) is leaves
