"""What a virtual key may do, as it is given in JSON: what is refused, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from router.errors import InvalidRequest
from router.settings.accounts import BudgetSettings, KeySpec, LimitSettings
from router.usage.key_spec import changed_spec, load_spec, parse_spec

EVERYTHING: dict[str, Any] = {
    "models": ["gpt-*", "llama3"],
    "budgets": [{"period": "month", "usd": 50}],
    "limits": {"requests_per_minute": 60, "concurrent": 4},
    "model_limits": {"gpt-*": {"tokens_per_minute": 1000}},
}


@pytest.mark.parametrize(
    ("fields", "param", "code", "said"),
    [
        ({"nope": 1}, "nope", "unknown_parameter", "Unknown parameter"),
        ({"name": "bob"}, "name", "unknown_parameter", "Unknown parameter"),
        ({"key": "sk-mine"}, "key", "unknown_parameter", "Unknown parameter"),
        ({"models": []}, "models", "invalid_value", "must have at least one entry"),
        ({"models": "gpt"}, "models", "invalid_type", "expected an array, but got a string"),
        ({"models": [""]}, "models[0]", "invalid_value", "is empty"),
        ({"models": [None]}, "models[0]", "invalid_type", "expected a string, but got null"),
        ({"models": ["\ud800"]}, "models[0]", "invalid_value", "is not valid text"),
        ({"models": ["a", "b", "a"]}, "models[2]", "invalid_value", "repeats models[0]"),
        ({"endpoints": [1]}, "endpoints[0]", "invalid_type", "a string, but got an integer"),
        ({"endpoints": ["a", "a"]}, "endpoints[1]", "invalid_value", "repeats endpoints[0]"),
        ({"expires": "tomorrow"}, "expires", "invalid_value", "must be a date or time like"),
        ({"expires": 4e9}, "expires", "invalid_type", "a string, but got a decimal number"),
        ({"expires": "9999-12-31T23:59-14:00"}, "expires", "invalid_value", "is too large"),
        ({"tags": ["a b"]}, "tags[0]", "invalid_value", "must be 1 to 64 letters"),
        ({"tags": ["a", "a"]}, "tags[1]", "invalid_value", "repeats tags[0]"),
        ({"tags": {}}, "tags", "invalid_type", "expected an array, but got an object"),
        ({"priority": 0}, "priority", "invalid_value", "must be at least 1."),
        ({"priority": True}, "priority", "invalid_type", "an integer, but got a boolean"),
        ({"priority": "5"}, "priority", "invalid_type", "an integer, but got a string"),
        ({"priority": 5.0}, "priority", "invalid_type", "an integer, but got a decimal number"),
        ({"priority": 10**30}, "priority", "invalid_value", "is too large"),
        ({"budgets": {}}, "budgets", "invalid_type", "expected an array, but got an object"),
        ({"budgets": ["5usd"]}, "budgets[0]", "invalid_type", "an object, but got a string"),
        ({"budgets": [None]}, "budgets[0]", "invalid_type", "an object, but got null"),
        ({"budgets": [{"usd": 1}]}, "budgets[0].period", "missing_required_parameter", "Missing"),
        ({"budgets": [{"period": "day"}]}, "budgets[0]", "invalid_value", "needs either usd or"),
        ({"budgets": [{"period": "year", "usd": 1}]}, "budgets[0].period", "invalid_value",
         "must be one of 'day', 'week', 'month' or 'total'"),
        ({"budgets": [{"period": 1, "usd": 1}]}, "budgets[0].period", "invalid_type", "a string"),
        ({"budgets": [{"period": "day", "usd": "5"}]}, "budgets[0].usd", "invalid_type",
         "expected a number, but got a string"),
        ({"budgets": [{"period": "day", "usd": -1}]}, "budgets[0].usd", "invalid_value",
         "must be greater than 0"),
        ({"budgets": [{"period": "day", "tokens": "5"}]}, "budgets[0].tokens", "invalid_type",
         "expected an integer, but got a string"),
        ({"budgets": [{"period": "day", "usd": 1e300}]}, "budgets[0]", "invalid_value", "large"),
        ({"budgets": [{"period": "day", "usd": float("nan")}]}, "budgets[0].usd", "invalid_value",
         "must be greater than 0"),
        ({"budgets": [{"period": "day", "usd": 1}, {"period": "day", "tokens": 1},
                      {"period": "week", "usd": 1}, {"period": "day", "usd": 2}]},
         "budgets[3]", "invalid_value", "repeats budgets[0]: there is one for each period and"),
        ({"limits": 5}, "limits", "invalid_type", "expected an object, but got an integer"),
        ({"limits": {"requests_per_minute": "60"}}, "limits.requests_per_minute", "invalid_type",
         "expected an integer, but got a string"),
        ({"limits": {"concurrent": 10**17}}, "limits.concurrent", "invalid_value", "too large"),
        ({"limits": {"per_second": 1}}, "limits.per_second", "unknown_parameter", "Unknown"),
        ({"model_limits": []}, "model_limits", "invalid_type", "an object, but got an array"),
        ({"model_limits": {"gpt": 5}}, "model_limits.gpt", "invalid_type", "expected an object"),
        ({"model_limits": {"gpt": {"concurrent": "4"}}}, "model_limits.gpt.concurrent",
         "invalid_type", "expected an integer"),
        ({"model_limits": {"gpt": {"concurrent": 10**17}}}, "model_limits.gpt.concurrent",
         "invalid_value", "too large"),
        ({"model_limits": {"": {}}}, "model_limits.", "invalid_value", "is empty"),
        ({"models": [f"{n:0100}" for n in range(100)]}, None, "invalid_value", "8 KiB"),
    ],
)  # fmt: skip
def test_fields_that_cannot_be(
    fields: dict[str, Any], param: str | None, code: str, said: str
) -> None:
    for make in (parse_spec, lambda changes: changed_spec(parse_spec(EVERYTHING), changes)):
        with pytest.raises(InvalidRequest) as caught:
            make(fields)
        assert (caught.value.param, caught.value.code) == (param, code)
        assert said in caught.value.message
        assert len(caught.value.message) < 300


def test_a_field_that_is_null_is_left_out() -> None:
    fields = dict.fromkeys(KeySpec.model_fields)
    assert parse_spec(fields) == KeySpec()
    assert parse_spec({"limits": {"concurrent": None}, "model_limits": {"m": None}}) == KeySpec()


def test_every_field_of_a_key_is_checked() -> None:
    for model, within in (
        (KeySpec, lambda field: field),
        (LimitSettings, lambda field: {"limits": field}),
        (BudgetSettings, lambda field: {"budgets": [{"period": "day", **field}]}),
    ):
        for name in model.model_fields:
            with pytest.raises(InvalidRequest) as caught:
                parse_spec(within({name: True}))
            assert caught.value.code == "invalid_type"
            assert caught.value.param is not None
            assert caught.value.param.endswith(name)


def test_endpoints_that_there_are_not() -> None:
    names = ["box-1", "box-2", "openai"]
    spec = parse_spec({"endpoints": ["box-*", "openai"]}, names)
    assert spec.endpoints == ("box-*", "openai")
    for before in (KeySpec(), spec):
        with pytest.raises(InvalidRequest) as caught:
            changed_spec(before, {"endpoints": ["openai", "bocks-*"]}, names)
        assert caught.value.param == "endpoints[1]"
        assert "matches no endpoint; known are: box-1, box-2, openai." in caught.value.message
    # What a key has already is no obstacle to another change of it.
    assert changed_spec(spec, {"priority": 2}, ["elsewhere"]).priority == 2


def test_what_was_stored_twice_can_still_be_read() -> None:
    assert load_spec(b'{"tags":["a","a"]}', None) == KeySpec(tags=("a", "a"))
