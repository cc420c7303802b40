"""The schema's own rules, on settings that are built in code."""

from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from router.settings.cache import CacheSettings, EmbedderSettings
from router.settings.fetch import FetchSettings
from router.settings.schema import ApiKey, EndpointSettings, ServerSettings, Settings
from router.settings.values import repetitions

ENDPOINT: dict[str, Any] = {"name": "box", "url": "http://10.0.0.1:8000/v1", "dialect": "chat"}


def faults(**data: Any) -> dict[str, str]:
    """Location -> message of every error of ``Settings(**data)``."""
    with pytest.raises(ValidationError) as caught:
        Settings(**data)
    return {".".join(map(str, error["loc"])): error["msg"] for error in caught.value.errors()}


def endpoint_faults(**changes: Any) -> dict[str, str]:
    found = faults(endpoints=[{**ENDPOINT, **changes}])
    return {place.removeprefix("endpoints.0."): message for place, message in found.items()}


def test_off_needs_no_quotes() -> None:
    assert CacheSettings.model_validate({"mode": False}).mode == "off"
    with pytest.raises(ValidationError):
        CacheSettings.model_validate({"mode": True})


def test_the_least_settings_have_the_documented_defaults() -> None:
    settings = Settings.model_validate({"endpoints": [ENDPOINT]})
    endpoint = settings.endpoints[0]
    assert settings.server == ServerSettings(
        host="127.0.0.1",
        port=8080,
        open_after=0.1,
        keepalive_interval=15,
        max_body_mb=32,
        shutdown_delay=5,
        drain_timeout=30,
        unsupported="lenient",
    )
    assert settings.auth.keys == ()
    assert endpoint.api_key is None
    assert endpoint.models is None
    assert endpoint.aliases == {}
    assert (endpoint.max_in_flight, endpoint.weight, endpoint.num_ctx) == (32, 1.0, None)
    assert endpoint.timeouts.model_dump() == {
        "connect": 5.0,
        "first_byte": 60.0,
        "idle": 60.0,
        "total": 600.0,
        "load": 300.0,
    }
    assert (endpoint.priority, endpoint.capabilities, endpoint.keep_alive) == (1, {}, None)
    assert endpoint.chat_completions == "auto"
    assert (endpoint.tls.ca_file, endpoint.tls.verify) == (None, True)
    assert settings.balance.model_dump() == {
        "policy": "least-loaded",
        "affinity": 0.25,
        "max_attempts": 3,
        "retry_budget": {"ratio": 0.2, "reserve": 100},
        "queue_size": 256,
        "queue_timeout": 30.0,
        "health_interval": 10.0,
        "breaker": {
            "failures": 3,
            "ratio": 0.2,
            "min_requests": 10,
            "open_seconds": 1.0,
            "max_open_seconds": 60.0,
            "panic": 0.8,
            "slow_start": 10.0,
        },
        "hedge": 0.0,
    }
    assert (settings.fallbacks, settings.admin.key) == ({}, None)
    assert settings.logging.model_dump() == {"level": "info", "format": "auto", "access": True}
    assert (settings.metrics.require_key, settings.metrics.key) == (False, None)
    assert settings.plugins == ()


def test_settings_cannot_be_changed() -> None:
    settings = Settings.model_validate({"endpoints": [ENDPOINT]})
    with pytest.raises(ValidationError, match="frozen"):
        settings.server.port = 1


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://h", "http://h"),
        ("http://h/", "http://h"),
        ("https://h:8443/v1/", "https://h:8443/v1"),
        ("http://[::1]:11434", "http://[::1]:11434"),
    ],
)
def test_urls_lose_their_trailing_slash(url: str, base: str) -> None:
    assert EndpointSettings(**{**ENDPOINT, "url": url}).url == base


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "must be a URL"),
        ("h:8000", "must be a URL"),
        ("ftp://h", "must be a URL"),
        ("http://", "must be a URL"),
        ("http://h:99999", "must be a URL"),
        ("http://h:0", "must be a URL"),
        ("http://[::1", "must be a URL"),
        ("http://h/v1?key=1", "query or fragment"),
        ("http://h/v1?", "query or fragment"),
        ("http://h/v1#x", "query or fragment"),
        ("http://user:pass@h", "user or password"),
        ("http://@h", "user or password"),
        ("http://h/a b", "blanks"),
        ("http://h\n", "blanks"),
        ("http://hé", "outside ASCII"),
        ("http://h/v1/chat/completions", "path of an operation"),
        ("http://h/v1/responses/", "path of an operation"),
        ("http://h/api/chat", "path of an operation"),
    ],
)
def test_urls_that_are_refused(url: str, message: str) -> None:
    assert message in endpoint_faults(url=url)["url"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "-x"),
        ("name", "a b"),
        ("name", "x" * 65),
        ("name", "näme"),
        ("dialect", "Chat"),
        ("api_key", ""),
        ("api_key", "two words"),
        ("api_key", "line\n"),
        ("api_key", "schlüssel"),
        ("models", []),
        ("models", [""]),
        ("models", "gpt"),
        ("aliases", {"": "x"}),
        ("aliases", {"x": ""}),
        ("max_in_flight", 0),
        ("max_in_flight", True),
        ("max_in_flight", 1.5),
        ("weight", 0),
        ("weight", float("inf")),
        ("weight", float("nan")),
        ("num_ctx", 4096),
        ("num_ctx", 0),
        ("unknown", 1),
    ],
)
def test_endpoint_fields_that_are_refused(field: str, value: object) -> None:
    places = endpoint_faults(**{field: value})
    assert {place.split(".")[0] for place in places} == {field}


@pytest.mark.parametrize("field", ["connect", "first_byte", "idle", "total"])
@pytest.mark.parametrize("value", [0, -1, True, float("inf"), "soon"])
def test_timeouts_are_positive_and_finite(field: str, value: object) -> None:
    assert list(endpoint_faults(timeouts={field: value})) == [f"timeouts.{field}"]


def test_num_ctx_is_accepted_for_ollama() -> None:
    assert EndpointSettings(**{**ENDPOINT, "dialect": "ollama", "num_ctx": 8192}).num_ctx == 8192


def test_thinking_is_switched_for_chat() -> None:
    assert EndpointSettings(**ENDPOINT).thinking_switch is None
    for dialect in ("responses", "ollama"):
        faults = endpoint_faults(dialect=dialect, thinking_switch="enable_thinking")
        assert list(faults) == ["thinking_switch"]
    assert list(endpoint_faults(dialect="chat", thinking_switch="on")) == ["thinking_switch"]


def test_system_messages_are_rearranged_for_chat_and_ollama() -> None:
    assert EndpointSettings(**ENDPOINT).system_messages is None
    for dialect in ("chat", "ollama"):
        made = EndpointSettings(**{**ENDPOINT, "dialect": dialect, "system_messages": "user"})
        assert made.system_messages == "user"
    assert list(endpoint_faults(dialect="responses", system_messages="merge")) == [
        "system_messages"
    ]
    assert list(endpoint_faults(dialect="chat", system_messages="first")) == ["system_messages"]


@pytest.mark.parametrize(
    "host", ["Example.com", "*.example.com", "a-b.c:8080", "10.0.0.7", "[::1]", "[fd00::1]:80"]
)
def test_hosts_to_fetch_from(host: str) -> None:
    assert FetchSettings(hosts=(host,)).hosts == (host.lower(),)


@pytest.mark.parametrize("host", ["http://a", "a/b", "*", "a*.b", "*.*.b", "u@b", "a:b", "::1", ""])
def test_hosts_that_are_none(host: str) -> None:
    with pytest.raises(ValidationError):
        FetchSettings(hosts=(host,))


def test_a_list_of_hosts_is_not_empty() -> None:
    assert FetchSettings().hosts is None
    with pytest.raises(ValidationError):
        FetchSettings(hosts=())


def test_a_chat_cannot_be_translated_to_a_chat() -> None:
    asked = {"dialect": "chat", "chat_completions": "translated"}
    assert list(endpoint_faults(**asked)) == ["chat_completions"]
    for dialect in ("responses", "ollama"):
        made = EndpointSettings(**{**ENDPOINT, **asked, "dialect": dialect})
        assert made.chat_completions == "translated"
    assert list(endpoint_faults(chat_completions="maybe")) == ["chat_completions"]


def test_a_wrong_dialect_is_not_blamed_on_num_ctx() -> None:
    assert list(endpoint_faults(dialect="olama", num_ctx=8192)) == ["dialect"]


def test_null_counts_as_left_out_but_not_for_unknown_keys() -> None:
    settings = Settings.model_validate(
        {"server": None, "auth": None, "endpoints": [{**ENDPOINT, "timeouts": None}]}
    )
    assert settings.endpoints[0].timeouts.total == 600
    assert list(faults(endpoints=[ENDPOINT], sever=None)) == ["sever"]
    assert list(endpoint_faults(name=None)) == ["name"]


def test_at_least_one_endpoint() -> None:
    assert list(faults()) == ["endpoints"]
    assert "at least one" in faults(endpoints=[])["endpoints"]
    assert list(faults(endpoints=[{**ENDPOINT, "dialect": "x"}])) == ["endpoints.0.dialect"]


def test_endpoint_names_are_unique() -> None:
    found = faults(endpoints=[ENDPOINT, {**ENDPOINT, "name": "b"}, ENDPOINT, ENDPOINT])
    assert list(found) == ["endpoints.2.name", "endpoints.3.name"]


def test_key_names_and_keys_are_unique() -> None:
    keys = [{"name": "a", "key": "1"}, {"name": "b", "key": "1"}, {"name": "a", "key": "2"}]
    assert set(faults(endpoints=[ENDPOINT], auth={"keys": keys})) == {
        "auth.keys.1.key",
        "auth.keys.2.name",
    }


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST"])
def test_loopback_needs_no_key(host: str) -> None:
    settings = Settings.model_validate({"endpoints": [ENDPOINT], "server": {"host": host}})
    assert settings.server.on_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "localhost.example"])
def test_any_other_host_needs_a_key(host: str) -> None:
    found = faults(endpoints=[ENDPOINT], server={"host": host})
    assert "not a loopback address" in found["auth.keys"]
    Settings.model_validate(
        {
            "endpoints": [ENDPOINT],
            "server": {"host": host},
            "auth": {"keys": [{"name": "a", "key": "k"}]},
        }
    )


@pytest.mark.parametrize(
    "name", ["", "a b", "-a", "a-", "a:b:c", "a-b:c", ":f", "a:", "a.:b", "1a:b", 5]
)
def test_plugins_that_are_refused(name: object) -> None:
    assert list(faults(endpoints=[ENDPOINT], plugins=[name])) == ["plugins.0"]


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ({"options": {}}, "plugins.0.plugin"),
        ({"plugin": "a:"}, "plugins.0.plugin"),
        ({"plugin": "a", "options": [1]}, "plugins.0.options"),
        ({"plugin": "a", "option": {}}, "plugins.0.option"),
    ],
)
def test_mappings_of_plugins_that_are_refused(entry: dict[str, Any], place: str) -> None:
    assert list(faults(endpoints=[ENDPOINT], plugins=[entry])) == [place]


def test_plugins_that_are_accepted() -> None:
    told = {"share": 0.5, "of": [{"model": "m"}, None]}
    given: list[Any] = ["a:b", "a.b_c:D1", "limits", "ab-split", {"plugin": "a", "options": told}]
    settings = Settings.model_validate({"endpoints": [ENDPOINT], "plugins": given})
    assert [entry.plugin for entry in settings.plugins] == [
        "a:b",
        "a.b_c:D1",
        "limits",
        "ab-split",
        "a",
    ]
    assert [entry.options for entry in settings.plugins] == [{}, {}, {}, {}, told]


def test_secrets_are_neither_shown_nor_part_of_errors() -> None:
    key = ApiKey(name="a", key=SecretStr("hunter2"))
    plugin = {"plugin": "a", "options": {"key": "hunter2", "of": {"key": "hunter2"}}}
    settings = Settings.model_validate(
        {"endpoints": [{**ENDPOINT, "api_key": "hunter2"}], "plugins": [plugin]}
    )
    assert "hunter2" not in f"{key!r}{key}{settings!r}{settings}{settings.model_dump_json()}"
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"endpoints": [{**ENDPOINT, "api_key": "hunter2 hunter2"}]})
    assert "hunter2" not in str(caught.value)


def test_repetitions_compare_texts_only() -> None:
    items: list[dict[str, object]] = [
        {"name": "a"},
        {},
        {"name": ["a"]},
        {"name": None},
        {"name": None},
        {"name": "a"},
    ]
    assert repetitions(items, {"name": "again"}) == [((5, "name"), "again")]


def test_the_threshold_is_the_one_that_the_guard_was_measured_at() -> None:
    from cache.guard import THRESHOLD

    assert CacheSettings().semantic.threshold == THRESHOLD


@pytest.mark.parametrize(
    ("cache", "place"),
    [
        ({"mode": "sometimes"}, "cache.mode"),
        ({"store": "memcached://x"}, "cache.store"),
        ({"store": "disk://"}, "cache.store"),
        ({"ttl": 0}, "cache.ttl"),
        ({"max_bytes": 0}, "cache.max_bytes"),
        ({"scope": "all"}, "cache.scope"),
        ({"semantic": {"threshold": 1.5}}, "cache.semantic.threshold"),
        ({"semantic": {"self_check": {"share": 2}}}, "cache.semantic.self_check.share"),
        ({"tools": ["file_search"]}, "cache.tools.0"),
        ({"tools": ["web_search", "mcp:"]}, "cache.tools.1"),
        ({"tools": ["web_search", "mcp:nobody"]}, "cache.tools.1"),
        ({"semantic": {"embedder": "lokal"}}, "cache.semantic.embedder"),
        ({"semantic": {"embedder": {"endpoint": "box"}}}, "cache.semantic.embedder"),
        (
            {"semantic": {"embedder": {"endpoint": "nobody", "model": "e"}}},
            "cache.semantic.embedder.endpoint",
        ),
    ],
)
def test_cache_fields_that_are_refused(cache: dict[str, object], place: str) -> None:
    assert list(faults(endpoints=[ENDPOINT], cache=cache)) == [place]


def test_an_endpoint_may_be_the_embedder() -> None:
    embedder = {"endpoint": ENDPOINT["name"], "model": "e"}
    settings = Settings.model_validate(
        {"endpoints": [ENDPOINT], "cache": {"semantic": {"embedder": embedder}}}
    )
    assert settings.cache.semantic.embedder == EmbedderSettings.model_validate(embedder)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"metrics": {"key": "sk-a"}}, "is the same as a client's key"),
        ({"metrics": {"key": "sk-x"}, "admin": {"key": "sk-x"}}, "is the same as metrics.key"),
        ({"metrics": {"key": "sk-x", "require_key": True}}, "must be false where metrics.key is"),
    ],
)
def test_the_key_of_the_metrics_is_nobody_elses(more: dict[str, Any], message: str) -> None:
    sections = {"endpoints": [ENDPOINT], "auth": {"keys": [{"name": "a", "key": "sk-a"}]}, **more}
    with pytest.raises(ValidationError, match=message):
        Settings.model_validate(sections)


def test_fallbacks_have_a_short_form() -> None:
    given = {"a": "b", "c": ["d", "e"], "f*": {"models": ["g"], "for_keys": "any"}}
    found = Settings.model_validate({"endpoints": [ENDPOINT], "fallbacks": given}).fallbacks
    assert {name: (one.models, one.for_keys) for name, one in found.items()} == {
        "a": (("b",), "allowed"),
        "c": (("d", "e"), "allowed"),
        "f*": (("g",), "any"),
    }
