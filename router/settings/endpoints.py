"""The settings of ``endpoints``: the backends, and what is known of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from router.settings.section import Section
from router.settings.values import (
    BaseUrl,
    Count,
    KeepAlive,
    Name,
    Positive,
    Seconds,
    Secret,
    Text,
    not_empty,
    wrong,
)

__all__ = ["CapabilitySettings", "Dialect", "EndpointSettings", "TimeoutSettings", "TlsSettings"]

Dialect = Literal["responses", "chat", "ollama"]


class TimeoutSettings(Section):
    """Deadlines of one attempt, in seconds.

    ``connect`` to an open connection, ``first_byte`` from there to the first byte of the answer,
    ``idle`` between two reads, ``total`` for everything. ``load`` is what a model that is not in
    memory gets to be loaded, before an attempt begins.
    """

    connect: Seconds = 5.0
    first_byte: Seconds = 60.0
    idle: Seconds = 60.0
    total: Seconds = 600.0
    load: Seconds = 300.0


class TlsSettings(Section):
    """How the certificate of an https endpoint is checked; ``ca_file`` is PEM."""

    ca_file: Path | None = None
    verify: bool = True


class CapabilitySettings(Section):
    """What a model can do at an endpoint; what is left out is assumed, until a refusal tells.

    ``context_length`` is in tokens, input and output. ``tools`` are function tools,
    ``tool_choice`` is ``required`` or a named tool, ``json_schema`` a schema for the answer,
    ``vision`` images in the input, ``reasoning`` an effort that is asked for, ``stream_usage``
    token counts in a stream of Chat Completions.
    """

    context_length: Count | None = None
    tools: bool | None = None
    tool_choice: bool | None = None
    json_schema: bool | None = None
    vision: bool | None = None
    reasoning: bool | None = None
    stream_usage: bool | None = None


class EndpointSettings(Section):
    """One backend.

    ``models`` are names or shell-style patterns; None means that the endpoint is asked.
    ``aliases`` map the name a client uses, or a pattern of such names, to the name the endpoint
    knows. ``max_in_flight`` counts requests per model. ``context_length`` is the context of its
    models in tokens, input and output, where ``capabilities`` say nothing of it; ``num_ctx``, for
    Ollama only, is the one that it is told to use, and takes the place of ``context_length`` where
    that is left out. ``capabilities`` are by the endpoint's own name for a model, or by pattern; of
    several that match, later ones win.
    ``priority`` is its tier for the policy of that name: 1 is first. ``keep_alive`` is how long
    Ollama is told to keep models in memory. ``chat_completions``: ``native`` passes them on,
    ``translated`` makes requests of the endpoint's own API of them; ``auto`` translates for Ollama,
    and where it turns out that there is no such route. ``system_messages`` is what becomes, for
    ``chat`` and ``ollama``, of those after the first user message: ``dialects.system_messages``;
    None merges them in translated requests, and leaves passed on Chat Completions as they are.
    ``stream_whole_answers``: a stream is asked for also where the client wants its answer in one
    piece, which is put together here. It is for servers that notice only while they stream that
    nobody waits for an answer any more; see ``router.upstream.shared.assembles``.
    """

    name: Name
    url: BaseUrl
    dialect: Dialect
    api_key: Secret | None = None
    models: Annotated[tuple[Text, ...], AfterValidator(not_empty)] | None = None
    aliases: dict[Text, Text] = Field(default_factory=dict)
    max_in_flight: Count = 32
    weight: Positive = 1.0
    priority: Count = 1
    timeouts: TimeoutSettings = TimeoutSettings()
    tls: TlsSettings = TlsSettings()
    context_length: Count | None = None
    capabilities: dict[Text, CapabilitySettings] = Field(default_factory=dict)
    num_ctx: Count | None = None
    keep_alive: KeepAlive | None = None
    chat_completions: Literal["auto", "native", "translated"] = "auto"
    system_messages: Literal["merge", "keep", "user"] | None = None
    stream_whole_answers: bool = False

    @field_validator("num_ctx", "keep_alive", mode="after")
    @classmethod
    def _only_ollama_has_it(cls, value: object, info: ValidationInfo) -> object:
        if value is not None and info.data.get("dialect", "ollama") != "ollama":
            raise wrong("is for endpoints with dialect: ollama only")
        return value

    @field_validator("system_messages", mode="after")
    @classmethod
    def _translated_messages_have_it(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("dialect") == "responses":
            raise wrong("is for endpoints with dialect: chat or ollama only")
        return value

    @field_validator("chat_completions", mode="after")
    @classmethod
    def _chat_speaks_it(cls, value: str, info: ValidationInfo) -> str:
        if value == "translated" and info.data.get("dialect") == "chat":
            raise wrong("cannot be translated for endpoints with dialect: chat, which speak it")
        return value
