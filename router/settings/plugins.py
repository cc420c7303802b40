"""Which plugins there are, in their order, and their options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field, field_serializer, model_validator

from router.settings.section import Section
from router.settings.values import PluginName, plugin_name, wrong

__all__ = ["PluginSettings"]

_HIDDEN: Final = "**********"


class PluginSettings(Section):
    """A plugin; its name alone stands for one without options."""

    plugin: PluginName
    """The name of an installed plugin or of a bundled one, or `package.module:factory`."""
    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    """What the plugin is told; its documentation says which options it has."""

    @model_validator(mode="before")
    @classmethod
    def _of_its_name(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"plugin": plugin_name(data)}
        if not isinstance(data, Mapping | PluginSettings):
            raise wrong("must be the name of a plugin, or a mapping with plugin and options")
        return data

    @field_serializer("options", when_used="json")
    def _shown(self, options: dict[str, Any]) -> dict[str, str]:
        """Like other secrets: nobody but the plugin knows which of them is one."""
        return dict.fromkeys(options, _HIDDEN)
