"""A trace as text, in which what differs from run to run has a fixed place-holder."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.golden.exchange import Exchanged, exchange
from tests.golden.scenes import COLUMNS, SCENES, Scene, answer
from tests.golden.steps import STEPS
from tests.matrix.asking import BODIES, PATHS
from tests.support.fleet import routed
from tests.support.upstream import Received, Upstream, Wire

__all__ = ["TRACES", "file_of", "followed", "frozen", "traced"]

TRACES: Final = Path(__file__).parent / "traces"
_RENAMES: Final = Path(__file__).parent / "renames.txt"

_ID: Final = re.compile(
    r"\b(resp|msg|rs|fc|call|conv|chatcmpl|cmpl|toolu|req|item|gen)([_-])[0-9A-Za-z]{16,}\b"
)
_FIXED: Final = (
    (re.compile(r"(?m)^(Date|Age|Server|User-Agent): .*"), r"\1: <\1>"),
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), r"\1:<port>"),
    (re.compile(r'"(created|created_at|completed_at)":\d{10}(\.\d+)?'), r'"\1":<time>'),
    (re.compile(r'"(created_at|modified_at)":"20[^"]*"'), r'"\1":"<time>"'),
    (re.compile(r'"(\w+_duration)":\d+'), r'"\1":<duration>'),
    (re.compile(r"(?m)^Content-Length: \d+$"), "Content-Length: <length>"),
    (re.compile(r"\bpm1\.[0-9a-f]{12}\."), "pm1.<account>."),
)


def file_of(*names: str) -> Path:
    """Where the trace of an API, or of steps, in front of a kind of endpoint is kept."""
    return TRACES / f"{'-'.join(names)}.txt".lower().replace(" ", "_")


def frozen(path: Path) -> str:
    """A trace as it was kept, with the names of today."""
    text = path.read_text(encoding="utf-8")
    for line in _RENAMES.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            old, _, new = line.partition(" -> ")
            text = text.replace(old, new)
    return text


async def traced(api: str, column: str) -> str:
    """All scenes of an API in front of a kind of endpoint, whole and streamed, each asked twice."""
    parts: list[str] = []
    async with _standing(column) as (upstream, url):
        for name, scene in SCENES.items():
            _plays(upstream, column, scene)
            for stream in (False, True):
                body = _body(api, scene, stream=stream)
                for again in ("", ", again"):
                    title = f"{name}, {'streamed' if stream else 'whole'}{again}"
                    done = await exchange(url, "POST", PATHS[api], body)
                    parts.append(f"######## {title}\n\n{_shown(done, upstream)}")
    return _steady("\n".join(parts))


async def followed(name: str, column: str) -> str:
    """Requests that follow from one another, in front of a kind of endpoint."""
    parts: list[str] = []
    ids: dict[str, str] = {}
    async with _standing(column) as (upstream, url):
        _plays(upstream, column, SCENES["text"])
        for step in STEPS[name]:
            path, body = step.path.format(**ids), _filled(step.body, ids)
            done = await exchange(url, step.method, path, body)
            if step.keeps:
                ids[step.keeps] = done.json["id"]
            title = f"{step.method} {step.path}"
            parts.append(f"######## {title}\n\n{_shown(done, upstream)}")
    return _steady("\n".join(parts))


def _filled(body: dict[str, Any] | None, ids: dict[str, str]) -> dict[str, Any] | None:
    if body is None:
        return None
    return {
        key: ids.get(value[1:-1], value) if isinstance(value, str) else value
        for key, value in body.items()
    }


def _body(api: str, scene: Scene, *, stream: bool) -> dict[str, Any]:
    """What is asked; a stream has a question of its own, since it would be a hit otherwise."""
    text = scene.ask.text + (" Go on" if stream else "")
    return BODIES[api](replace(scene.ask, text=text, stream=stream)) | scene.fields


@asynccontextmanager
async def _standing(column: str) -> AsyncIterator[tuple[Upstream, str]]:
    dialect = COLUMNS[column]
    async with Upstream(keeps_probes=False) as upstream:
        url = upstream.address + ("" if dialect == "ollama" else "/v1")
        endpoint = {"name": "one", "url": url, "dialect": dialect, "models": ["m"]}
        cache = {"mode": "always", "semantic": {"enabled": False}}
        health = {"health_interval": 3600}
        async with routed(endpoint, cache=cache, balance=health) as router:
            yield upstream, router


def _plays(upstream: Upstream, column: str, scene: Scene) -> None:
    """Let the endpoint answer as the scene has it, from now on."""

    async def by_path(wire: Wire) -> None:
        request = upstream.requests[-1]
        await answer(column, request.path, scene, request.json)(wire)

    upstream.default = by_path


def _shown(done: Exchanged, upstream: Upstream) -> str:
    """One request of the client, what the endpoint got of it, and the answer."""
    received = list(map(_upstream, upstream.requests))
    upstream.requests.clear()
    return "\n".join([_client(done), *received, _answered(done)])


def _client(done: Exchanged) -> str:
    return f"==== the client sends\n{_text(done.asked)}\n\n{_text(done.sent)}\n"


def _upstream(request: Received) -> str:
    return f"==== the endpoint gets\n{_text(request.head)}\n\n{_text(request.body)}\n"


def _answered(done: Exchanged) -> str:
    return f"==== the client gets\n{_text(done.head)}\n\n{_text(done.body)}\n"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace").replace("\r\n", "\n").replace("\r", "\\r")


def _steady(text: str) -> str:
    """Ids are numbered in the order in which they appear; times and ports have a name."""
    for pattern, place_holder in _FIXED:
        text = pattern.sub(place_holder, text)
    numbers: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"{found[1]}{found[2]}<{len(numbers) + 1}>")

    return _ID.sub(number, text)
