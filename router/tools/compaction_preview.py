"""What is said of a request whose conversation is compacted, or to be, where nothing is asked."""

from __future__ import annotations

from typing import Any, Final

from router.core.exchange import Exchange
from router.dialects.responses.context_management import compaction_entry
from router.dialects.responses.summaries import Summary, own_compactions, with_summaries
from router.tools.compaction import Compactor, check_is_last, trigger_in

__all__ = ["previewed"]

_UNREAD: Final = Summary("(summary that is not read)")
_ORDER: Final = {"type": "message", "role": "user", "content": "(the order to summarize it)"}


async def previewed(compactor: Compactor, exchange: Exchange) -> list[str]:
    """Leave out of the exchange's body what the router sees to itself; in words, what that is.

    Raises InvalidRequest like ``Compactor.prepare``.
    """
    notes = []
    body = exchange.body
    items: Any = body.get("input")
    if isinstance(items, list) and (found := own_compactions(items)):
        items = with_summaries(items, dict.fromkeys(found, _UNREAD))
        notes.append("Compacted conversations are not read: another text stands for the summary.")
    trigger = trigger_in(items) if isinstance(items, list) else None
    entry = compaction_entry(body)
    if (trigger is not None or entry is not None) and await compactor.compacts(exchange):
        if entry is not None:
            body = entry.without(body)
            notes.append(
                "'context_management' is seen to by the router: where the input is too long, a "
                "model is asked for a summary before the endpoint is sent what is left of it."
            )
        if trigger is not None:
            check_is_last(trigger, items)
            items = [*items[:trigger], _ORDER]
            notes.append(
                "'compaction_trigger' is seen to by the router: a model is sent an order to "
                "summarize the input, in other words than 'request' shows, and may be another one."
            )
    exchange.body = {**body, "input": items} if "input" in body else body
    return notes
