"""Settings from file and environment: every mistake at once, with line and field."""

import string
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from router.settings.load import Mistake, SettingsError, load_settings, parse_settings
from router.settings.schema import Settings

GOOD = """\
server:
  port: 9001
endpoints:
  - name: box
    url: http://10.0.0.1/v1
    dialect: chat
    api_key: ${KEY}
"""


KEYED = GOOD + "auth:\n  keys:\n    - name: ann\n      key: sk-ann\n      "


def parse(text: str, **environ: str) -> Settings:
    return parse_settings(text, source="f.yaml", environ=environ)


def mistakes(text: str, **environ: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        parse(text, **environ)
    assert str(caught.value).splitlines() == [str(mistake) for mistake in caught.value.mistakes]
    return str(caught.value).splitlines()


def test_file_and_environment() -> None:
    settings = parse(GOOD, KEY="sk-1", PATH="/bin")
    key = settings.endpoints[0].api_key
    assert key is not None
    assert key.get_secret_value() == "sk-1"
    assert settings.server.port == 9001


def test_every_mistake_is_reported_at_once_with_its_line() -> None:
    text = """\
server: {port: 99999, keepalve_interval: 3}
endpoints:
  - name: a
    url: nowhere
    dialect: chatt
    api_key: ${NOPE}
    num_ctx: 3
    timeouts: {connect: 0, total: true}
  - name: a
    url: http://h
    dialect: chat
    num_ctx: 3
    max_in_flight: 1.5
    models: [1]
    aliases: {gpt-4.1: [x]}
  - dialect: ollama
logging: loud
logging: {}
plugins: factory
"""
    assert mistakes(text) == [
        "f.yaml:1: server.keepalve_interval: unknown key, did you mean keepalive_interval?",
        "f.yaml:1: server.port: must be at most 65535",
        'f.yaml:4: endpoints[0].url: must be a URL like "https://host:port/v1"',
        "f.yaml:5: endpoints[0].dialect: must be one of "
        "'responses', 'chat', 'ollama' or 'messages'",
        "f.yaml:6: endpoints[0].api_key: the environment variable NOPE is not set",
        "f.yaml:8: endpoints[0].timeouts.connect: must be greater than 0",
        "f.yaml:8: endpoints[0].timeouts.total: must be a number",
        "f.yaml:9: endpoints[1].name: is already the name of another endpoint",
        "f.yaml:12: endpoints[1].num_ctx: is for endpoints with dialect: ollama only",
        "f.yaml:13: endpoints[1].max_in_flight: must be a whole number",
        "f.yaml:14: endpoints[1].models[0]: must be text (put a number in quotes)",
        "f.yaml:15: endpoints[1].aliases.gpt-4.1: must be text (put a number in quotes)",
        "f.yaml:16: endpoints[2].name: is required",
        "f.yaml:16: endpoints[2].url: is required",
        "f.yaml:17: logging: must be a mapping",
        "f.yaml:18: logging: is given twice, first on line 17",
        "f.yaml:19: plugins: must be a list",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.yaml:1: endpoints: is required"),
        ("endpoints: []", "f.yaml:1: endpoints: must have at least one entry"),
        ("endpoints:\n", "f.yaml:1: endpoints: is required"),
        ("endpoints: [x]", "f.yaml:1: endpoints[0]: must be a mapping"),
        (GOOD + "auth: {keys: [{name: a, key: 123}]}", "f.yaml:8: auth.keys[0].key: must be text"),
        (GOOD + "auth: {keys: [{name: a, key: ''}]}", "f.yaml:8: auth.keys[0].key: is empty"),
        (
            GOOD + "unheard_of: {}",
            "f.yaml:8: unheard_of: unknown key; known here are server, auth",
        ),
        (GOOD + "metrics: {require_key: maybe}", "f.yaml:8: metrics.require_key: must be true or"),
        (GOOD + "balance: {queue_size: -1}", "f.yaml:8: balance.queue_size: must be at least 0"),
        (GOOD + "balance: {queue_timeout: .inf}", "f.yaml:8: balance.queue_timeout: must be a fin"),
        (KEYED + "tags: [a, b, a]", "f.yaml:12: auth.keys[0].tags[2]: repeats tags[0]"),
        (
            KEYED + "budgets: [{period: day, usd: 1}, {period: day, usd: 2}]",
            "f.yaml:12: auth.keys[0].budgets[1]: repeats budgets[0]: there is one for each period",
        ),
        (
            GOOD + "accounts: {tags: {t: {budgets: [{period: day, usd: 1}, "
            "{period: week, usd: 1}, {period: day, usd: 1}]}}}",
            "f.yaml:8: accounts.tags.t.budgets[2]: repeats budgets[0]",
        ),
        (
            KEYED + "endpoints: [box, bocks]",
            "f.yaml:12: auth.keys[0].endpoints[1]: matches no endpoint; known are: box",
        ),
        (KEYED + "models: gpt", "f.yaml:12: auth.keys[0].models: must be a list"),
        (GOOD + "- x", "f.yaml:8: is not valid YAML: "),
        ("[]", "f.yaml:1: must be a mapping with the keys server, auth, endpoints, "),
    ],
)
def test_single_mistakes(text: str, message: str) -> None:
    (line,) = mistakes(text, KEY="x")
    assert line.startswith(message)


def test_open_on_loopback_only() -> None:
    text = GOOD.replace("port: 9001", "host: 0.0.0.0") + "auth:\n  keys: []\n"
    message = "needs at least one key, since server.host is not a loopback address; to serve"
    [line] = mistakes(text, KEY="x")
    assert line.startswith(f"f.yaml:9: auth.keys: {message}")
    assert "server.allowed_hosts" in line


def test_repeated_keys_are_found_beside_other_mistakes() -> None:
    text = (
        GOOD
        + """\
auth:
  keys:
    - {name: a, key: "${KEY}"}
    - {name: b, key: "${KEY}"}
    - {name: a, key: "y y"}
"""
    )
    assert mistakes(text, KEY="x") == [
        "f.yaml:11: auth.keys[1].key: is the same as another key",
        "f.yaml:12: auth.keys[2].key: contains blanks, line ends or characters outside ASCII",
        "f.yaml:12: auth.keys[2].name: is already the name of another key",
    ]


def test_a_missing_variable_is_not_reported_twice() -> None:
    text = GOOD.replace("name: box", "name: ${A}").replace("9001", "${B}")
    assert mistakes(text, KEY="x") == [
        "f.yaml:2: server.port: the environment variable B is not set",
        "f.yaml:4: endpoints[0].name: the environment variable A is not set",
    ]


def test_overrides() -> None:
    settings = parse(
        GOOD,
        KEY="x",
        POINTSMAN_SERVER__PORT="9000",
        POINTSMAN_SERVER__HOST="::1",
        POINTSMAN_SERVER__DRAIN_TIMEOUT="2.5",
        POINTSMAN_METRICS__REQUIRE_KEY="true",
        POINTSMAN_AUTH__KEYS='[{"name": "a", "key": "${KEY}"}]',
        POINTSMAN_PLUGINS="[a:b]",
    )
    assert (settings.server.host, settings.server.port) == ("::1", 9000)
    assert settings.server.drain_timeout == 2.5
    assert settings.metrics.require_key is True
    assert [entry.plugin for entry in settings.plugins] == ["a:b"]
    # A variable is taken as it is: references are a thing of the file.
    assert settings.auth.keys[0].key.get_secret_value() == "${KEY}"


def test_overrides_alone_are_enough() -> None:
    endpoints = '[{"name": "a", "url": "http://h", "dialect": "ollama"}]'
    assert parse("", POINTSMAN_ENDPOINTS=endpoints).endpoints[0].name == "a"


def test_wrong_overrides_are_reported_with_the_variables_name() -> None:
    found = mistakes(
        GOOD,
        KEY="x",
        POINTSMAN_SERVER__PORT="high",
        POINTSMAN_BALANCE__MAX_ATTEMPTS="",
        POINTSMAN_PLUGINS="[a:b, 'a:']",
        POINTSMAN_AUTH__KEYS="[{name: a, key: k, key: l}]",
        POINTSMAN_ENDPOINTS="[",
    )
    assert found == [
        "POINTSMAN_ENDPOINTS:1: is not valid YAML: expected the node content, but found "
        "'<stream end>'",
        "POINTSMAN_AUTH__KEYS:1: auth.keys[0].key: is given twice, first on line 1",
        "POINTSMAN_BALANCE__MAX_ATTEMPTS: balance.max_attempts: must be a whole number",
        'POINTSMAN_PLUGINS: plugins[1]: must be a name, or have the form "package.module:factory"',
        "POINTSMAN_SERVER__PORT: server.port: must be a whole number",
    ]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("POINTSMAN_SERVR__PORT", ", did you mean POINTSMAN_SERVER__PORT?"),
        ("POINTSMAN_SERVER_PORT", ", did you mean POINTSMAN_SERVER__PORT?"),
        ("POINTSMAN_PORT", ", did you mean POINTSMAN_"),
        ("POINTSMAN_server__port", ", did you mean POINTSMAN_SERVER__PORT?"),
        ("POINTSMAN_ENDPOINTS__0__URL", ", did you mean POINTSMAN_ENDPOINTS?"),
        ("POINTSMAN_XQZW", ""),
    ],
)
def test_variables_that_name_no_setting(name: str, hint: str) -> None:
    (line,) = mistakes(GOOD, KEY="x", **{name: "9000"})
    assert line.startswith(f"{name}: names no setting{hint}")


def test_a_mistake_below_the_name_of_a_model() -> None:
    text = """\
fallbacks: {"big:70b": [], "x*": [a, 1], y: {model: [a]}, z: {models: a}, v: 1}
endpoints:
  - name: a
    url: http://h
    dialect: chat
    capabilities:
      "llama3.2:*": {context_lenght: 4096, tools: maybe}
"""
    assert mistakes(text) == [
        "f.yaml:1: fallbacks.big:70b: must have at least one entry",
        "f.yaml:1: fallbacks.v: must be the name of a model, a list of names, or a mapping",
        "f.yaml:1: fallbacks.x*[1]: must be text (put a number in quotes)",
        "f.yaml:1: fallbacks.y.model: unknown key, did you mean models?",
        "f.yaml:1: fallbacks.y.models: is required",
        "f.yaml:1: fallbacks.z.models: must be a list",
        "f.yaml:7: endpoints[0].capabilities.llama3.2:*.context_lenght: unknown key, did you mean "
        "context_length?",
        "f.yaml:7: endpoints[0].capabilities.llama3.2:*.tools: must be true or false",
    ]


def test_variables_that_kubernetes_sets_are_not_mistakes() -> None:
    links = {
        "POINTSMAN_SERVICE_HOST": "10.0.0.1",
        "POINTSMAN_SERVICE_PORT": "8080",
        "POINTSMAN_SERVICE_PORT_HTTP": "8080",
        "POINTSMAN_PORT": "tcp://10.0.0.1:8080",
        "POINTSMAN_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "POINTSMAN_PORT_8080_TCP_ADDR": "10.0.0.1",
        "POINTSMAN_REDIS_SERVICE_HOST": "10.0.0.2",
        "POINTSMAN_REDIS_PORT_6379_TCP_PROTO": "tcp",
    }
    assert parse(GOOD, KEY="x", **links).server.port == 9001


def test_an_override_replaces_a_section_that_is_null_and_none_that_is_wrong() -> None:
    text = GOOD + "balance:\n"
    assert parse(text, KEY="x", POINTSMAN_BALANCE__QUEUE_SIZE="7").balance.queue_size == 7
    text = GOOD + "balance: 3\n"
    assert mistakes(text, KEY="x", POINTSMAN_BALANCE__QUEUE_SIZE="7") == [
        "f.yaml:8: balance: must be a mapping"
    ]


def test_ca_files_are_read(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.pem", tmp_path / "bad.pem"
    trustme.CA().cert_pem.write_to_path(str(good))
    bad.write_text("nothing")
    text = GOOD + "    tls: {ca_file: '${FILE}'}\n"
    assert parse(text, KEY="x", FILE=str(good)).endpoints[0].tls.ca_file == good
    assert mistakes(text, KEY="x", FILE=str(bad)) == [
        "f.yaml:8: endpoints[0].tls.ca_file: is a file without a PEM certificate"
    ]
    (line,) = mistakes(text, KEY="x", FILE=str(tmp_path / "none.pem"))
    assert line.startswith("f.yaml:8: endpoints[0].tls.ca_file: cannot be read: No such file")


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "pointsman.yaml"
    path.write_text("\ufeff" + GOOD, encoding="utf-8")
    assert load_settings(path, {"KEY": "x"}).server.port == 9001
    with pytest.raises(SettingsError) as caught:
        load_settings(path, {})
    assert caught.value.mistakes == [
        Mistake("endpoints[0].api_key", 7, "the environment variable KEY is not set", str(path))
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, ": cannot be read: No such file or directory"),
        (b"a: 1\nb: \xff", ":2: is not UTF-8"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "f.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        load_settings(path, {})
    assert str(caught.value) == f"{path}{message}"


SECRETS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20).map(
    lambda text: f"hunter2{text}hunter2"
)


@given(
    secret=SECRETS,
    place=st.sampled_from(
        [
            *("name: ?", "url: ?", "url: http://?@h/", "dialect: ?", "api_key: ?", "models: [?]"),
            *("aliases: {a: ?}", "max_in_flight: ?", "weight: ?", "timeouts: ?", "num_ctx: ?"),
            *("tls: {verify: ?}", "tls: {ca_file: ?}"),
        ]
    ),
)
def test_no_message_contains_a_variables_value(secret: str, place: str) -> None:
    text = f"endpoints: [{{{place.replace('?', chr(34) + '${SECRET}' + chr(34))}}}]"
    text = text.replace('http://"${SECRET}"@h/', '"http://${SECRET}@h/"')
    with pytest.raises(SettingsError) as caught:
        parse(text, SECRET=secret)
    assert caught.value.mistakes
    assert "hunter2" not in str(caught.value)


@given(secret=SECRETS, place=st.sampled_from(["api_key: ?", "url: http://?", "tls: {ca_file: ?}"]))
def test_no_message_contains_a_value_of_the_file(secret: str, place: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(f"endpoints:\n  - {place.replace('?', secret)}\n    dialect: x\n")
    assert "hunter2" not in str(caught.value)


PIECES = [*string.ascii_lowercase, *"[]{}:,-#&*!|>'\"%@`?~ \n\t0.$", "\n- ", ": ", "${A}"]
YAMLISH = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@given(text=YAMLISH | st.text())
def test_any_text_gives_settings_or_mistakes(text: str) -> None:
    try:
        explained = bool(parse(text, A="1").endpoints)
    except SettingsError as exc:
        explained = any(mistake.line is None or mistake.line >= 1 for mistake in exc.mistakes)
    assert explained


def test_variables_that_are_for_others() -> None:
    others = ("POINTSMAN_DATA_DIR", "POINTSMAN_URL", "POINTSMAN_API_KEY")
    assert parse(GOOD, KEY="x", **dict.fromkeys(others, "of something else")).endpoints
