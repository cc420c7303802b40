"""What Ollama tells of a model in ``/api/show`` and ``/api/ps``, without loading it."""

from __future__ import annotations

import re
from typing import Any, Final

from router.probing.questions import Finding

__all__ = ["context_in_memory", "findings_of"]

_FEATURES: Final = {"tools": "tools", "vision": "vision", "reasoning": "thinking"}
"""Fields of the configuration, and what Ollama calls them."""

_NUM_CTX: Final = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)


def findings_of(show: Any, num_ctx: int | None, in_memory: int | None) -> dict[str, Finding]:
    """The findings from the answer of ``/api/show``, by field.

    The context in tokens is the smaller of what the model could have and what Ollama gives it:
    ``num_ctx`` of the configuration, else what it has now, ``in_memory``, else what its Modelfile
    says. Where none of these is there it is Ollama's default, which is not told.
    """
    show = show if isinstance(show, dict) else {}
    findings: dict[str, Finding] = {}
    most = _trained_context(show.get("model_info"))
    given = num_ctx or in_memory or _of_modelfile(show.get("parameters"))
    if given is not None:
        findings["context_length"] = Finding(min(given, most or given))
    elif most is not None:
        why = f"up to {most} tokens, but what Ollama gives it is not known without num_ctx"
        findings["context_length"] = Finding(None, why)
    able = show.get("capabilities")
    for field, name in _FEATURES.items():
        if isinstance(able, list):
            findings[field] = Finding(name in able)
        else:
            findings[field] = Finding(None, "this Ollama does not tell; --deep asks the model")
    return findings


def context_in_memory(ps: Any, model: str) -> int | None:
    """The context of a model that is in memory, from the answer of ``/api/ps``."""
    models = ps.get("models") if isinstance(ps, dict) else None
    for entry in models if isinstance(models, list) else ():
        name = entry.get("name") if isinstance(entry, dict) else None
        if isinstance(name, str) and name in (model, f"{model}:latest"):
            return _count(entry.get("context_length"))
    return None


def _trained_context(info: Any) -> int | None:
    if not isinstance(info, dict):
        return None
    return _count(info.get(f"{info.get('general.architecture')}.context_length"))


def _of_modelfile(parameters: Any) -> int | None:
    found = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    return int(found[1]) or None if found else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
