"""The settings of keys, budgets, limits, prices and the usage ledger."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time
from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from router.settings.model_names import fits
from router.settings.section import Section
from router.settings.values import (
    Count,
    DaysOrForever,
    Fault,
    KeyName,
    LimitsUrl,
    Name,
    Positive,
    Secret,
    Text,
    Usd,
    fail_at,
    not_empty,
    wrong,
)

__all__ = [
    "AccountsSettings",
    "ApiKey",
    "BudgetSettings",
    "KeySpec",
    "LimitSettings",
    "LimitsStoreSettings",
    "Period",
    "PriceSettings",
    "TagSettings",
    "repeated_in",
    "unknown_endpoints",
]

Period = Literal["day", "week", "month", "total"]

_NAMED = 20
"""Endpoints that an error names."""


def _moment(value: object) -> object:
    """A date is its beginning; a time without a zone is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise wrong('must be a date or time like "2027-01-31" or "2027-01-31T12:00Z"') from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if isinstance(value, datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return value


Moment = Annotated[datetime, BeforeValidator(_moment)]


class BudgetSettings(Section):
    """What may be spent in a period, in ``usd`` or in ``tokens``. Days, weeks (from Monday) and
    months are those of UTC.
    """

    period: Period
    """`day`, `week` (from Monday), `month` or `total`, in UTC."""
    usd: Positive | None = None
    """US dollars in each period; this or `tokens`."""
    tokens: Count | None = None
    """Tokens in each period; this or `usd`."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.usd is None) == (self.tokens is None):
            raise wrong("needs either usd or tokens")
        return self


class LimitSettings(Section):
    """How much at once: requests and tokens per minute, and requests under way."""

    requests_per_minute: Count | None = None
    """Requests per minute."""
    tokens_per_minute: Count | None = None
    """Tokens per minute, of prompts and answers."""
    concurrent: Count | None = None
    """Requests at once."""


class KeySpec(Section):
    """What a key may do, whoever made it.

    ``models`` are the models it may use, by the names that clients use, and ``endpoints`` the
    endpoints that may serve it: names or shell-style patterns; None means all, and so it does of
    ``tools``. It is refused from ``expires`` on. ``tags`` share the budgets of ``accounts.tags``.
    ``priority`` is its place in the queue for a slot: 1 is first. ``model_limits`` are further
    limits, each for the models of a name or pattern together.
    """

    models: Annotated[tuple[Text, ...], AfterValidator(not_empty)] | None = None
    """Models, or patterns of them, that the key may use, by the names that clients use; all without
    it.
    """
    endpoints: Annotated[tuple[Text, ...], AfterValidator(not_empty)] | None = None
    """Endpoints, or patterns of them, that may serve the key; all without it."""
    tools: tuple[Text, ...] | None = None
    """Tools, or patterns of them, that the router may run for the key: `web_search`, `file_search`,
    `code_interpreter`, `mcp`, `mcp:LABEL`, and `mcp:client` for servers that the client names; all
    without it, none if empty.
    """
    expires: Moment | None = None
    """When the key expires; never without it."""
    tags: tuple[Name, ...] = ()
    """Tags whose budgets the key shares, and by which usage is reported."""
    default_model: Text | None = None
    """The model of requests that name none, in the place of the global `default_model`."""
    priority: Count = 1
    """The key's place in the queue for a slot; 1 is first."""
    budgets: tuple[BudgetSettings, ...] = ()
    """What the key may spend."""
    limits: LimitSettings = LimitSettings()
    model_limits: dict[Text, LimitSettings] = Field(default_factory=dict)
    """Limits for the models of a pattern."""


def repeated_in(spec: KeySpec) -> Iterator[Fault]:
    """What is said twice in a list of the spec's, where there is one budget by period and unit; and
    a default model that the key may not use.

    Not a rule of the model: what is in a database is read as it is.
    """
    for name in ("models", "endpoints", "tools", "tags"):
        yield from _repeated(name, getattr(spec, name) or ())
    yield from _repeated_budgets(spec.budgets)
    model, models = spec.default_model, spec.models
    if model is not None and models is not None and not any(fits(model, one) for one in models):
        yield ("default_model",), "is none of the key's models"


def _repeated_budgets(budgets: tuple[BudgetSettings, ...]) -> Iterator[Fault]:
    kinds = ((one.period, "usd" if one.tokens is None else "tokens") for one in budgets)
    yield from _repeated("budgets", kinds, ": there is one for each period and unit")


def _repeated(name: str, values: Iterable[Hashable], why: str = "") -> Iterator[Fault]:
    first: dict[Hashable, int] = {}
    for index, value in enumerate(values):
        before = first.setdefault(value, index)
        if before != index:
            yield (name, index), f"repeats {name}[{before}]{why}"


def unknown_endpoints(patterns: Sequence[str], names: Sequence[str]) -> Iterator[Fault]:
    """Where a name or pattern is that of no endpoint, of those with these names."""
    known = ", ".join(names[:_NAMED]) + (" and others" if len(names) > _NAMED else "")
    for index, pattern in enumerate(patterns):
        if not any(fnmatchcase(name, pattern) for name in names):
            yield ("endpoints", index), f"matches no endpoint; known are: {known}"


class ApiKey(KeySpec):
    """One client key; the name is its owner and survives a change of the key."""

    name: KeyName
    """What the key is called in logs, metrics and usage."""
    key: Secret
    """The secret that clients send."""

    @model_validator(mode="after")
    def _nothing_twice(self) -> Self:
        fail_at("ApiKey", repeated_in(self))
        return self


class TagSettings(Section):
    """What all keys with one tag may spend together."""

    budgets: tuple[BudgetSettings, ...] = ()
    """What all keys with the tag may spend together."""

    @model_validator(mode="after")
    def _nothing_twice(self) -> Self:
        fail_at("TagSettings", _repeated_budgets(self.budgets))
        return self


class PriceSettings(Section):
    """What a model costs, in USD per million tokens.

    ``cached`` input, and what is written to a cache (``cache_write``), cost as much as other
    ``input``, and ``reasoning`` as much as other
    ``output``, unless it is said. ``gpu_hour`` is for models on one's own machines, in place of the
    others: a further token costs nothing there.
    """

    input: Usd | None = None
    """Input tokens."""
    cached: Usd | None = None
    """Input tokens from a prompt cache."""
    cache_write: Usd | None = None
    """Input tokens that are written to a prompt cache."""
    output: Usd | None = None
    """Output tokens."""
    reasoning: Usd | None = None
    """Reasoning tokens."""
    gpu_hour: Usd | None = None
    """An hour of one's own machine, instead of prices of tokens; a further token costs nothing."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        per_token = (self.input, self.cached, self.cache_write, self.output, self.reasoning)
        if self.gpu_hour is not None:
            if any(price is not None for price in per_token):
                raise wrong("has either gpu_hour or prices per million tokens")
        elif self.input is None or self.output is None:
            raise wrong("needs input and output, or gpu_hour")
        return self


class LimitsStoreSettings(Section):
    """Where requests and tokens are counted."""

    store: LimitsUrl = SecretStr("memory://")
    """`memory://`, or `redis://HOST:PORT/0` for several routers."""
    on_down: Literal["fail_open", "fail_closed"] = "fail_closed"
    """While Redis is down requests with limits are refused (`fail_closed`), or pass uncounted
    (`fail_open`).
    """


class AccountsSettings(Section):
    """The usage ledger, what things cost, and where limits are counted."""

    retention_days: DaysOrForever = 365.0
    """How long usage records are kept; or `forever`."""
    hourly_after_days: DaysOrForever = None
    """When usage records are rolled up by hour; or `forever`: never."""
    daily_after_days: DaysOrForever = None
    """When they are rolled up by day; or `forever`: never."""
    journal: Text | None = None
    """The directory where records wait for the database; by default beside a SQLite database."""
    list_prices: bool = True
    """Whether the known prices of public APIs are used, by an endpoint's URL."""
    report_unpriced: Literal["public", "all"] = "public"
    """Where a missing price is counted and alerted about: at endpoints on `public` hosts, or at
    `all`.
    """
    prices: dict[Text, PriceSettings] = Field(default_factory=dict)
    """Prices by model, `endpoint/model` or pattern; the last match counts."""
    tags: dict[Name, TagSettings] = Field(default_factory=dict)
    """What all keys with a tag may spend together."""
    limits: LimitsStoreSettings = LimitsStoreSettings()

    @model_validator(mode="after")
    def _rolled_up_in_order(self) -> Self:
        hourly, daily = self.hourly_after_days, self.daily_after_days
        if hourly is not None and hourly < 1:
            # What a killed router left in its journal is to be known as written until then.
            fail_at("Accounts", [(("hourly_after_days",), "must be at least 1")])
        if daily is not None and (hourly is None or daily < hourly):
            message = "must not be less than accounts.hourly_after_days, which it needs"
            fail_at("Accounts", [(("daily_after_days",), message)])
        return self
