"""Everything that a plugin may use, and the only module of the router that it imports.

The bundled plugins in ``plugins`` are written with these names alone, and so can be anybody's.
docs/plugins.md is the guide; what each name is, its own docstring says.

Hooks
    ``Guard``, ``Gate``, ``Interceptor`` and ``Observer`` are what a plugin can be, all of them
    ``Plugin``. ``Leave`` is what a gate may leave behind, ``Proceed`` the rest of the chain.

Making one
    ``PluginFactory``: whoever makes a plugin is given a ``PluginContext``, with the ``Settings``,
    the plugin's options, ``PluginMetrics`` to declare a ``PluginCounter``, ``PluginGauge`` or
    ``PluginHistogram`` with, a logger, a ``PluginClock`` and the ``PluginServices``, which have
    ``UsageAccounts`` and a ``ModelDirectory``. ``PluginOptionsError`` is for options that cannot be
    used.

Requests and answers
    ``Exchange`` is one request: its ``ClientRequest`` (what came in, with its ``Operation``, whose
    ``AnswerKind`` says what sort of answer it has), its ``ExchangeContext`` (who asks), and its
    ``ExchangeResult``, with the ``Outcome``. Its answer goes into a ``Sink``, as events (``Frame``)
    or in one piece; ``PassingSink`` is for those that change what passes, and ``ClientGone`` is
    raised by a sink that nobody reads any more.

Errors
    ``RouterError`` and its subclasses are answers: raise one to refuse a request.
    ``internal_error`` is what a client is told of a bug.

Keys and usage
    ``Key`` is what a client may use and how much of it, ``check_model`` refuses a model to one,
    ``presented_key`` is the key that a request carries, and a ``KeyResolver`` finds keys, a
    ``NamedKeyResolver`` also by their names.
    ``UsageRecord`` is what became of one attempt at an endpoint; ``Tokens`` are counted in
    ``NO_TOKENS`` and money in ``NANO`` parts of a dollar. ``usage_tokens`` reads a ``usage``
    object, and ``Provenance`` says where its numbers are from. ``Saved`` is told of answers that
    no endpoint was asked for.

Limits
    ``RateLimiter`` makes a ``Reservation`` of a ``Demand``; ``OverLimit`` and ``BudgetTooSmall``
    are its refusals, of which ``LimitHit`` is told. ``LimitKind``, ``TagBudgets``, ``NO_TAGS``,
    ``tag_budgets``, ``is_limited``, ``rules_of`` and ``most_tokens`` are about what a key's limits
    and budgets come to, ``prompt_chars``, ``longest_prompt_chars``, ``estimate_tokens``,
    ``prompt_count`` and ``answer_count`` about the size of a request.

Answers of one's own
    Those that answer in an API's own form need ``ResponseBuilder``, ``StreamState`` and
    ``new_builder``, ``new_id`` (``ID_DIGITS`` behind its prefix), ``replay_response``,
    ``ResponseFollower`` and ``ChatFollower``, ``TERMINAL``, ``DELTAS``, ``PartialOutput``,
    ``output_text``, ``frame_tokens``, ``answer_of_chat``, ``CACHE_RULES`` (what the cache has to
    know of the fields of a request), ``hosted_tool_name``, ``chat_chunks``, ``chat_completion``,
    ``completion_chunks`` and ``finished_completion``.
    ``persist`` and ``persist_whole`` store the answer, ``client_headers`` are what goes out with
    it (``REASONING_DROPPED``: what was left out of its request). The ``PluginChain`` of an exchange
    is told of its first output; it and ``PluginSet`` are for requests that a plugin makes, too.

Running
    The sections of the settings ``EndpointSettings``, ``CacheSettings`` and ``TracingSettings``;
    ``SettingsError`` of ``Mistake`` for those that cannot be used, ``install_extra`` for what is
    not installed. ``get_logger``, ``LineLog`` (for a line with every request), ``Metrics``,
    ``CacheMetrics`` and ``OTHER`` (a label for whatever has none), ``AttemptTrace`` and
    ``NO_TRACE``; ``Tasks`` for what goes on beside.
"""

from __future__ import annotations

from router.core.exchange import (
    AnswerKind,
    ClientGone,
    ClientRequest,
    Exchange,
    ExchangeContext,
    ExchangeResult,
    Operation,
    Outcome,
    PassingSink,
    Sink,
    internal_error,
)
from router.core.key import Key, KeyResolver, check_model, is_limited, presented_key
from router.core.plugin_chain import PluginChain, PluginSet
from router.core.plugin_hooks import Gate, Guard, Interceptor, Leave, Observer, Plugin, Proceed
from router.core.response_lifecycle import (
    ID_DIGITS,
    client_headers,
    new_builder,
    new_id,
    persist,
    persist_whole,
)
from router.core.upstream import REASONING_DROPPED
from router.core.usage_record import NANO, NO_TOKENS, Provenance, Tokens, UsageRecord
from router.core.usage_record import tokens_of as usage_tokens
from router.dialects.chat.replay import answer_of_chat
from router.dialects.chat.replay import chunks as chat_chunks
from router.dialects.chat.replay import completion as chat_completion
from router.dialects.completions.replay import completion_chunks, finished_completion
from router.dialects.responses.fields import CACHE_RULES
from router.dialects.responses.tools import hosted_tool_name
from router.errors import (
    AuthenticationFailed,
    Conflict,
    Forbidden,
    InternalError,
    InvalidRequest,
    LimitsUnavailable,
    ModelNotFound,
    NotCached,
    NotFound,
    NotSupported,
    Overloaded,
    PayloadTooLarge,
    QuotaExceeded,
    RateLimitExceeded,
    RouterError,
    ShuttingDown,
    StateUnavailable,
    UpstreamError,
)
from router.plugin_context import (
    LimitHit,
    ModelDirectory,
    NamedKeyResolver,
    PluginClock,
    PluginContext,
    PluginFactory,
    PluginOptionsError,
    PluginServices,
    Saved,
    UsageAccounts,
)
from router.response.builder import ResponseBuilder, StreamState, output_text
from router.response.frame import TERMINAL, Frame
from router.response.partial import DELTAS, PartialOutput
from router.response.replay import frame_tokens
from router.response.replay import replay as replay_response
from router.response.subscriber import ChatFollower, ResponseFollower
from router.response.tokens import answers as answer_count
from router.response.tokens import estimate_tokens, longest_prompt_chars, prompt_chars
from router.response.tokens import prompts as prompt_count
from router.settings.cache import CacheSettings
from router.settings.document import Mistake, SettingsError
from router.settings.schema import EndpointSettings, Settings
from router.settings.tracing import TracingSettings
from router.settings.words import install_extra
from router.telemetry.cache_metrics import CacheMetrics
from router.telemetry.line_log import LineLog
from router.telemetry.log import get_logger
from router.telemetry.metrics import OTHER, Metrics
from router.telemetry.plugin_metrics import (
    PluginCounter,
    PluginGauge,
    PluginHistogram,
    PluginMetrics,
)
from router.telemetry.tasks import Tasks
from router.telemetry.trace import NO_TRACE, AttemptTrace
from router.usage.budgets import NO_TAGS, BudgetTooSmall, TagBudgets, tag_budgets
from router.usage.limits import OverLimit, most_tokens, rules_of
from router.usage.limits import What as LimitKind
from router.usage.rate_limiter import Demand, RateLimiter, Reservation

__all__ = [
    "CACHE_RULES",
    "DELTAS",
    "ID_DIGITS",
    "NANO",
    "NO_TAGS",
    "NO_TOKENS",
    "NO_TRACE",
    "OTHER",
    "REASONING_DROPPED",
    "TERMINAL",
    "AnswerKind",
    "AttemptTrace",
    "AuthenticationFailed",
    "BudgetTooSmall",
    "CacheMetrics",
    "CacheSettings",
    "ChatFollower",
    "ClientGone",
    "ClientRequest",
    "Conflict",
    "Demand",
    "EndpointSettings",
    "Exchange",
    "ExchangeContext",
    "ExchangeResult",
    "Forbidden",
    "Frame",
    "Gate",
    "Guard",
    "Interceptor",
    "InternalError",
    "InvalidRequest",
    "Key",
    "KeyResolver",
    "Leave",
    "LimitHit",
    "LimitKind",
    "LimitsUnavailable",
    "LineLog",
    "Metrics",
    "Mistake",
    "ModelDirectory",
    "ModelNotFound",
    "NamedKeyResolver",
    "NotCached",
    "NotFound",
    "NotSupported",
    "Observer",
    "Operation",
    "Outcome",
    "OverLimit",
    "Overloaded",
    "PartialOutput",
    "PassingSink",
    "PayloadTooLarge",
    "Plugin",
    "PluginChain",
    "PluginClock",
    "PluginContext",
    "PluginCounter",
    "PluginFactory",
    "PluginGauge",
    "PluginHistogram",
    "PluginMetrics",
    "PluginOptionsError",
    "PluginServices",
    "PluginSet",
    "Proceed",
    "Provenance",
    "QuotaExceeded",
    "RateLimitExceeded",
    "RateLimiter",
    "Reservation",
    "ResponseBuilder",
    "ResponseFollower",
    "RouterError",
    "Saved",
    "Settings",
    "SettingsError",
    "ShuttingDown",
    "Sink",
    "StateUnavailable",
    "StreamState",
    "TagBudgets",
    "Tasks",
    "Tokens",
    "TracingSettings",
    "UpstreamError",
    "UsageAccounts",
    "UsageRecord",
    "answer_count",
    "answer_of_chat",
    "chat_chunks",
    "chat_completion",
    "check_model",
    "client_headers",
    "completion_chunks",
    "estimate_tokens",
    "finished_completion",
    "frame_tokens",
    "get_logger",
    "hosted_tool_name",
    "install_extra",
    "internal_error",
    "is_limited",
    "longest_prompt_chars",
    "most_tokens",
    "new_builder",
    "new_id",
    "output_text",
    "persist",
    "persist_whole",
    "presented_key",
    "prompt_chars",
    "prompt_count",
    "replay_response",
    "rules_of",
    "tag_budgets",
    "usage_tokens",
]
