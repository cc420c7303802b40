"""Pointsman, a router in front of a fleet of LLM backends.

The way of a request::

    client ── HTTP ──▶ router/web       parse, validate, one error envelope
                          │  Exchange   (caller, operation, model, request, ids)
                          ▼
                     guards             plugins that may refuse: API keys … (observers listen)
                          │
                          ▼
                     router/turns       prompt, chain, conversation → the whole history
                          │             (runs are stored first: router/runs executes them)
                          ▼
                     interceptors       plugins that may answer instead
                          │
                          ▼
                     router/pipeline    plan → choose endpoint → attempt → translate → record
                          │                 failover, balance   upstream   translate
                          ▼
                     upstream           responses | chat | ollama
                          │  batches of Frames
                          ▼
                     back out the same way

The primitives:

- ``Exchange`` (``router.exchange``): one request's life, handed from room to room.
- ``Sink`` (``router.exchange``): where an answer goes. Streams are pushed: ``sink.feed(batch)``.
- ``Frame`` (``router.wire.frame``): one server-sent event, decoded when someone asks.
- ``Generation`` (``router.generations``): the plugins of one configuration; a reload makes another.
- ``Fleet`` (``router.fleet``): the endpoints, and what decides between them; it survives reloads.
- ``Target`` (``router.endpoints.target``): a model at an endpoint: slots, breaker, averages.
- ``Plan``, ``Reservation`` (``router.endpoints``): where a request may go, and the slot it got.
- ``Draft`` (``router.translate.draft``): the response under construction, across attempts.
- ``Reader`` (``router.translate.reader``): an endpoint's bytes in, response events out. Pure.
- ``Adapter``, ``Transport`` (``router.upstream.contract``): how an endpoint is spoken to.
- ``Booking`` (``router.booking``): makes a ``Row`` (``router.accounts.row``) of every attempt.
- ``Key``, ``Meter`` (``router.accounts``): what a client may use, and what counts how much it does.
- ``Ledger`` (``router.books.ledger``): keeps the rows, through a journal that survives a kill.
- ``Record`` (``router.exchange``): keeps an answer, before its last event leaves.
- ``Database`` (``router.state.database``): what the stores of responses, conversations, prompts
  and runs are built on; SQLite or PostgreSQL.
- ``Chain`` (``router.plugin``): guards, interceptors and observers, frozen per configuration.

Start reading at ``router/pipeline.py``. Imports point downward only; ``lint-imports`` checks it.
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
