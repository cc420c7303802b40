"""A simulated backend as a web application, and as a process of its own."""

from __future__ import annotations

import asyncio
import errno
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from aiohttp import web

from router.simulate import chat, messages, ollama, ollama_manage, plain, responses
from router.simulate.backend import BACKEND, Backend, Dialect, error_middleware, json_answer
from router.simulate.memory import Memory

__all__ = ["DEFAULT_MODELS", "DEFAULT_PACE", "create_backend", "listening", "run"]

DEFAULT_MODELS: Final[dict[Dialect, tuple[str, ...]]] = {
    "responses": ("sim-native",),
    "chat": ("sim-chat", "sim-embed"),
    "ollama": ("sim-llama:latest", "sim-embed:latest"),
    "messages": ("sim-claude",),
}
DEFAULT_PACE: Final = 0.02
"""Seconds between the pieces of a stream: fast, but slow enough to be seen."""

_MAX_BODY: Final = 64 * 1024 * 1024
_SHUTDOWN_TIMEOUT: Final = 2.0


def create_backend(
    dialect: Dialect,
    models: Sequence[str] | None = None,
    *,
    pace: float = DEFAULT_PACE,
    load_seconds: float = 0.0,
    max_loaded: int | None = None,
) -> web.Application:
    """The application of one backend.

    ``models`` are the names it serves, ``pace`` is the pause between the pieces of a stream, in
    seconds. Ollama takes ``load_seconds`` to load a model, and has ``max_loaded`` of them in
    memory at most (None: all). Raises ValueError where the dialect is unknown, a name is empty or
    a number makes no sense.
    """
    if dialect not in DEFAULT_MODELS:
        raise ValueError(f"unknown dialect {dialect!r}: one of {', '.join(DEFAULT_MODELS)}")
    if pace < 0:
        raise ValueError(f"the pace is {pace} seconds, but cannot be negative")
    if load_seconds < 0:
        raise ValueError(f"a load takes {load_seconds} seconds, but cannot be negative")
    if max_loaded is not None and max_loaded < 1:
        raise ValueError("there has to be memory for one model at least")
    names = tuple(models if models else DEFAULT_MODELS[dialect])
    if not all(names):
        raise ValueError("the name of a model is empty")
    app = web.Application(middlewares=[error_middleware], client_max_size=_MAX_BODY)
    memory = Memory(load_seconds, max_loaded)
    app[BACKEND] = Backend(dialect, names, pace, int(time.time()), memory)
    if dialect == "messages":
        _serve_messages(app)
        return app
    app.router.add_get("/v1/models", _list_models)
    app.router.add_get("/v1/models/{id}", _get_model)
    app.router.add_post("/v1/chat/completions", chat.chat_completions)
    app.router.add_post("/v1/completions", plain.completions)
    app.router.add_post("/v1/embeddings", plain.embeddings)
    if dialect != "ollama":
        app.router.add_post("/v1/rerank", plain.rerank)
    if dialect == "responses":
        app.router.add_post("/v1/responses", responses.create)
        app.router.add_post("/v1/responses/input_tokens", responses.count_input_tokens)
        app.router.add_route("*", "/v1/responses/{id}{rest:(/.*)?}", responses.retrieve)
    if dialect == "ollama":
        _serve_ollama(app)
    return app


def _serve_messages(app: web.Application) -> None:
    app.router.add_get("/v1/models", messages.list_models)
    app.router.add_post("/v1/messages", messages.create)
    app.router.add_post("/v1/messages/count_tokens", messages.count_tokens)


def _serve_ollama(app: web.Application) -> None:
    app.router.add_get("/api/version", ollama.version)
    app.router.add_get("/api/tags", ollama.tags)
    app.router.add_get("/api/ps", ollama.ps)
    app.router.add_post("/api/show", ollama.show)
    app.router.add_post("/api/chat", ollama.chat)
    app.router.add_post("/api/generate", ollama.generate)
    app.router.add_post("/api/embed", plain.ollama_embed)
    app.router.add_post("/api/pull", ollama_manage.pull)
    app.router.add_post("/api/push", ollama_manage.push)
    app.router.add_post("/api/create", ollama_manage.create)
    app.router.add_post("/api/copy", ollama_manage.copy)
    app.router.add_delete("/api/delete", ollama_manage.delete)


def run(
    dialect: Dialect,
    host: str = "127.0.0.1",
    port: int = 0,
    models: Sequence[str] | None = None,
    *,
    pace: float = DEFAULT_PACE,
    load_seconds: float = 0.0,
) -> int:
    """Serve one backend until SIGINT or SIGTERM; the process's exit code.

    Port 0 takes a free one. An address that cannot be had is told on stderr and gives 1. Raises
    ValueError as ``create_backend`` does.
    """
    app = create_backend(dialect, models, pace=pace, load_seconds=load_seconds)
    return asyncio.run(_serve(app, host, port))


async def _serve(app: web.Application, host: str, port: int) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        try:
            url = await stack.enter_async_context(listening(app, host, port))
        except OSError as error:
            in_use = "it is already in use; choose another with --port"
            reason = in_use if error.errno == errno.EADDRINUSE else error.strerror
            print(f"pointsman: cannot listen on {host} port {port}: {reason}", file=sys.stderr)
            return 1
        print(
            f"A simulated backend listens on {url}; as an endpoint of the configuration:\n"
            f'  {{name: simulated, url: "{url}", dialect: {app[BACKEND].dialect}}}\n'
            f"Models: {', '.join(app[BACKEND].models)}. Ctrl-C stops it.",
            flush=True,
        )
        await stop.wait()
    return 0


@asynccontextmanager
async def listening(
    app: web.Application, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[str]:
    """Serve a backend while the context lasts; the URL that its API hangs below.

    Port 0 takes a free one. Raises OSError where the address cannot be had.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_TIMEOUT)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        shown = f"[{host}]" if ":" in host else host
        path = "" if app[BACKEND].dialect == "ollama" else "/v1"
        yield f"http://{shown}:{runner.addresses[0][1]}{path}"
    finally:
        await runner.cleanup()


async def _list_models(request: web.Request) -> web.Response:
    backend = request.app[BACKEND]
    data = [_model(backend, name) for name in backend.models]
    return json_answer({"object": "list", "data": data})


async def _get_model(request: web.Request) -> web.Response:
    backend = request.app[BACKEND]
    return json_answer(_model(backend, backend.resolve(request.match_info["id"])))


def _model(backend: Backend, name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": backend.started, "owned_by": "simulated"}
