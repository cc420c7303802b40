"""Pointsman, a router in front of a fleet of LLM backends.

The way of a request::

    client ── HTTP ──▶ router/http      decode, validate, one error envelope
                          │  Exchange   (caller, operation, model, request, ids)
                          ▼
                     guards             plugins that may refuse: API keys … (observers listen)
                          │
                          ▼
                     router/sessions    prompt, history, conversation → the whole history
                          │             (background runs are stored first, then executed)
                          ▼
                     interceptors       plugins that may answer instead: limits, the cache …
                          │
                          ▼
                     router/pipeline    plan → choose an endpoint → attempt → record
                          │
                          ▼
                     router/upstream    one adapter per dialect: responses | chat | ollama
                          │  batches of Frames (router/dialects, router/response)
                          ▼
                     back out the same way

The rooms, from the top: ``cli``, ``http``, ``sessions``, ``pipeline``, ``tools``, ``usage``;
``endpoints``, ``upstream``, ``state`` and ``fetch`` beside each other; ``core`` and ``telemetry``;
``dialects``, ``response`` and ``balance``, which are pure; ``settings`` and ``errors``. Imports
point downward only; ``lint-imports`` checks it. Each room's ``__init__`` says what is in it.

The primitives:

- ``Exchange`` (``core.exchange``): one request's life, handed from room to room: what came in
  (``ClientRequest``), what it is answered in (``ExchangeContext``), and how it was answered
  (``ExchangeResult``).
- ``ClientApi``, ``EndpointDialect`` (``dialects.dialect``): what a folder of ``dialects`` declares;
  between them there is one form, a Responses request and the events of a response.
- ``RequestField`` (``dialects.responses.field_types``): what a field of that request is, declared
  once, in ``dialects.responses.fields``.
- ``Sink`` (``core.exchange``): where an answer goes. Streams are pushed: ``sink.feed(batch)``.
- ``Frame`` (``response.frame``): one server-sent event, decoded when someone asks.
- ``PluginChain`` (``core.plugin_chain``): guards, gates, interceptors and observers, frozen per
  configuration. What plugins may use is in ``router.plugin``.
- ``PluginSet`` (``core.plugin_chain``): the plugins of one configuration; a reload makes another.
- ``Fleet`` (``pipeline.hedging``): the endpoints, and what decides between them; survives reloads.
- ``Deployment`` (``endpoints.deployment``): a model at an endpoint: slots, breaker, averages.
- ``Plan``, ``SlotReservation`` (``endpoints``): where a request may go, and the slot it got.
- ``ResponseBuilder`` (``response.builder``): the response under construction, across attempts.
- ``ToolLoop``, ``HostedTool`` (``tools``): asks a model again with what the tools that it called
  gave back.
- ``Compactor`` (``tools.compaction``): has a model write summaries of conversations, which only
  routers can read.
- ``StreamDecoder`` (``response.decoder``): an endpoint's bytes in, response events out. Pure.
- ``Adapter``, ``Transport`` (``core.upstream``): how an endpoint is spoken to.
- ``UsageRecorder`` (``usage.recorder``): makes a ``UsageRecord`` (``core.usage_record``) of every
  attempt.
- ``Key`` (``core.key``), ``RateLimiter`` (``usage.rate_limiter``): what a client may use, and what
  counts how much it does.
- ``UsageLedger`` (``usage.ledger``): keeps the usage records, through a journal that survives a
  kill.
- ``ExchangeRecord`` (``core.exchange``): keeps an answer, before its last event leaves.
- ``Database`` (``state.database``): what the stores of responses, conversations, prompts and runs
  are built on; SQLite or PostgreSQL.

Start reading at ``router/pipeline/run.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiohttp import web

    from router.settings.schema import Settings

__all__ = ["create_app"]


def create_app(config: Settings | dict[str, Any]) -> web.Application:
    """An ``aiohttp.web.Application`` for this configuration; see ``router.app.create_app``.

    ``config`` may be a plain dictionary in the form of the configuration file.
    """
    # Imported here: whoever wants one small module of this package need not load all of it.
    from router.app import create_app as create
    from router.settings.schema import Settings

    return create(config if isinstance(config, Settings) else Settings.model_validate(config))
