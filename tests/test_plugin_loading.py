"""How the settings' names become plugins: their order, their options, and what cannot be made."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, ConfigDict
from structlog.testing import capture_logs

from plugins import BUNDLED
from router.app import idle_services
from router.plugin import (
    Guard,
    Mistake,
    Observer,
    Plugin,
    PluginContext,
    PluginOptionsError,
    Settings,
    SettingsError,
)
from router.plugin_loading import PluginLoader
from tests.support.router import settings_for

HERE = __name__
ENDPOINT = {"name": "one", "url": "http://127.0.0.1:1", "dialect": "chat"}
KEYS = {"keys": [{"name": "ann", "key": "sk-ann"}]}
DEFAULT = ["request_metrics", "access_log"]


class Curious(Guard):
    """Keeps what it was made with."""

    made: ClassVar[list[PluginContext]] = []

    def __init__(self, context: PluginContext) -> None:
        self.made.append(context)


class Plain(Observer):
    """Has no ``__init__`` of its own."""


class Shy(Plugin):
    def __init__(self) -> None:
        pass


class Picky(Plugin):
    def __init__(self, context: PluginContext) -> None:
        if "share" in context.options:
            raise PluginOptionsError("share", "must be a number from 0 to 1")
        raise PluginOptionsError("", "must have a share")


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")

    share: float
    models: list[str] = []


class Modelled(Plugin):
    def __init__(self, context: PluginContext) -> None:
        self.options = Options.model_validate(context.options)


def load(plugins: list[Any], **sections: Any) -> list[Plugin]:
    settings = Settings.model_validate({"endpoints": [ENDPOINT], "plugins": plugins, **sections})
    return PluginLoader(idle_services(settings))(settings)


def names(plugins: list[Any], **sections: Any) -> list[str]:
    return [plugin.name for plugin in load(plugins, **sections)]


def mistakes(plugins: list[Any], **sections: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(plugins, **sections)
    return str(caught.value).splitlines()


def offer(place: Path, package: str, **entries: str) -> None:
    """Install a package that offers these entry points."""
    info = place / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[pointsman.plugins]", *lines, ""]))


def test_bundled_plugins_stand_first_in_their_own_order() -> None:
    assert names([]) == DEFAULT
    assert names([f"{HERE}:Plain"]) == [*DEFAULT, "Plain"]
    everything = {"auth": KEYS, "tracing": {"enabled": True}, "cache": {"mode": "on-request"}}
    assert names([f"{HERE}:Plain"], **everything) == [
        "api_keys",
        "tracing",
        *DEFAULT,
        "key_scope",
        "limits",
        "response_cache",
        "Plain",
    ]


def test_bundled_plugins_stand_where_they_are_named() -> None:
    first = [f"{HERE}:Plain", "response_cache"]
    assert names(first, cache={"mode": "always"}) == [*DEFAULT, "Plain", "response_cache"]
    assert names(["limits", f"{HERE}:Plain", "api_keys"], auth=KEYS) == [
        *DEFAULT,
        "key_scope",
        "limits",
        "Plain",
        "api_keys",
    ]


def test_others_may_be_named_twice() -> None:
    assert names([f"{HERE}:Plain", f"{HERE}:Plain"]) == [*DEFAULT, "Plain", "Plain"]


@pytest.mark.parametrize(
    ("plugins", "message"),
    [
        (["limits"], "plugins[0]: limits: this bundled plugin is not in use; auth.keys enables it"),
        (
            ["access_log", "access_log"],
            "plugins[1]: access_log: this bundled plugin is named twice",
        ),
        (
            [{"plugin": "access_log", "options": {"file": "x"}}],
            "plugins[0]: access_log: this bundled plugin takes no options; it has settings of its "
            "own",
        ),
        (
            [f"{HERE}:Shy"],
            f"plugins[0]: {HERE}:Shy: it does not take one argument, the PluginContext",
        ),
        (
            [f"{HERE}:Plain", {"plugin": f"{HERE}:Picky", "options": {"share": "much"}}],
            "plugins[1].options.share: must be a number from 0 to 1",
        ),
        ([f"{HERE}:Picky"], "plugins[0].options: must have a share"),
    ],
)
def test_mistakes(plugins: list[Any], message: str) -> None:
    assert mistakes(plugins) == [message]


def test_every_mistake_is_told() -> None:
    found = mistakes(["nowhere:make", {"plugin": f"{HERE}:Modelled", "options": {"models": "m"}}])
    assert found == [
        "plugins[0]: nowhere:make: there is no module 'nowhere'; is it installed?",
        "plugins[1].options.models: must be a list",
        "plugins[1].options.share: is required",
    ]


def test_no_mistake_shows_a_value() -> None:
    told = {"share": "hunter2", "models": ["m"], "key": "hunter2"}
    found = mistakes([{"plugin": f"{HERE}:Modelled", "options": told}])
    assert [line.partition(":")[0] for line in found] == [
        "plugins[0].options.key",
        "plugins[0].options.share",
    ]
    assert "hunter2" not in "".join(found)


def test_what_a_factory_is_given() -> None:
    settings = settings_for(
        ENDPOINT, plugins=[{"plugin": f"{HERE}:Curious", "options": {"key": "hunter2"}}]
    )
    services = idle_services(settings)
    PluginLoader(services)(settings)
    context = Curious.made.pop()
    assert context.name == f"{HERE}:Curious"
    assert (context.settings, context.services) == (settings, services)
    assert context.clock is time
    assert dict(context.options) == {"key": "hunter2"}
    assert "hunter2" not in repr(context)
    with pytest.raises(TypeError):
        context.options["key"] = 1  # type: ignore[index]
    with capture_logs() as log:
        context.logger.info("hello", a=1)
    assert log == [
        {
            "component": "plugin",
            "plugin": context.name,
            "event": "hello",
            "log_level": "info",
            "a": 1,
        }
    ]
    assert "m" not in services.endpoints.known_models
    assert services.endpoints.public_models() == []


def test_plugins_cannot_change_the_settings_by_their_options() -> None:
    settings = settings_for(
        ENDPOINT, plugins=[{"plugin": f"{HERE}:Curious", "options": {"of": {"a": 1}}}]
    )
    PluginLoader(idle_services(settings))(settings)
    Curious.made.pop().options["of"]["a"] = 2
    assert settings.plugins[0].options == {"of": {"a": 1}}


def test_plugins_are_given_the_clock_of_their_loader() -> None:
    class Stopped:
        time: Callable[[], float] = staticmethod(lambda: 1000.0)
        monotonic: Callable[[], float] = staticmethod(lambda: 7.0)

    settings = settings_for(ENDPOINT, plugins=[f"{HERE}:Curious"])
    PluginLoader(idle_services(settings), Stopped())(settings)
    clock = Curious.made.pop().clock
    assert (clock.time(), clock.monotonic()) == (1000.0, 7.0)


def test_a_plugin_that_is_made_again_has_the_metric_that_it_had() -> None:
    settings = settings_for(ENDPOINT, plugins=[f"{HERE}:Curious"])
    loader = PluginLoader(idle_services(settings))
    for _ in range(2):
        loader(settings)
        context = Curious.made.pop()
        context.metrics.counter("curious_seen", "What it saw.", ("what",)).inc("a")
    shown = context.services.metrics.exposition("")[0].decode()
    assert 'pointsman_plugin_curious_seen_total{what="a"} 2.0' in shown


def test_plugins_of_installed_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path, "one", plain=f"{HERE}:Plain", limits=f"{HERE}:Plain")
    offer(tmp_path, "other", inner=f"{HERE}:Outer.Inner", gone=f"{HERE}:Gone")
    monkeypatch.syspath_prepend(tmp_path)
    assert names(["plain", "inner"]) == [*DEFAULT, "Plain", "Inner"]
    assert names(["limits"], auth=KEYS)[-1] == "limits"  # the bundled one
    assert mistakes(["gone"]) == [f"plugins[0]: gone: the module '{HERE}' has no 'Gone'"]
    assert mistakes(["plane"]) == [
        "plugins[0]: plane: there is no plugin of this name, did you mean plain? (installed: "
        "gone, inner, limits, plain; bundled: api_keys, tracing, request_metrics, access_log, "
        "key_scope, limits, response_cache)"
    ]


class Outer:
    class Inner(Plugin):
        """A class within another."""


def test_a_name_that_two_packages_offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path, "one", plain=f"{HERE}:Plain")
    (again := tmp_path / "again").mkdir()
    offer(again, "uno", plain=f"{HERE}:Plain")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(again)
    assert names(["plain"])[-1] == "Plain"  # both mean the same
    offer(tmp_path, "other", plain=f"{HERE}:Curious")
    assert mistakes(["plain"]) == [
        "plugins[0]: plain: several installed packages have it; name one of "
        f"{HERE}:Curious and {HERE}:Plain"
    ]


def test_nothing_is_installed() -> None:
    (found,) = mistakes(["acces_log"])
    assert "did you mean access_log? (installed: none; bundled: api_keys, " in found


def test_a_mistake_in_other_settings_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(context: PluginContext) -> Plugin:
        raise SettingsError([Mistake("tracing.enabled", None, "is too much")])

    monkeypatch.setitem(BUNDLED, "access_log", replace(BUNDLED["access_log"], make=make))
    assert mistakes([]) == ["tracing.enabled: is too much"]
