"""What a request asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Final

__all__ = ["AnswerKind", "Operation"]


class AnswerKind(Enum):
    """What sort of answer an operation has, and so what is done for it."""

    RESPONSE = "a response: the body is a Responses request, whatever API it came by"
    COMPACT = "fewer items that stand for a history"
    COUNT = "how many tokens a Responses request has"
    CHAT = "a chat completion: the body is as it came, to be passed on or translated"
    COMPLETIONS = "a legacy completion"
    EMBEDDINGS = "embeddings"
    RERANK = "ranked documents"
    OTHER = "nothing that a model makes"

    __hash__ = object.__hash__  # it is asked for with every request; Enum's runs in Python


_GENERATES: Final = frozenset(
    {AnswerKind.RESPONSE, AnswerKind.CHAT, AnswerKind.COMPLETIONS, AnswerKind.COMPACT}
)
_TEMPLATED: Final = frozenset({AnswerKind.RESPONSE, AnswerKind.CHAT})


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """An operation of an API. ``value`` is its name in metrics and logs; ``translated`` says that
    its requests are made of those of another API than the one that its answer is of.

    ``generates``: a model writes text. ``templated``: a chat template makes the prompt.
    ``counted``: tokens are used, so that it is limited, and paid for.
    """

    value: str
    kind: AnswerKind = AnswerKind.OTHER
    translated: bool = False
    generates: bool = field(init=False)
    templated: bool = field(init=False)
    counted: bool = field(init=False)

    def __post_init__(self) -> None:
        kind = self.kind
        object.__setattr__(self, "generates", kind in _GENERATES)
        object.__setattr__(self, "templated", kind in _TEMPLATED)
        object.__setattr__(self, "counted", kind not in (AnswerKind.OTHER, AnswerKind.COUNT))

    RESPONSES: ClassVar[Operation]
    RUN: ClassVar[Operation]
    WEBSOCKET: ClassVar[Operation]
    INPUT_TOKENS: ClassVar[Operation]
    COMPACT: ClassVar[Operation]
    SUMMARY: ClassVar[Operation]
    STORED_RESPONSES: ClassVar[Operation]
    CONVERSATIONS: ClassVar[Operation]
    PROMPTS: ClassVar[Operation]
    CONTAINERS: ClassVar[Operation]
    FILES: ClassVar[Operation]
    VECTOR_STORES: ClassVar[Operation]
    CHAT: ClassVar[Operation]
    COMPLETIONS: ClassVar[Operation]
    EMBEDDINGS: ClassVar[Operation]
    RERANK: ClassVar[Operation]
    MESSAGES: ClassVar[Operation]
    OLLAMA_CHAT: ClassVar[Operation]
    OLLAMA_GENERATE: ClassVar[Operation]
    OLLAMA_EMBED: ClassVar[Operation]
    OLLAMA: ClassVar[Operation]
    MODELS: ClassVar[Operation]
    USAGE: ClassVar[Operation]
    ADMIN: ClassVar[Operation]
    OTHER: ClassVar[Operation]


Operation.RESPONSES = Operation("responses", AnswerKind.RESPONSE)
Operation.RUN = Operation("runs", AnswerKind.RESPONSE)
Operation.WEBSOCKET = Operation("websocket")
Operation.INPUT_TOKENS = Operation("input_tokens", AnswerKind.COUNT)
Operation.COMPACT = Operation("compact", AnswerKind.COMPACT)
Operation.SUMMARY = Operation("compaction", AnswerKind.RESPONSE)
Operation.STORED_RESPONSES = Operation("stored_responses")
Operation.CONVERSATIONS = Operation("conversations")
Operation.PROMPTS = Operation("prompts")
Operation.CONTAINERS = Operation("containers")
Operation.FILES = Operation("files")
Operation.VECTOR_STORES = Operation("vector_stores")
Operation.CHAT = Operation("chat_completions", AnswerKind.CHAT)
Operation.COMPLETIONS = Operation("completions", AnswerKind.COMPLETIONS)
Operation.EMBEDDINGS = Operation("embeddings", AnswerKind.EMBEDDINGS)
Operation.RERANK = Operation("rerank", AnswerKind.RERANK)
Operation.MESSAGES = Operation("messages", AnswerKind.RESPONSE, translated=True)
Operation.OLLAMA_CHAT = Operation("ollama_chat", AnswerKind.RESPONSE, translated=True)
Operation.OLLAMA_GENERATE = Operation("ollama_generate", AnswerKind.RESPONSE, translated=True)
Operation.OLLAMA_EMBED = Operation("ollama_embed", AnswerKind.EMBEDDINGS, translated=True)
Operation.OLLAMA = Operation("ollama")
Operation.MODELS = Operation("models")
Operation.USAGE = Operation("usage")
Operation.ADMIN = Operation("admin")
Operation.OTHER = Operation("other")
