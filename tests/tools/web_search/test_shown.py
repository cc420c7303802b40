"""The settings of web search that the documentation shows."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from router.settings.web_search import PLACEHOLDERS, WebSearchSettings

PAGE = (Path(__file__).parents[3] / "docs" / "tools.md").read_text(encoding="utf-8")


def test_the_settings_shown_are_valid() -> None:
    shown = [yaml.safe_load(block) for block in re.findall(r"```yml\n(.*?)```", PAGE, re.DOTALL)]
    settings = [WebSearchSettings.model_validate(one) for one in shown]
    assert {one.provider for one in settings} == {"searxng", "brave", "tavily", "http"}


def test_every_placeholder_is_named() -> None:
    assert all(f"`{{{name}}}`" in PAGE for name in PLACEHOLDERS)
