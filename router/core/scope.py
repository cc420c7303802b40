"""What a key may not use is not there for it."""

from __future__ import annotations

from router.core.key import Key
from router.errors import no_access

__all__ = ["check_model"]


def check_model(key: Key, model: str) -> None:
    """Raises ModelNotFound where the key may not use the model, by the client's name for it."""
    if not key.may_use(model):
        raise no_access(model)
