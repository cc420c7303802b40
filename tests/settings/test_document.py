"""YAML as data with lines: substitution, duplicates, syntax errors."""

import pytest

from router.settings.document import Mistake, SettingsDocument, SettingsError


def read(text: str, **environ: str) -> SettingsDocument:
    document = SettingsDocument("f.yaml", environ)
    document.read(text)
    return document


def problems(text: str, **environ: str) -> list[str]:
    return [str(mistake) for mistake in read(text, **environ).mistakes]


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", {}),
        ("# nothing", {}),
        ("a: 1", {"a": 1}),
        ("a: [1, 2.5, yes, null, x]", {"a": [1, 2.5, True, None, "x"]}),
        ("a: 2024-01-01", {"a": "2024-01-01"}),
        ("a: '1'", {"a": "1"}),
        ("1: a\non: b\n~: c", {"1": "a", "on": "b", "~": "c"}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
    ],
)
def test_plain_data(text: str, data: object) -> None:
    document = read(text)
    assert document.data == data
    assert document.mistakes == []


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("${A}", "one"),
        ("x${A}y${A}", "xoneyone"),
        ("${A}${EMPTY}", "one"),
        ("${NONE:-two}", "two"),
        ("${EMPTY:-two}", "two"),
        ("${A:-two}", "one"),
        ("${NONE:-}", ""),
        ("${NONE:-http://h:1/v1}", "http://h:1/v1"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("$A", "$A"),
        ("$", "$"),
        ("${NESTED}", "${A}"),
    ],
)
def test_references(value: str, result: str) -> None:
    document = read(f"a: '{value}'", A="one", EMPTY="", NESTED="${A}")
    assert document.data == {"a": result}
    assert document.mistakes == []


@pytest.mark.parametrize(
    "value", ["[1, 2]", "{b: 1}", "x\nc: injected", "null", "9000", "!x", "*x"]
)
def test_a_variable_changes_a_value_never_the_structure(value: str) -> None:
    assert read("a: ${A}", A=value).data == {"a": value}


def test_references_without_an_environment_are_left_alone() -> None:
    document = SettingsDocument("NAME", None)
    document.read("a: '${A}'")
    assert document.data == {"a": "${A}"}


def test_missing_variables_are_all_named_with_their_lines() -> None:
    assert problems("a:\n  b: ${X}${Y}\n  c: [ok, '${Z}']") == [
        "f.yaml:2: a.b: the environment variable X is not set",
        "f.yaml:2: a.b: the environment variable Y is not set",
        "f.yaml:3: a.c[1]: the environment variable Z is not set",
    ]


@pytest.mark.parametrize("value", ["${", "${}", "${A", "${A-b}", "${A:b}", "${1}", "${A b}"])
def test_malformed_references(value: str) -> None:
    assert problems(f"a: '{value}'", A="1") == [
        'f.yaml:1: a: has a "${" that is neither ${NAME} nor ${NAME:-default}'
    ]


def test_a_broken_value_is_left_out() -> None:
    document = read("a: ${X}\nb: 1")
    assert document.data == {"b": 1}
    assert document.broken == {("a",)}


def test_duplicate_keys() -> None:
    assert problems("a: 1\nb: 2\na: 3\nc: {d: 1, e: 2, d: 3}") == [
        "f.yaml:3: a: is given twice, first on line 1",
        "f.yaml:4: c.d: is given twice, first on line 4",
    ]


def test_keys_that_are_no_plain_text() -> None:
    assert problems("a:\n  [1]: x\n  <<: {b: 1}") == [
        "f.yaml:2: a: a key must be plain text",
        "f.yaml:3: a: a key must be plain text",
    ]


@pytest.mark.parametrize(
    "value", ["!secret x", "!!python/object:os.system {}", "!!set {a}", "!x []"]
)
def test_tags_are_refused_without_showing_them(value: str) -> None:
    assert problems(f"a: {value}") == [
        'f.yaml:1: a: a value that begins with "!" must be put in quotes'
    ]


@pytest.mark.parametrize("value", ["!!int x", "!!bool x", "!!float x", "9" * 5000])
def test_scalars_that_are_none(value: str) -> None:
    assert problems(f"a: {value}") == ["f.yaml:1: a: is not a valid number, true, false or null"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: [", 2, "expected the node content"),
        ("a: 1\n\tb: 2", 2, "cannot start any token"),
        ("a: 1\nb: *hunter2", 2, 'begins with "*"'),
        ("a: &hunter2 1\nb: &hunter2 2", 2, 'anchor ("&") is defined twice'),
        ("a: 1\nb: !hunter2!x y", 2, 'begins with "!"'),
        ("a: 1\nb: {c: ${X}}", 2, "put values with ${...} in quotes"),
        ("a: 1\nb: \x01", 2, "a character that is not allowed"),
        ("a: 1\n---\nb: 2", 2, "but found another document"),
    ],
)
def test_syntax_errors(text: str, line: int, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(text)
    (mistake,) = caught.value.mistakes
    assert mistake.line == line
    assert mistake.message.startswith("is not valid YAML: ")
    assert message in mistake.message
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        "[" * 50 + "]" * 50,
        "a: &a [*a]",
        "a: &a [" + "x, " * 1000 + "]\nb: &b [" + "*a, " * 1000 + "]",
    ],
    ids=["open", "deep", "recursive", "bomb"],
)
def test_documents_without_an_end(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^f\.yaml:1: is nested too deeply, or too large$"):
        read(text)


def test_report_finds_the_nearest_line() -> None:
    document = read("a:\n  b:\n    - c: 1\n    - d: 2")
    for place in ((), ("z",), ("a", "z"), ("a", "b", 1, "z"), ("a", "b", 1, "d")):
        document.report(place, "m")
    assert [mistake.line for mistake in document.mistakes] == [1, 1, 1, 4, 4]


def test_report_names_the_variable_that_set_the_field() -> None:
    document = read("a: {b: 1}")
    document.variables[("a", "b")] = "VAR"
    document.report(("a", "b", 0, "c"), "m")
    document.report(("a",), "m")
    assert document.mistakes == [
        Mistake("a.b[0].c", None, "m", "VAR"),
        Mistake("a", 1, "m", "f.yaml"),
    ]


def test_keys_that_may_be_secrets_are_not_shown() -> None:
    document = read("{}")
    document.report(("auth", "sk-1234abcd"), "m")
    document.report(("endpoints", 0, "aliases", "gpt-4.1"), "m")
    assert [mistake.field for mistake in document.mistakes] == [
        "auth.(key not shown)",
        "endpoints[0].aliases.gpt-4.1",
    ]
