"""Input items as the ``system`` and ``messages`` of Anthropic's Messages.

Messages of one role in a row are one. An answer's blocks (thinking, text, calls) keep their order;
the results of its calls are the first blocks of the user's message that follows it, wherever they
stood. Texts of system and developer messages at the beginning are ``system``; for later ones see
``router.dialects.system_messages``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from router.dialects.chat.messages import refuse_unsayable
from router.dialects.history import arguments_object, match
from router.dialects.hosted_items import placed_function_items
from router.dialects.messages.blocks import blocks_of_content, text_block
from router.dialects.messages.sealing import thinking_block
from router.dialects.parts import Where, refused
from router.dialects.responses.input_items import item_type
from router.dialects.system_messages import SYSTEM_ROLES, SystemMessages
from router.errors import InvalidRequest

__all__ = ["EncodedHistory", "encode_history"]

Block = dict[str, Any]

_CALLS: Final = frozenset({"function_call", "custom_tool_call"})
_RESULTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
_CALL_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_THINKING: Final = ("thinking", "redacted_thinking")


@dataclass(slots=True)
class EncodedHistory:
    """``system`` are blocks of text. ``foreign_reasoning`` is how many items of encrypted reasoning
    another account had issued.
    """

    system: list[Block] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    foreign_reasoning: int = 0


def encode_history(
    body: Mapping[str, Any], *, account: str, later_system: SystemMessages = "merge"
) -> EncodedHistory:
    """The history of a validated body. ``account`` is the endpoint's mark, for reasoning that it
    has encrypted; ``later_system`` is what becomes of system messages that are not at the
    beginning. Raises InvalidRequest for what cannot be carried, with the path to it.
    """
    builder = _HistoryBuilder(account, later_system)
    instructions, given = body.get("instructions"), body.get("input")
    if isinstance(instructions, str):
        builder.made.system += blocks_of_content(instructions, ("instructions",))
    elif instructions:
        builder.add(instructions, "instructions")
    if isinstance(given, str):
        builder.user(blocks_of_content(given, ("input",)))
    elif given:
        builder.add(given, "input")
    made = builder.made
    _trim_end(made.messages)
    if not made.messages and made.system:
        # A prompt of nothing but a system message: Anthropic's has to begin with a user's.
        made.system, content = [], made.system
        made.messages = [{"role": "user", "content": content}]
    if not made.messages:
        raise InvalidRequest(
            "Invalid 'input': this model's endpoint needs a text, or something else to answer.",
            code="invalid_value",
            param="input",
        )
    return made


class _HistoryBuilder:
    """Adds item after item. ``_open`` are the calls of the answer that is being added: their places
    and ids; ``_answered`` is whether one of their results has been passed.
    """

    def __init__(self, account: str, later_system: SystemMessages) -> None:
        self.made = EncodedHistory()
        self._account = account
        self._later_system = later_system
        self._items: list[dict[str, Any]] = []
        self._results: dict[int, list[int]] = {}  # of calls, both by their places
        self._places: list[int] = []
        self._base = ""
        self._sent_ids: set[str] = set()
        self._open: list[tuple[int, str]] = []
        self._answered = False

    def add(self, items: list[dict[str, Any]], base: str) -> None:
        """Add these items, whose path is ``base``."""
        placed = list(placed_function_items(items))
        self._items = [item for _, item in placed]
        self._results = {}
        for result, call in match(self._items).calls.items():
            self._results.setdefault(call, []).append(result)
        told = {place for places in self._results.values() for place in places}
        self._places = [place for place, _ in placed]
        self._base = base
        for index, item in enumerate(self._items):
            kind, where = item_type(item), (base, self._places[index])
            if kind == "message":
                self._message(item, where)
            elif kind in _CALLS:
                self._call(item, kind, index)
            elif kind in _RESULTS:
                self._answered = True
                if index not in told:
                    self._answer_calls()
                    self.user([_result(item, _sent_id(item["call_id"]), where)])
            elif kind == "reasoning":
                self._think(item)
            else:
                refuse_unsayable(kind, where)
        self._answer_calls()

    def user(self, blocks: list[Block]) -> None:
        """What the user says."""
        self._say("user", blocks)

    def _say(self, role: str, blocks: list[Block]) -> None:
        if not blocks:
            return
        messages = self.made.messages
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})

    def _message(self, item: Mapping[str, Any], where: Where) -> None:
        role, where = item["role"], (*where, "content")
        blocks = blocks_of_content(item["content"], where)
        if role == "assistant":
            self._go_on(_joined(blocks))
            return
        if role in SYSTEM_ROLES:
            if any(block["type"] != "text" for block in blocks):
                raise refused("A system message of this model's endpoint is text only.", where)
            begun = self.made.messages
            if self._later_system == "merge" or not begun:
                self.made.system += blocks
                return  # it ends no turn: the calls around it stay in one message
            role = "user" if self._later_system == "user" else "system"
        self._answer_calls()
        self._say(role, blocks)

    def _think(self, item: Mapping[str, Any]) -> None:
        block, lost = thinking_block(item, self._account)
        self.made.foreign_reasoning += lost
        if block is not None:
            self._go_on([block])

    def _call(self, item: Mapping[str, Any], kind: str, index: int) -> None:
        sent = _sent_id(item["call_id"])
        if sent in self._sent_ids:  # some backends number their calls anew in every turn
            sent = f"{sent[:48]}_{len(self._sent_ids)}"
        self._sent_ids.add(sent)
        text = item["arguments"] if kind == "function_call" else None
        given = {"input": item["input"]} if text is None else arguments_object(text)
        self._go_on([{"type": "tool_use", "id": sent, "name": item["name"], "input": given}])
        self._open.append((index, sent))

    def _go_on(self, blocks: list[Block]) -> None:
        """What the model says: after the results of its calls it is another answer."""
        if self._answered:
            self._answer_calls()
        self._say("assistant", blocks)

    def _answer_calls(self) -> None:
        """The results of the calls of the answer that ends here."""
        calls, self._open, self._answered = self._open, [], False
        for call, sent in calls:
            results = self._results.get(call, ())
            blocks = [
                _result(self._items[place], sent, (self._base, self._places[place]))
                for place in results
            ]
            for more in blocks[1:]:  # a call has one result
                blocks[0].setdefault("content", []).extend(more.get("content", ()))
            self.user(blocks[:1])


def _result(item: Mapping[str, Any], sent: str, where: Where) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": sent}
    if content := blocks_of_content(item["output"], (*where, "output")):
        block["content"] = content
    return block


def _sent_id(call_id: str) -> str:
    """The id of a call as Anthropic takes it."""
    if _CALL_ID.fullmatch(call_id):
        return call_id
    return "call_" + sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _joined(blocks: list[Block]) -> list[Block]:
    """Texts of one message are one text, which was cut where a source was cited."""
    if len(blocks) > 1 and all(block["type"] == "text" for block in blocks):
        return [text_block("".join([block["text"] for block in blocks]))]
    return blocks


def _trim_end(messages: list[dict[str, Any]]) -> None:
    """An answer that is to be gone on with must not end in white space, or in thinking."""
    if not messages or messages[-1]["role"] != "assistant":
        return
    blocks = messages[-1]["content"]
    while blocks and blocks[-1]["type"] in _THINKING:
        blocks.pop()
    if not blocks:
        messages.pop()
    elif blocks[-1]["type"] == "text":
        blocks[-1]["text"] = blocks[-1]["text"].rstrip()
