"""How long one large request holds everybody else up: the slowest ``/health`` while it is served.

    python -m tests.bench.large

One request at a time, of each shape, through a router in front of a simulated chat endpoint, while
``/health`` is asked every two milliseconds from a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from .children import Children, free_port
from .load import fetch

__all__ = ["main", "shapes"]

_MB: Final = 1024 * 1024
_SIZE: Final = 29 * _MB
_EVERY: Final = 0.002
_ROUNDS: Final = 3

_RESPONSES: Final = "/v1/responses"
_CHAT: Final = "/v1/chat/completions"
_MESSAGES: Final = "/v1/messages"
_OLLAMA: Final = "/api/chat"
_EMBEDDINGS: Final = "/v1/embeddings"


def _user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _many(count: int) -> list[dict[str, Any]]:
    return [_user(f"hello {number}") for number in range(count)]


def shapes() -> Iterator[tuple[str, str, bytes]]:
    """Name, path and body of every kind of large request."""
    text = 'The quick brown fox, "jumping" over the lazy dog.\n' * (_SIZE // 52)
    image = "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUg" * (_SIZE // 22)
    part = {"type": "input_image", "image_url": image}
    url = {"type": "image_url", "image_url": {"url": image}}
    tool = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
    nested: Any = []
    for _ in range(150):
        nested = [nested]
    yield "hello", _RESPONSES, orjson.dumps({"model": "m", "input": "hello"})
    for count in (700_000, 19_000, 10_000, 3_000):
        yield (
            f"responses, {count} items",
            _RESPONSES,
            orjson.dumps({"model": "m", "input": _many(count)}),
        )
    for name, path in (("chat", _CHAT), ("messages", _MESSAGES), ("ollama", _OLLAMA)):
        for count in (700_000, 10_000):
            yield (
                f"{name}, {count} messages",
                path,
                orjson.dumps({"model": "m", "max_tokens": 9, "messages": _many(count)}),
            )
    for name, body in (
        ("text of 29 MB", {"input": text}),
        ("image of 29 MB", {"input": [_user([part])]}),
        ("200 000 tools", {"input": "x", "tools": [tool] * 200_000}),
        ("2 000 tools", {"input": "x", "tools": [tool] * 2_000}),
        (
            "metadata of 1 000 000",
            {"input": "x", "metadata": {str(n): "" for n in range(1_000_000)}},
        ),
        ("unknown field of 5 000 000", {"input": "x", "what": [0] * 5_000_000}),
        ("deep nests", {"input": "x", "what": [nested] * 3_000}),
    ):
        yield f"responses, {name}", _RESPONSES, orjson.dumps({"model": "m", **body})
    yield "chat, text of 29 MB", _CHAT, orjson.dumps({"model": "m", "messages": [_user(text)]})
    yield "chat, image of 29 MB", _CHAT, orjson.dumps({"model": "m", "messages": [_user([url])]})
    yield (
        "chat, 3 000 000 stops",
        _CHAT,
        orjson.dumps({"model": "m", "messages": _many(1), "stop": ["x"] * 3_000_000}),
    )
    for count in (2_048, 300_000):
        yield (
            f"embeddings, {count} strings",
            _EMBEDDINGS,
            orjson.dumps({"model": "m", "input": ["hello, world"] * count}),
        )
    yield (
        "embeddings, 1 000 x 250 tokens",
        _EMBEDDINGS,
        orjson.dumps({"model": "m", "input": [[number] * 250 for number in range(1_000)]}),
    )
    yield (
        "broken at its end",
        _RESPONSES,
        orjson.dumps({"model": "m", "input": _many(300_000)})[:-1],
    )


def _watch(port: int, pipe: Connection) -> None:
    """Ask for ``/health`` all the time; for every word that comes, say how slow it was since."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    slowest = 0.0
    while True:
        begun = time.perf_counter()
        connection.request("GET", "/health")
        connection.getresponse().read()
        slowest = max(slowest, time.perf_counter() - begun)
        if pipe.poll(_EVERY):
            if pipe.recv() is None:
                return
            pipe.send(slowest)
            slowest = 0.0


def _asked(port: int, path: str, body: bytes) -> tuple[int, float, str]:
    begun = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    with contextlib.suppress(ConnectionError):  # refused before it was all sent
        connection.request("POST", path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    note = answer[:150].decode(errors="replace") if response.status != 200 else ""
    return response.status, time.perf_counter() - begun, note


async def _start(children: Children, directory: Path) -> int:
    backend, port = free_port(), free_port()
    simulated = ["-m", "router", "simulate", "--dialect", "chat", "--port", str(backend)]
    child = children.start("backend", 0, [*simulated, "--models", "m"])
    await child.ready(backend, "/v1/models")
    config = directory / "router.yaml"
    endpoint = {"name": "one", "url": f"http://127.0.0.1:{backend}/v1", "dialect": "chat"}
    config.write_text(
        yaml.safe_dump(
            {
                "server": {"port": port},
                "endpoints": [{**endpoint, "models": ["m"]}],
                "state": {"url": f"sqlite:///{directory}/state.db"},
            }
        )
    )
    child = children.start("router", 1, ["-m", "router", "serve", "--config", str(config)])
    await child.ready(port, "/ready")
    assert (await fetch(("127.0.0.1", port), "/health"))[0] == 200
    return port


def main(names: list[str]) -> int:
    """Measure the shapes whose name has one of ``names`` in it, or all."""
    with tempfile.TemporaryDirectory() as directory, Children(Path(directory)) as children:
        port = asyncio.run(_start(children, Path(directory)))
        ours, theirs = multiprocessing.Pipe()
        watcher = multiprocessing.Process(target=_watch, args=(port, theirs), daemon=True)
        watcher.start()
        print(f"{'':34} {'MB':>6} {'status':>6} {'s':>7}  slowest /health, ms")
        for name, path, body in shapes():
            if names and not any(word in name for word in names):
                continue
            slowest = []
            for _ in range(_ROUNDS):
                ours.send("begin")
                ours.recv()
                status, seconds, note = _asked(port, path, body)
                ours.send("end")
                slowest.append(ours.recv() * 1000)
            each = " ".join(f"{one:7.1f}" for one in slowest)
            print(f"{name:34} {len(body) / _MB:6.1f} {status:6} {seconds:7.2f}  {each}  {note}")
        ours.send(None)
        watcher.join()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
