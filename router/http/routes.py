"""The route table: every path that is served, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import hdrs, web

from router.core.exchange import Exchange, Operation
from router.dialects.ollama.schema import OLLAMA
from router.errors import MethodNotAllowed, NotFound
from router.http.admin import AdminApi
from router.http.body import expect_later
from router.http.chat import ChatApi
from router.http.containers import ContainersApi
from router.http.conversations import ConversationsApi
from router.http.description.api import DescriptionApi
from router.http.dispatcher import UNKNOWN, DirectHandler, Handler, RequestDispatcher
from router.http.embeddings import EmbeddingsApi
from router.http.files import FilesApi
from router.http.models import ModelsApi
from router.http.ollama import OllamaApi
from router.http.ollama import Route as OllamaRoute
from router.http.ollama_manage import OllamaManage
from router.http.ollama_models import OllamaModels, heartbeat
from router.http.prompts import PromptsApi
from router.http.responses import ResponsesApi
from router.http.service import Service
from router.http.stored import StoredApi
from router.http.translated import TranslatedApi
from router.http.usage import UsageApi
from router.http.vector_stores import VectorStoresApi
from router.http.websocket import WebSocketApi

__all__ = ["PREFIXES", "Apis", "add_routes"]

PREFIXES: Final = ("/v1", "/api/v1")
ADMIN: Final = "/admin"
OLLAMAS: Final = "/api"

_Route = tuple[str, str, Operation, Handler]
_DirectRoute = tuple[str, str, Operation, DirectHandler]


@dataclass(frozen=True, slots=True)
class Apis:
    """The handlers of every API family."""

    responses: ResponsesApi
    stored: StoredApi
    conversations: ConversationsApi
    prompts: PromptsApi
    containers: ContainersApi
    files: FilesApi
    vector_stores: VectorStoresApi
    chat: ChatApi
    plain: EmbeddingsApi
    translated: Sequence[TranslatedApi]
    websocket: WebSocketApi
    models: ModelsApi
    admin: AdminApi
    usage: UsageApi
    ollama: OllamaApi
    ollama_models: OllamaModels
    ollama_manage: OllamaManage
    description: DescriptionApi


def add_routes(
    app: web.Application,
    dispatcher: RequestDispatcher,
    api: Apis,
    service: Service,
    *,
    metrics_opened_by: str,
) -> None:
    """Add every route to ``app``, and the answer to every other path."""
    for prefix in PREFIXES:
        for method, path, operation, asked in _asking(api):
            guarded = dispatcher.route_direct(operation, prefix + path, asked)
            app.router.add_route(method, prefix + path, guarded, expect_handler=expect_later)
        for method, path, operation, handler in _table(api):
            template = prefix + path
            guarded = dispatcher.route(operation, template, handler)
            app.router.add_route(method, template, guarded, expect_handler=expect_later)
        api.websocket.add_routes(app, prefix + "/responses")
    for translated in api.translated:
        translated.add_routes(app)
    for method, path, operation, asked in api.plain.elsewhere():
        guarded = dispatcher.route_direct(operation, path, asked)
        app.router.add_route(method, path, guarded, expect_handler=expect_later)
    _add_ollama(app, dispatcher, api)
    _add_admin(app, dispatcher, api.admin)
    app.router.add_get("/health", dispatcher.unlogged(service.health))
    app.router.add_get("/ready", dispatcher.unlogged(service.ready))
    app.router.add_get("/openapi.json", dispatcher.unlogged(api.description.openapi))
    app.router.add_get("/docs", dispatcher.unlogged(api.description.docs))
    if metrics_opened_by == "metrics":
        guarded = dispatcher.route(
            Operation.OTHER, "/metrics", service.metrics_with_key, service.admit_scraper
        )
        app.router.add_get("/metrics", guarded)
    elif metrics_opened_by == "client":
        guarded = dispatcher.route(Operation.OTHER, "/metrics", service.metrics_with_key)
        app.router.add_get("/metrics", guarded)
    else:
        app.router.add_get("/metrics", dispatcher.unlogged(service.metrics))
    unknown = dispatcher.route(Operation.OTHER, UNKNOWN, unknown_route)
    app.router.add_route("*", "/{path:[\\s\\S]*}", unknown, expect_handler=expect_later)


def _add_admin(app: web.Application, dispatcher: RequestDispatcher, admin: AdminApi) -> None:
    """The routes with a key of their own, what is not there among them included."""
    for method, path, handler in [*admin.routes(), ("*", "/{path:[\\s\\S]*}", unknown_route)]:
        template = ADMIN + path
        shown = UNKNOWN if method == "*" else template
        guarded = dispatcher.route(Operation.ADMIN, shown, admin.private(handler), admin.admit)
        app.router.add_route(method, template, guarded, expect_handler=expect_later)


def _add_ollama(app: web.Application, dispatcher: RequestDispatcher, api: Apis) -> None:
    """Ollama's API, what is not there below its prefix included: its errors look otherwise."""
    unknown = ("*", "/{path:(?!v1(/|$))[\\s\\S]*}", Operation.OTHER, unknown_route, None)
    routes: list[OllamaRoute] = [
        *api.ollama.routes(), *api.ollama_models.routes(), *api.ollama_manage.routes(), unknown
    ]  # fmt: skip
    for method, path, operation, handler, admit in routes:
        template = OLLAMAS + path
        shown = UNKNOWN if method == "*" else template
        guarded = dispatcher.route(operation, shown, handler, admit, OLLAMA)
        app.router.add_route(method, template, guarded, expect_handler=expect_later)
    app.router.add_get("/", dispatcher.unlogged(heartbeat, OLLAMA))  # HEAD too


def _asking(api: Apis) -> list[_DirectRoute]:
    """What asks a model: the requests that there are many of."""
    responses = api.responses
    return [
        ("POST", "/responses", Operation.RESPONSES, responses.create),
        ("POST", "/responses/input_tokens", Operation.INPUT_TOKENS, responses.input_tokens),
        ("POST", "/responses/compact", Operation.COMPACT, responses.compact),
        ("POST", "/chat/completions", Operation.CHAT, api.chat.create),
        *api.plain.routes(),
    ]


def _table(api: Apis) -> list[_Route]:
    stored, conversations, prompts = api.stored, api.conversations, api.prompts
    kept, held, templates, uploaded, sandboxes = (
        Operation.STORED_RESPONSES, Operation.CONVERSATIONS, Operation.PROMPTS, Operation.FILES,
        Operation.CONTAINERS,
    )  # fmt: skip
    return [
        ("GET", "/responses/{id}", kept, stored.retrieve),
        ("DELETE", "/responses/{id}", kept, stored.delete),
        ("POST", "/responses/{id}/cancel", kept, stored.cancel),
        ("GET", "/responses/{id}/input_items", kept, stored.input_items),
        *((method, path, held, handler) for method, path, handler in conversations.routes()),
        *((method, path, templates, handler) for method, path, handler in prompts.routes()),
        *((method, path, sandboxes, handler) for method, path, handler in api.containers.routes()),
        *((method, path, uploaded, handler) for method, path, handler in api.files.routes()),
        *(
            (method, path, Operation.VECTOR_STORES, handler)
            for method, path, handler in api.vector_stores.routes()
        ),
        ("GET", "/usage", Operation.USAGE, api.usage.own),
        ("GET", "/models", Operation.MODELS, api.models.index),
        ("GET", "/models/{id:.+}", Operation.MODELS, api.models.get),
    ]


async def unknown_route(request: web.Request, exchange: Exchange) -> web.StreamResponse:
    """Every path and method that is not in the table."""
    allowed: set[str] = set()
    for resource in request.match_info.apps[-1].router.resources():
        match, methods = await resource.resolve(request)
        if match is None:  # the one that matches is this very handler's
            allowed |= methods
    if allowed:
        raise MethodNotAllowed(
            f"{request.method} is not allowed for {request.path[:200]}; it takes "
            f"{', '.join(sorted(allowed))}.",
            code="method_not_allowed",
            headers={hdrs.ALLOW: ", ".join(sorted(allowed))},
        )
    raise NotFound(
        f"Unknown request URL: {request.method} {request.path[:200]}.", code="unknown_url"
    )
