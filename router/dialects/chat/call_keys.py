"""Which tool call of a chat completion a fragment in its stream belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["CallKeys"]


class CallKeys:
    """Tells which call a fragment belongs to.

    Usually that is its ``index``; some servers leave it out, or give every parallel call the
    index 0 and tell them apart by their ids. Calls are numbered anew, in order of appearance.
    """

    __slots__ = ("_by_id", "_by_index", "_count", "_last", "whole")

    def __init__(self) -> None:
        self.whole = False  # then every entry is a call, and not a fragment of one
        self._count = 0
        self._last: int | None = None
        self._by_id: dict[str, int] = {}
        self._by_index: dict[int, tuple[int, str | None]] = {}

    def key(
        self,
        index: Any,
        call_id: str | None,
        name: str | None,
        fragment: str,
        is_whole: Callable[[int], bool],
    ) -> int:
        """The key of the call that this fragment of arguments belongs to; ``is_whole`` is whether
        all arguments of the call with a key have come.
        """
        if not isinstance(index, int):
            return self.unnumbered(call_id, name)
        if call_id is None and name is not None and fragment.strip():
            known, _ = self._by_index.get(index, (-1, None))
            if is_whole(known):  # no id to tell, but a name again, and arguments again
                return self.new(index, call_id)
        return self.numbered(index, call_id, name)

    def is_anothers(self, call_id: str | None, key: int) -> bool:
        """Whether a call came with this id before this one did."""
        return call_id is not None and self._by_id.get(call_id, key) != key

    def new(self, index: int | None, call_id: str | None) -> int:
        """The key of a call that begins here."""
        key = self._last = self._count
        self._count += 1
        if call_id is not None:
            self._by_id.setdefault(call_id, key)
        if index is not None:
            self._by_index[index] = (key, call_id)
        return key

    def numbered(self, index: int, call_id: str | None, name: str | None) -> int:
        """The key of a call with an index.

        Another id under the same index is another call only where a name comes with it: some
        servers invent a new id for every fragment.
        """
        known = self._by_index.get(index)
        if known is None:
            return self.new(index, call_id)
        key, known_id = known
        if call_id is not None and known_id is None:
            self._by_index[index] = (key, call_id)
            self._by_id.setdefault(call_id, key)
        elif call_id is not None and call_id != known_id:
            if call_id in self._by_id:
                key = self._by_id[call_id]
                self._by_index[index] = (key, call_id)
            elif name is not None:
                return self.new(index, call_id)
        self._last = key
        return key

    def unnumbered(self, call_id: str | None, name: str | None) -> int:
        """The key of a call without an index: by its id, or else the one begun last."""
        if self.whole:
            return self.new(None, call_id)
        if call_id is not None and call_id in self._by_id:
            self._last = self._by_id[call_id]
        elif call_id is not None or name is not None or self._last is None:
            return self.new(None, call_id)
        return self._last
