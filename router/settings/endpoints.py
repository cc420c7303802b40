"""The settings of ``endpoints``: the backends, and what is known of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

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

_BUILT_IN: Final = ("responses", "chat", "ollama", "messages")


def _dialects() -> tuple[str, ...]:
    """The dialects that endpoints may speak: a folder that can encode requests and decode streams
    is one (see ``router.dialects.dialect``).
    """
    folders = Path(__file__).parent.parent / "dialects"
    names = {
        part.parent.name
        for part in folders.glob("*/encode_request.py")
        if (part.parent / "decode_stream.py").is_file()
    }
    return (*_BUILT_IN, *sorted(names.difference(_BUILT_IN)))


if TYPE_CHECKING:
    Dialect = Literal["responses", "chat", "ollama", "messages"]
else:
    Dialect = Literal[_dialects()]


class TimeoutSettings(Section):
    """Deadlines of an endpoint."""

    connect: Seconds = 5.0
    """For a connection: name resolution, TCP and TLS."""
    first_byte: Seconds = 60.0
    """For the first byte of a stream."""
    idle: Seconds = 60.0
    """Between two pieces of an answer."""
    total: Seconds = 600.0
    """For the whole answer."""
    load: Seconds = 300.0
    """For a model to be brought into memory."""


class TlsSettings(Section):
    """How an endpoint's certificate is checked."""

    ca_file: Path | None = None
    """Trust the authorities in this PEM file instead of the system's."""
    verify: bool = True
    """Whether the certificate is checked at all."""


class CapabilitySettings(Section):
    """What a model can do at an endpoint; what is left out is assumed, until a refusal tells.

    ``context_length`` is in tokens, input and output. ``tools`` are function tools,
    ``tool_choice`` is ``required`` or a named tool, ``json_schema`` a schema for the answer,
    ``vision`` images in the input, ``files`` files in the input, ``reasoning`` an effort that is
    asked for, ``stream_usage`` token counts in a stream of Chat Completions, ``openai_tools`` what
    OpenAI's Responses API has beside functions: groups of tools, tools that are loaded on demand,
    and custom tools.
    """

    context_length: Count | None = None
    """The context in tokens."""
    tools: bool | None = None
    """Whether it can call functions."""
    tool_choice: bool | None = None
    """Whether it can be made to call one."""
    json_schema: bool | None = None
    """Whether it can answer by a JSON schema."""
    vision: bool | None = None
    """Whether it can see images."""
    files: bool | None = None
    """Whether it reads files, such as PDF; without it `responses` and `messages` do, and of `chat`
    OpenAI's own API. Others are sent the text.
    """
    reasoning: bool | None = None
    """Whether it can be told how much to reason."""
    stream_usage: bool | None = None
    """Whether its streams can end with token counts."""
    openai_tools: bool | None = None
    """Whether a Responses endpoint knows namespaces, tool search and custom tools; where not, they
    are functions to it.
    """


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
    ``translated`` makes requests of the endpoint's own API of them; ``auto`` translates for Ollama
    and for ``messages``, and where it turns out that there is no such route. ``max_tokens``,
    ``thinking``, ``prompt_caching`` and ``citations`` are for ``messages``, whose API requires a
    limit for every answer, keeps no prompt and cites nothing unasked: see
    ``dialects.messages.claude``, ``cache_control`` and ``citations``.
    ``system_messages`` is what becomes, for all dialects but ``responses``, of those after the
    first user message: ``dialects.system_messages``;
    None merges them in translated requests, and leaves passed on Chat Completions as they are.
    ``thinking_switch``, for ``chat`` only, is the variable of the model's chat template that
    switches thinking: ``enable_thinking`` with Qwen's and GLM's, ``thinking`` with DeepSeek's and
    Granite's. vLLM, SGLang and llama.cpp take such variables; other servers may refuse them.
    ``stream_whole_answers``: a stream is asked for also where the client wants its answer in one
    piece, which is put together here. It is for servers that notice only while they stream that
    nobody waits for an answer any more; see ``router.upstream.translated.assembles``.
    """

    name: Name
    """What the endpoint is called in logs, metrics and headers."""
    url: BaseUrl
    """Its base URL, with `/v1` where its API has that."""
    dialect: Dialect
    """What it speaks: `responses`, `chat`, `ollama` or `messages` (Anthropic's API)."""
    api_key: Secret | None = None
    """The key that it is sent."""
    models: Annotated[tuple[Text, ...], AfterValidator(not_empty)] | None = None
    """Its models, or patterns of them; without it the endpoint is asked."""
    aliases: dict[Text, Text] = Field(default_factory=dict)
    """Names, or patterns of names, that clients use, and the names that the endpoint knows."""
    max_in_flight: Count = 32
    """Requests at once for each model; more wait in the queue."""
    weight: Positive = 1.0
    """Its share under `balance.policy: weighted`."""
    priority: Count = 1
    """Its tier under `balance.policy: priority`; 1 is first."""
    timeouts: TimeoutSettings = TimeoutSettings()
    tls: TlsSettings = TlsSettings()
    context_length: Count | None = None
    """The context in tokens of models for which nothing else says it."""
    capabilities: dict[Text, CapabilitySettings] = Field(default_factory=dict)
    """What models can do here, by name or pattern; `pointsman probe` finds out."""
    num_ctx: Count | None = None
    """The context in tokens that Ollama is asked to load models with."""
    keep_alive: KeepAlive | None = None
    """How long Ollama keeps a model in memory; without it its own time."""
    max_tokens: Count | None = None
    """For `dialect: messages`: the tokens of an answer where a request sets no limit; without it as
    many as the model's name tells.
    """
    thinking: Literal["auto", "adaptive", "budget", "off"] = "auto"
    """For `dialect: messages`: a reasoning effort becomes `adaptive` thinking, a `budget` of tokens
    or nothing (`off`); `auto` goes by the model's name.
    """
    prompt_caching: Literal["auto", "off"] = "auto"
    """For `dialect: messages`: whether translated prompts are marked for the endpoint's cache."""
    citations: bool = False
    """For `dialect: messages`: whether answers to translated requests may cite their documents."""
    chat_completions: Literal["auto", "native", "translated"] = "auto"
    """Chat Completions pass as they are (`native`), are `translated`, or, with `auto`, what it has.
    """
    system_messages: Literal["merge", "keep", "user"] | None = None
    """Later system messages are merged into the first (`merge`), kept (`keep`), or sent as the
    user's (`user`).
    """
    thinking_switch: Literal["enable_thinking", "thinking"] | None = None
    """The field of `chat_template_kwargs` that switches thinking, where the engine takes them.
    """
    stream_whole_answers: bool = False
    """Whether whole answers are asked for as streams, so that engines notice a client that leaves.
    """

    @field_validator("num_ctx", "keep_alive", mode="after")
    @classmethod
    def _only_ollama_has_it(cls, value: object, info: ValidationInfo) -> object:
        if value is not None and info.data.get("dialect", "ollama") != "ollama":
            raise wrong("is for endpoints with dialect: ollama only")
        return value

    @field_validator("max_tokens", "thinking", "prompt_caching", "citations", mode="after")
    @classmethod
    def _only_messages_has_it(cls, value: object, info: ValidationInfo) -> object:
        is_set = value not in (None, "auto", False)
        if is_set and info.data.get("dialect", "messages") != "messages":
            raise wrong("is for endpoints with dialect: messages only")
        return value

    @field_validator("system_messages", mode="after")
    @classmethod
    def _translated_messages_have_it(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("dialect") == "responses":
            raise wrong("is for endpoints with dialect: chat, ollama or messages only")
        return value

    @field_validator("thinking_switch", mode="after")
    @classmethod
    def _chat_templates_have_it(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("dialect", "chat") != "chat":
            raise wrong("is for endpoints with dialect: chat only")
        return value

    @field_validator("chat_completions", mode="after")
    @classmethod
    def _chat_speaks_it(cls, value: str, info: ValidationInfo) -> str:
        dialect = info.data.get("dialect")
        if value == "translated" and dialect == "chat":
            raise wrong("cannot be translated for endpoints with dialect: chat, which speak it")
        if value == "native" and dialect == "messages":
            raise wrong("cannot be native for endpoints with dialect: messages")
        return value
