"""Every example in config/ loads as it stands, with the variables that it names."""

import re
from pathlib import Path

import pytest

from router.settings.load import load_settings

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
    assert {endpoint.dialect for endpoint in settings.endpoints} == {"responses", "chat", "ollama"}
    assert settings.model_fields_set == set(type(settings).model_fields)


def environment(path: Path) -> dict[str, str]:
    """A value, each its own, for every variable without a default."""
    return {name: f"value-of-{name}" for name in re.findall(r"\$\{(\w+)\}", path.read_text())}
