"""Which models are tried when another one cannot be served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, TypeAdapter, ValidatorFunctionWrapHandler, WrapValidator

from router.settings.section import Section
from router.settings.values import Text, not_empty, wrong

__all__ = ["Fallback", "FallbackSettings"]

_Models = Annotated[tuple[Text, ...], AfterValidator(not_empty)]
_MODELS: Final[TypeAdapter[tuple[str, ...]]] = TypeAdapter(_Models)


class FallbackSettings(Section):
    """The ``models`` to try, in their order.

    ``for_keys`` says for whom: a key that is restricted to some models is given another one of
    them only (``allowed``), or every one (``any``), also those that it could not ask for itself.
    """

    models: _Models
    """The models to try, in order."""
    for_keys: Literal["allowed", "any"] = "allowed"
    """Whether only keys that may use the other model get it (`allowed`), or `any`."""


def _short_form(value: Any, handler: ValidatorFunctionWrapHandler) -> FallbackSettings:
    """One name, or a list of names, stands for ``{models: [...]}``."""
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list | tuple):
        return FallbackSettings(models=_MODELS.validate_python(value))
    if not isinstance(value, Mapping | FallbackSettings):
        raise wrong("must be the name of a model, a list of names, or a mapping")
    checked: FallbackSettings = handler(value)
    return checked


Fallback = Annotated[FallbackSettings, WrapValidator(_short_form)]
"""A ``FallbackSettings``, or its short form: the models alone."""
