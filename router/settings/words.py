"""What is wrong with a setting, in words that continue the name of its field.

They are those of configurations and of the API for keys. No message carries the value.
And how to install an extra that a setting or a command needs.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["did_you_mean", "in_words", "install_extra"]

_MESSAGES: Final = {
    "missing": "is required",
    "model_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "extra_forbidden": "unknown key",
    "string_type": "must be text (put a number in quotes)",
    "string_too_short": "is empty",
    "string_unicode": "is not valid text",
    "literal_error": "must be one of {expected}",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "path_type": "must be a path",
}


def in_words(error: Mapping[str, Any]) -> str:
    """One of pydantic's errors, such as "must be at least 1"."""
    template = _MESSAGES.get(error["type"])
    if template is None:
        message: str = error["msg"]
        return message
    return template.format_map(error.get("ctx", {}))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The known word that is nearest, such as ", did you mean port?"; empty where none is near."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f", did you mean {close[0]}?" if close else ""


def install_extra(extra: str) -> str:
    """What to do about a missing extra. The package is on no index: it is installed from source."""
    return f"install the extra '{extra}' from Pointsman's checkout: pip install '.[{extra}]'"
