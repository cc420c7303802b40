"""What tokens cost, by the configuration and by the list prices."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import genai_prices
import pytest
from genai_prices import Usage, update_prices
from genai_prices.data import providers
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot
from genai_prices.types import ModelInfo, ModelPrice
from hypothesis import example, given
from hypothesis import strategies as st

from router.core.usage_record import NO_TOKENS, Tokens
from router.settings.accounts import AccountsSettings
from router.usage import list_prices
from router.usage.rates import PriceStep, Rates
from router.usage.recorder import Prices

_OPENAI = "https://api.openai.com/v1"
_NOW = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()
_USAGE = Tokens(1000, 400, 100, 60)
_MILLION = Tokens(1_000_000, 0, 1_000_000, 0)


def _prices(given: dict[str, Any] | None = None, *, listed: bool = True) -> Prices:
    return Prices(AccountsSettings.model_validate({"prices": given or {}, "list_prices": listed}))


def _cost(prices: Prices, model: str, *, endpoint: str = "here", tokens: Tokens = _USAGE) -> Any:
    return prices.cost(endpoint, "http://gpu1:8000/v1", model, tokens, _NOW)


@pytest.mark.parametrize(
    ("settings", "nano"),
    [
        ({"input": 2.5, "output": 10}, 1000 * 2500 + 100 * 10_000),
        ({"input": 2.5, "output": 10, "cached": 1.25}, 600 * 2500 + 400 * 1250 + 100 * 10_000),
        ({"input": 2.5, "output": 10, "cached": 0}, 600 * 2500 + 100 * 10_000),
        ({"input": 1, "output": 2, "reasoning": 5}, 1000 * 1000 + 40 * 2000 + 60 * 5000),
        ({"input": 0.1, "output": 0.3}, 1000 * 100 + 100 * 300),
        ({"input": 0, "output": 0}, 0),
        ({"gpu_hour": 2.5}, 0),
    ],
)
def test_configured_prices(settings: dict[str, float], nano: int) -> None:
    assert _cost(_prices({"llama": settings}), "llama") == nano


@pytest.mark.parametrize(
    ("patterns", "output"),
    [
        (["llama-70b"], 1),
        (["box/llama-70b"], 1),
        (["llama-*"], 1),
        (["box/*"], 1),
        (["*"], 1),
        (["llama-70b", "*"], 2),
        (["*", "llama-70b"], 2),
        (["*", "other"], 1),
        (["*", "other/*"], 1),
        (["other/llama-70b"], None),
        (["llama"], None),
        (["LLAMA-70B"], None),
        ([], None),
    ],
)
def test_the_last_pattern_that_matches_counts(patterns: list[str], output: int | None) -> None:
    settings = {name: {"input": 0, "output": n} for n, name in enumerate(patterns, start=1)}
    cost = _cost(_prices(settings), "llama-70b", endpoint="box", tokens=Tokens(0, 0, 1000, 0))
    assert cost == (None if output is None else output * 1_000_000)


def test_a_name_is_a_name_before_it_is_a_pattern() -> None:
    assert _cost(_prices({"m[1]": {"input": 1, "output": 1}}), "m[1]") is not None


def test_configured_prices_go_before_list_prices() -> None:
    prices = _prices({"gpt-4o": {"input": 1, "output": 1}})
    assert prices.cost("cloud", _OPENAI, "gpt-4o", _MILLION, _NOW) == 2_000_000_000
    assert _prices().cost("cloud", _OPENAI, "gpt-4o", _MILLION, _NOW) == 12_500_000_000


def test_list_prices_can_be_off() -> None:
    assert _prices(listed=False).cost("cloud", _OPENAI, "gpt-4o", _USAGE, _NOW) is None


def test_a_reload_forgets_the_old_prices() -> None:
    prices = _prices({"llama": {"input": 1, "output": 1}})
    assert _cost(prices, "llama", tokens=_MILLION) == 2_000_000_000
    prices.configure(
        AccountsSettings.model_validate({"prices": {"llama": {"input": 2, "output": 2}}})
    )
    assert _cost(prices, "llama", tokens=_MILLION) == 4_000_000_000
    prices.configure(AccountsSettings())
    assert _cost(prices, "llama", tokens=_MILLION) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:11434",
        "http://gpu1:8000/v1",
        "https://llm.example.com/v1",
        "https://api.openai.com.example.com/v1",
        "https://api.openai.company/v1",
        "https://api.cohere.company/v1",
        "https://example.com/api.openai.com/v1",
        "https://example.com/https://api.openai.com/v1",
        "https://example.com/x.googleapis.com/v1",
        "https://example/x.openai.azure.com/v1",
        "https://us.openai.azure.com.example.com",
        "https://api.openai.com:8443/v1",
        "http://api.openai.com/v1",
        "https://user:api.openai.com@example.com/v1",
        "https://acme--vllm.modal.run/v1",
    ],
)
@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", "deepseek-chat"])
def test_a_host_of_ones_own_has_no_list_price(url: str, model: str) -> None:
    assert _prices().cost("box", url, model, _USAGE, _NOW) is None
    assert _prices().explain("box", url, model, _NOW) is None


@pytest.mark.parametrize(
    ("url", "model"),
    [
        (_OPENAI, "gpt-4o"),
        ("https://API.OpenAI.com:443/v1", "gpt-4o"),
        ("https://api.openai.com", "gpt-4o"),
        ("https://acme.openai.azure.com/openai/v1", "gpt-4o"),
        ("https://api.anthropic.com/v1", "claude-sonnet-4-5"),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "gemini-2.5-pro"),
        ("https://openrouter.ai/api/v1", "openai/gpt-4o"),
        ("https://api.mistral.ai/v1", "mistral-large-latest"),
        ("https://api.moonshot.ai/v1", "kimi-k2-thinking"),
        ("https://router.huggingface.co/groq/v1", "openai/gpt-oss-120b"),
    ],
)
def test_a_provider_is_known_by_its_url(url: str, model: str) -> None:
    cost = _prices().cost("cloud", url, model, _USAGE, _NOW)
    assert cost is not None
    assert cost > 0


@pytest.mark.parametrize("model", ["no-such-model", "", "gpt-4o" * 500])
def test_a_model_that_is_not_listed_is_unknown(model: str) -> None:
    assert _prices().cost("cloud", "https://api.x.ai/v1", model, _USAGE, _NOW) is None


def _listed() -> list[tuple[str, str]]:
    """Provider and model: several of many providers, whose names lead back to them."""
    urls = {
        "openai": _OPENAI,
        "anthropic": "https://api.anthropic.com/v1",
        "google": "https://generativelanguage.googleapis.com/v1beta/openai",
        "mistral": "https://api.mistral.ai/v1",
        "groq": "https://api.groq.com/openai/v1",
        "deepseek": "https://api.deepseek.com/v1",
        "perplexity": "https://api.perplexity.ai",
        "x-ai": "https://api.x.ai/v1",
        "openrouter": "https://openrouter.ai/api/v1",
        "together": "https://api.together.xyz/v1",
        "azure": "https://acme.openai.azure.com/openai/v1",
    }
    found = []
    for provider in providers:
        if provider.id not in urls:
            continue
        names = [m.id for m in provider.models if _priced(m) and provider.find_model(m.id) is m]
        found += [(urls[provider.id], name) for name in names[:12]]
    return found


def _priced(model: ModelInfo) -> bool:
    prices = model.get_prices(datetime.fromtimestamp(_NOW, UTC))
    known = {name for name, price in vars(prices).items() if price is not None}
    return {"input_mtok", "output_mtok"} <= known and "free" not in model.id


@pytest.mark.parametrize(("url", "model"), _listed())
def test_list_prices_are_those_of_the_package(url: str, model: str) -> None:
    prices = _prices()
    for tokens in (_USAGE, Tokens(1, 0, 1, 0), Tokens(250_001, 7, 333, 33), Tokens(900_000, 3, 1)):
        for at in (datetime(2025, 3, 1, 3, tzinfo=UTC), datetime(2026, 11, 22, 20, tzinfo=UTC)):
            usage = Usage(
                input_tokens=tokens.input,
                cache_read_tokens=tokens.cached,
                output_tokens=tokens.output,
                output_reasoning_tokens=tokens.reasoning,
            )
            theirs = genai_prices.calc_price(
                usage, model, provider_api_url=url, genai_request_timestamp=at
            )
            nano = (theirs.total_price * 10**9).quantize(Decimal(1), ROUND_HALF_UP)
            assert prices.cost("cloud", url, model, tokens, at.timestamp()) == nano


def test_prices_change_in_time() -> None:
    """And with the time of the day: this one is cheaper at night."""
    prices = _prices()
    url = "https://api.deepseek.com"
    day, night = (datetime(2025, 3, 1, hour, tzinfo=UTC).timestamp() for hour in (12, 20))
    by_day = prices.cost("cloud", url, "deepseek-reasoner", _MILLION, day)
    by_night = prices.cost("cloud", url, "deepseek-reasoner", _MILLION, night)
    assert by_day is not None
    assert by_night is not None
    assert by_night < by_day


def test_prices_by_context_hold_for_the_whole_request() -> None:
    rates = Rates([
        PriceStep(Decimal(1), Decimal(2)),
        PriceStep(Decimal(3), Decimal(6), above=1000),
        PriceStep(Decimal(5), Decimal(6), above=2000),
    ])  # fmt: skip
    costs = [rates.cost(Tokens(count, 0, 0, 0)) for count in (0, 1000, 1001, 2000, 2001)]
    assert costs == [0, 1_000_000, 3_003_000, 6_000_000, 10_005_000]


@pytest.mark.parametrize(
    ("prices", "tokens", "cost"),
    [
        (ModelPrice(), _USAGE, None),
        (ModelPrice(audio_hours=Decimal(3)), _USAGE, None),
        (ModelPrice(input_mtok=Decimal(1)), Tokens(10, 0, 0, 0), 10_000),
        (ModelPrice(input_mtok=Decimal(1)), Tokens(10, 0, 1, 0), None),
        (ModelPrice(output_mtok=Decimal(1)), Tokens(10, 0, 1, 0), None),
        (ModelPrice(output_mtok=Decimal(1)), Tokens(0, 0, 1, 0), 1000),
    ],
)
def test_what_is_not_listed_is_not_taken_for_free(
    monkeypatch: pytest.MonkeyPatch, prices: ModelPrice, tokens: Tokens, cost: int | None
) -> None:
    openai = next(provider for provider in providers if provider.id == "openai")
    model = ModelInfo(id="odd", match=openai.models[0].match, prices=prices)
    assert (rates := list_prices.ListPrice(openai, model).rates(_NOW)) is None or (
        rates.cost(tokens) == cost
    )
    assert rates is not None or cost is None


def test_a_free_model_is_free() -> None:
    url = "https://openrouter.ai/api/v1"
    free = next(
        model.id
        for provider in providers
        if provider.id == "openrouter"
        for model in provider.models
        if model.id.endswith(":free")
    )
    assert _prices().cost("cloud", url, free, _USAGE, _NOW) == 0


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"input": 2.5, "cached": 1.25, "output": 10},
            "2.50 USD per million input tokens, 1.25 cached, 10.00 output (configured as 'll*')",
        ),
        (
            {"input": 0.075, "output": 1000.5},
            "0.075 USD per million input tokens, 1,000.50 output (configured as 'll*')",
        ),
        ({"input": 0, "output": 0}, "nothing per token (configured as 'll*')"),
        (
            {"gpu_hour": 2.5},
            "nothing per token (2.50 USD per GPU hour, configured as 'll*')",
        ),
    ],
)
def test_explained(settings: dict[str, float], told: str) -> None:
    assert _prices({"ll*": settings}).explain("box", "http://gpu1", "llama", _NOW) == told


def test_list_prices_explained() -> None:
    told = _prices().explain("cloud", _OPENAI, "gpt-4o", _NOW)
    assert told == (
        "2.50 USD per million input tokens, 1.25 cached, 10.00 output (list price of OpenAI)"
    )
    url = "https://generativelanguage.googleapis.com/v1beta/openai"
    told = _prices().explain("cloud", url, "gemini-2.5-pro", _NOW)
    assert told is not None
    assert "; above 200,000 input tokens: 2.50 USD per million" in told


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.usage.recorder._REMEMBERED", 10)
    asked: list[str] = []
    find = list_prices.find

    def counted(url: str, model: str) -> list_prices.ListPrice | None:
        asked.append(model)
        return find(url, model)

    monkeypatch.setattr(list_prices, "find", counted)
    prices = _prices()
    for _ in range(3):
        prices.cost("cloud", _OPENAI, "gpt-4o", _USAGE, _NOW)
        prices.cost("cloud", _OPENAI, "unknown", _USAGE, _NOW)
    assert asked == ["gpt-4o", "unknown"]
    for number in range(30):
        prices.cost("cloud", _OPENAI, f"x{number}", _USAGE, _NOW)
    assert len(prices._known) == 10


def test_a_snapshot_that_was_fetched_is_not_looked_at() -> None:
    set_custom_snapshot(DataSnapshot(providers=[], from_auto_update=True))
    try:
        assert _prices().cost("cloud", _OPENAI, "gpt-4o", _MILLION, _NOW) == 12_500_000_000
    finally:
        set_custom_snapshot(None)
    assert update_prices._shared_updater.ref_count == 0


def test_the_network_is_never_touched() -> None:
    """A process that is killed by its first use of a socket, or of a second thread."""
    program = """
import os, sys
def watch(event, arguments):
    if event.startswith("socket.") or event == "_thread.start_new_thread":
        os.write(2, f"{event} {arguments}".encode())
        os._exit(3)
from router.core.usage_record import Tokens
from router.settings.accounts import AccountsSettings
sys.addaudithook(watch)
from router.usage.recorder import Prices
prices = Prices(AccountsSettings())
for model in ("gpt-4o", "no-such-model"):
    print(prices.cost("cloud", "https://api.openai.com/v1", model, Tokens(1000, 0, 0, 0), 1.8e9))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "2500000\nNone\n", "")


_COUNT = st.integers(0, 10**7)
_TOKENS = st.builds(Tokens, _COUNT, _COUNT, _COUNT, _COUNT)
_USD = st.floats(0, 1000, allow_nan=False).map(lambda price: Decimal(repr(price)))
_STEPS = st.builds(PriceStep, _USD, _USD, st.none() | _USD, st.none() | _USD)


@given(_STEPS, _TOKENS, _COUNT, _COUNT)
def test_more_tokens_never_cost_less(
    step: PriceStep, tokens: Tokens, more: int, longer: int
) -> None:
    """Of every kind, where cached tokens are the cheaper ones and reasoning is the dearer."""
    assert step.input is not None
    assert step.output is not None
    step = PriceStep(
        step.input,
        step.output,
        step.cached and min(step.cached, step.input),
        step.reasoning and max(step.reasoning, step.output),
    )
    rates = Rates([step])
    few, many = (
        rates.cost(tokens),
        rates.cost(tokens._replace(input=tokens.input + more, output=tokens.output + longer)),
    )
    assert few is not None
    assert many is not None
    assert 0 <= few <= many


@given(_STEPS, _TOKENS, _TOKENS)
@example(PriceStep(Decimal("0.0005"), Decimal(0)), Tokens(1), Tokens(1))
def test_the_parts_cost_what_the_whole_does(step: PriceStep, one: Tokens, other: Tokens) -> None:
    """Within the rounding of each of the three, which is at most half a billionth."""
    one, other = _possible(one), _possible(other)
    rates = Rates([step])
    parts = [rates.cost(one), rates.cost(other)]
    whole = rates.cost(Tokens(*(a + b for a, b in zip(one, other, strict=True))))
    assert whole is not None
    assert abs(sum(part or 0 for part in parts) - whole) <= 1


@given(_STEPS, _TOKENS)
def test_a_cost_is_the_exact_one_rounded_once(step: PriceStep, tokens: Tokens) -> None:
    tokens = _possible(tokens)
    assert step.input is not None
    assert step.output is not None
    cached = step.input if step.cached is None else step.cached
    reasoning = step.output if step.reasoning is None else step.reasoning
    exact = (
        (tokens.input - tokens.cached) * step.input
        + tokens.cached * cached
        + (tokens.output - tokens.reasoning) * step.output
        + tokens.reasoning * reasoning
    ) * 1000
    assert Rates([step]).cost(tokens) == int(exact.quantize(Decimal(1), ROUND_HALF_UP))


def _possible(tokens: Tokens) -> Tokens:
    return tokens._replace(
        cached=min(tokens.cached, tokens.input), reasoning=min(tokens.reasoning, tokens.output)
    )


@given(_TOKENS)
def test_what_is_unknown_stays_unknown(tokens: Tokens) -> None:
    prices = _prices()
    assert _cost(prices, "llama", tokens=tokens) is None
    assert _cost(prices, "llama", tokens=NO_TOKENS) is None


def test_a_cost_fits_into_a_database() -> None:
    assert Rates([PriceStep(Decimal("1e300"), Decimal(1))]).cost(Tokens(10**12)) == 2**63 - 1


def test_what_is_written_to_a_cache_has_a_price_of_its_own() -> None:
    rates = Rates([PriceStep(Decimal(4), Decimal(0), Decimal(1), written=Decimal(5))])
    tokens = Tokens(input=1000, cached=300)
    assert rates.cost(tokens) == (700 * 4 + 300) * 1000
    assert rates.cost(tokens, 200) == (500 * 4 + 200 * 5 + 300) * 1000
    assert rates.cost(tokens, 9999) == (700 * 5 + 300) * 1000
    assert Rates([PriceStep(Decimal(4), Decimal(0))]).cost(tokens, 200) == 4_000_000
    assert "5.00 written to the cache" in rates.words()


def test_anthropics_list_prices_have_one_too() -> None:
    url, tokens = "https://api.anthropic.com/v1", Tokens(input=1_000_000)
    plain = _prices().cost("cloud", url, "claude-sonnet-4-5", tokens, _NOW)
    written = _prices().cost("cloud", url, "claude-sonnet-4-5", tokens, _NOW, 100_000)
    assert plain is not None
    assert written is not None
    assert written > plain
