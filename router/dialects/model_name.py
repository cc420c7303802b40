"""The ``model`` in answers that are passed on: the name that the client asked for.

Engines answer with their own name for a model, some with the path of a file. The name is replaced
in the bytes, so that an answer is not encoded again.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

__all__ = ["ModelName"]

_KEY: Final = b'"model"'
_MEMBER: Final = re.compile(rb'"model"\s*:\s*"(?:[^"\\]|\\.)*"')


class ModelName:
    """Puts ``name`` into the JSON objects of one answer: its body, or the events of its stream.

    ``in_place`` is whether all other bytes of every object so far stayed as they were.
    """

    __slots__ = ("_member", "_mine", "_name", "_theirs", "in_place")

    def __init__(self, name: str) -> None:
        self._name = name
        self._mine = _KEY + b":" + orjson.dumps(name)
        self._theirs = name
        self._member = b""
        self.in_place = True

    def put(self, data: bytes, decoded: dict[str, Any]) -> bytes:
        """``data`` with the name as its ``model``, if it has one; ``decoded``, which is the same
        object decoded, is changed alike.
        """
        theirs = decoded.get("model")
        if theirs is None or theirs == self._name:
            return data
        named = self.in_bytes(data, theirs)
        decoded["model"] = self._name
        if named is None:
            self.in_place = False
            return orjson.dumps(decoded)
        return named

    def in_bytes(self, data: bytes, theirs: Any) -> bytes | None:
        """``data`` with the name in the place of ``theirs``; None where it has to be decoded.

        A quote within a string has a backslash before it: where the key occurs once as it is
        usually written, it is the object's own.
        """
        if theirs is None or theirs == self._name:
            return data
        if data.count(_KEY) != 1:
            return None
        if theirs != self._theirs or self._member not in data:
            found = _MEMBER.search(data)
            if found is None:
                return None
            self._theirs, self._member = theirs, found[0]
        return data.replace(self._member, self._mine, 1)
