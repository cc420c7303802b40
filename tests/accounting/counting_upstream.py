"""An upstream that misbehaves on command, and keeps the totals of what it reported.

What it is to do stands in the prompt: the first word is one of ``PLAYS``.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import orjson

from tests.support.upstream import Upstream, Wire, by_path, json_answer

__all__ = ["PLAYS", "CountingUpstream"]

PLAYS: Final = ("well", "silent", "flaky", "broken", "refuse", "cut", "hold")
"""Answers with usage; without; with usage after a 500; with 500s only; 400; breaks off in
mid-stream; waits in mid-stream until the client has gone.
"""

_WORDS: Final = ("one ", "two ", "three ", "four ", "five ", "six ")


class CountingUpstream(Upstream):
    """Serves Chat Completions and the Responses API. ``reported`` are totals by token kind,
    ``counts`` those of each prompt.
    """

    def __init__(self) -> None:
        paths = {"/v1/chat/completions": self._chat, "/v1/responses": self._respond}
        super().__init__(default=by_path(paths))
        self.reported: Counter[str] = Counter()
        self.counts: dict[str, dict[str, int]] = {}
        self._failed: set[str] = set()

    async def _chat(self, wire: Wire) -> None:
        body = wire.request.json
        prompt = body["messages"][-1]["content"]
        if await self._refused(wire, prompt):
            return
        counts = self._counted(prompt)
        usage = {
            "prompt_tokens": counts["input"],
            "completion_tokens": counts["output"],
            "total_tokens": counts["input"] + counts["output"],
            "prompt_tokens_details": {"cached_tokens": counts["cached"]},
        }
        base = {"id": "chatcmpl-1", "created": 1, "model": "m"}
        silent = prompt.startswith("silent")
        if not body.get("stream"):
            message = {"role": "assistant", "content": "".join(_WORDS)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._report(counts, silent=silent)
            more = {} if silent else {"usage": usage}
            answer = {**base, "object": "chat.completion", "choices": [choice], **more}
            await json_answer(answer)(wire)
            return

        def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return {**base, "object": "chat.completion.chunk", "choices": [choice]}

        chunks = [chunk({"role": "assistant"}), *(chunk({"content": w}) for w in _WORDS)]
        last: list[dict[str, Any] | None] = [chunk({}, "stop")]
        if not silent:
            last.append({**chunk({}), "choices": [], "usage": usage})
        await self._stream(wire, prompt, chunks, [*last, None], counts)

    async def _respond(self, wire: Wire) -> None:
        body = wire.request.json
        given = body["input"]
        prompt = given if isinstance(given, str) else given[-1]["content"]
        prompt = prompt if isinstance(prompt, str) else prompt[0]["text"]
        if await self._refused(wire, prompt):
            return
        counts, silent = self._counted(prompt), prompt.startswith("silent")
        usage = {
            "input_tokens": counts["input"],
            "input_tokens_details": {"cached_tokens": counts["cached"]},
            "output_tokens": counts["output"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counts["input"] + counts["output"],
        }
        text = {"type": "output_text", "text": "".join(_WORDS), "annotations": []}
        item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
        begun = {"id": "resp_1", "object": "response", "created_at": 5, "status": "in_progress"}
        begun |= {"model": "m", "output": [], "usage": None, "error": None}
        done = {**item, "content": [text]}
        ended = {**begun, "status": "completed", "output": [done]}
        ended["usage"] = None if silent else usage
        if not body.get("stream"):
            self._report(counts, silent=silent)
            await json_answer(ended)(wire)
            return
        at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        added = {"type": "response.output_item.added", "output_index": 0}
        part = {"type": "response.content_part.added", **at, "part": {**text, "text": ""}}
        deltas = [{"type": "response.output_text.delta", **at, "delta": w} for w in _WORDS]
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": begun},
            {**added, "item": {**item, "content": []}}, part, *deltas,
        ]  # fmt: skip
        last: list[dict[str, Any] | None] = [
            {"type": "response.output_item.done", "output_index": 0, "item": done},
            {"type": "response.completed", "response": ended},
        ]
        await self._stream(wire, prompt, events, last, counts)

    async def _stream(
        self,
        wire: Wire,
        prompt: str,
        events: list[dict[str, Any]],
        last: list[dict[str, Any] | None],
        counts: dict[str, int],
    ) -> None:
        wire.head(200, {"Content-Type": "text/event-stream"})
        play = prompt.split(maxsplit=1)[0]
        if play in ("cut", "hold"):
            for event in events[:-2]:
                wire.piece(_sse(event))
            if play == "hold":
                await wire.gone.wait()
            wire.close()
            return
        for event in events:
            wire.piece(_sse(event))
        self._report(counts, silent=play == "silent")
        wire.piece(b"".join(map(_sse, last)))
        wire.end()

    async def _refused(self, wire: Wire, prompt: str) -> bool:
        """Whether the answer was a refusal, which the prompt wants."""
        play = prompt.split(maxsplit=1)[0]
        if play == "refuse":
            await json_answer({"error": {"message": "no", "type": "x"}}, 400)(wire)
            return True
        if play == "broken" or (play == "flaky" and prompt not in self._failed):
            self._failed.add(prompt)
            await json_answer({"error": {"message": "oh"}}, 500)(wire)
            return True
        return False

    def _counted(self, prompt: str) -> dict[str, int]:
        size = len(prompt)
        counts = {"input": 100 + size % 37, "cached": size % 11, "output": 10 + size % 29}
        self.counts[prompt] = counts
        return counts

    def _report(self, counts: dict[str, int], *, silent: bool) -> None:
        if not silent:
            self.reported.update(counts)


def _sse(event: dict[str, Any] | None) -> bytes:
    return b"data: %b\n\n" % (b"[DONE]" if event is None else orjson.dumps(event))
