"""Every example in config/ loads as it stands, with the variables that it names."""

import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from router.settings.load import load_settings
from router.settings.schema import Settings

EXAMPLES = sorted(Path(__file__).parents[1].joinpath("config").glob("*.yaml"))


def test_there_are_examples() -> None:
    assert {path.name for path in EXAMPLES} >= {"minimal.yaml", "fleet.yaml"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_loads(path: Path) -> None:
    settings = load_settings(path, environment(path))
    assert settings.endpoints


def test_the_fleet_shows_every_dialect_and_every_section() -> None:
    (path,) = (path for path in EXAMPLES if path.name == "fleet.yaml")
    settings = load_settings(path, environment(path))
    assert {endpoint.dialect for endpoint in settings.endpoints} == {
        "responses",
        "chat",
        "ollama",
        "messages",
    }
    assert settings.model_fields_set == set(type(settings).model_fields)


def environment(path: Path) -> dict[str, str]:
    """A value, each its own, for every variable without a default."""
    return {name: f"value-of-{name}" for name in re.findall(r"\$\{(\w+)\}", path.read_text())}


def named(model: type[BaseModel]) -> set[str]:
    """Every field of a section and of the sections in it."""
    names = set(model.model_fields)
    for field in model.model_fields.values():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                names |= named(kind)
    return names


def test_the_fleet_names_every_setting() -> None:
    words = set(re.findall(r"\w+", Path(EXAMPLES[0].parent, "fleet.yaml").read_text()))
    assert named(Settings) - words == set()
