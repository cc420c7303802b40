"""How a simulated Ollama gets other models: pull, push, create, copy, delete."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import orjson
from aiohttp import web

from router.simulate.backend import BACKEND, json_answer, read_fields, stream
from router.simulate.fields import Fields
from router.simulate.ollama import served_name

__all__ = ["copy", "create", "delete", "pull", "push"]

_NDJSON: Final = "application/x-ndjson"
_LATEST: Final = ":latest"
_LAYER: Final = 1_000_000
_STEPS: Final = 4
_UNKNOWN: Final = "no-such"
"""What begins like this is in no library."""


async def pull(request: web.Request) -> web.StreamResponse:
    """``POST /api/pull``: any model there is, which is every one but ``no-such…``."""
    fields = await read_fields(request)
    name = _name(fields)
    if name.startswith(_UNKNOWN):
        failed = {"error": "pull model manifest: file does not exist"}
        return await _progress(request, fields, [{"status": "pulling manifest"}, failed])
    _add(request, name)
    lines = [{"status": "pulling manifest"}, *_layer("pulling", name)]
    return await _progress(request, fields, [*lines, {"status": "success"}])


async def push(request: web.Request) -> web.StreamResponse:
    """``POST /api/push``: what is here, to nowhere."""
    fields = await read_fields(request)
    name = served_name(request, _name(fields))
    lines = [{"status": "retrieving manifest"}, *_layer("pushing", name)]
    return await _progress(request, fields, [*lines, {"status": "success"}])


async def create(request: web.Request) -> web.StreamResponse:
    """``POST /api/create``: of another model (``from``), which it then is."""
    fields = await read_fields(request)
    name = _name(fields)
    served_name(request, fields.need_string("from"))
    _add(request, name)
    lines = [{"status": "using existing layer"}, {"status": "writing manifest"}]
    return await _progress(request, fields, [*lines, {"status": "success"}])


async def copy(request: web.Request) -> web.Response:
    """``POST /api/copy``."""
    fields = await read_fields(request)
    served_name(request, fields.need_string("source"))
    _add(request, fields.need_string("destination"))
    return web.Response()


async def delete(request: web.Request) -> web.Response:
    """``DELETE /api/delete``."""
    name = served_name(request, _name(await read_fields(request)))
    backend = request.app[BACKEND]
    backend.models = tuple(model for model in backend.models if model != name)
    backend.memory.unload(name)
    return web.Response()


def _name(fields: Fields) -> str:
    return fields.string("model") or fields.need_string("name")


def _add(request: web.Request, name: str) -> None:
    backend = request.app[BACKEND]
    whole = name if ":" in name else name + _LATEST
    if whole not in backend.models:
        backend.models = (*backend.models, whole)


def _layer(does: str, name: str) -> Iterator[dict[str, Any]]:
    digest = "sha256:" + hashlib.sha256(name.encode()).hexdigest()
    for step in range(1, _STEPS + 1):
        yield {
            "status": f"{does} {digest[7:19]}",
            "digest": digest,
            "total": _LAYER,
            "completed": _LAYER * step // _STEPS,
        }


async def _progress(
    request: web.Request, fields: Fields, lines: list[dict[str, Any]]
) -> web.StreamResponse:
    """Tell it line by line, or without ``stream`` only how it ended."""
    if not fields.boolean("stream", True):
        return json_answer(lines[-1], 500 if "error" in lines[-1] else 200)
    return await stream(request, _NDJSON, (orjson.dumps(line) + b"\n" for line in lines))
