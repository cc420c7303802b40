"""The settings of keys, budgets, limits, prices and the usage ledger."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time
from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

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


def _price(value: object) -> object:
    if isinstance(value, bool):
        raise wrong("must be a number")
    return value


Moment = Annotated[datetime, BeforeValidator(_moment)]
UsdPerMillion = Annotated[float, BeforeValidator(_price), Field(ge=0, allow_inf_nan=False)]


class BudgetSettings(Section):
    """What may be spent in a period, in ``usd`` or in ``tokens``. Days, weeks (from Monday) and
    months are those of UTC.
    """

    period: Period
    usd: Positive | None = None
    tokens: Count | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.usd is None) == (self.tokens is None):
            raise wrong("needs either usd or tokens")
        return self


class LimitSettings(Section):
    """How much at once: requests and tokens per minute, and requests under way."""

    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    concurrent: Count | None = None


class KeySpec(Section):
    """What a key may do, whoever made it.

    ``models`` are the models it may use, by the names that clients use, and ``endpoints`` the
    endpoints that may serve it: names or shell-style patterns; None means all. It is refused from
    ``expires`` on. ``tags`` share the budgets of ``accounts.tags``. ``priority`` is its place in
    the queue for a slot: 1 is first. ``model_limits`` are further limits, each for the models of a
    name or pattern together.
    """

    models: Annotated[tuple[Text, ...], AfterValidator(not_empty)] | None = None
    endpoints: Annotated[tuple[Text, ...], AfterValidator(not_empty)] | None = None
    expires: Moment | None = None
    tags: tuple[Name, ...] = ()
    priority: Count = 1
    budgets: tuple[BudgetSettings, ...] = ()
    limits: LimitSettings = LimitSettings()
    model_limits: dict[Text, LimitSettings] = Field(default_factory=dict)


def repeated_in(spec: KeySpec) -> Iterator[Fault]:
    """What is said twice in a list of the spec's; of budgets, there is one by period and unit.

    Not a rule of the model: what is in a database is read as it is.
    """
    for name in ("models", "endpoints", "tags"):
        yield from _repeated(name, getattr(spec, name) or ())
    yield from _repeated_budgets(spec.budgets)


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
    key: Secret

    @model_validator(mode="after")
    def _nothing_twice(self) -> Self:
        fail_at("ApiKey", repeated_in(self))
        return self


class TagSettings(Section):
    """What all keys with one tag may spend together."""

    budgets: tuple[BudgetSettings, ...] = ()

    @model_validator(mode="after")
    def _nothing_twice(self) -> Self:
        fail_at("TagSettings", _repeated_budgets(self.budgets))
        return self


class PriceSettings(Section):
    """What a model costs, in USD per million tokens.

    ``cached`` input costs as much as other ``input``, and ``reasoning`` as much as other
    ``output``, unless it is said. ``gpu_hour`` is for models on one's own machines, in place of the
    others: a further token costs nothing there.
    """

    input: UsdPerMillion | None = None
    cached: UsdPerMillion | None = None
    output: UsdPerMillion | None = None
    reasoning: UsdPerMillion | None = None
    gpu_hour: UsdPerMillion | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        per_token = (self.input, self.cached, self.output, self.reasoning)
        if self.gpu_hour is not None:
            if any(price is not None for price in per_token):
                raise wrong("has either gpu_hour or prices per million tokens")
        elif self.input is None or self.output is None:
            raise wrong("needs input and output, or gpu_hour")
        return self


class LimitsStoreSettings(Section):
    """Where limits and budgets are counted: ``memory://`` for one router, ``redis://…`` for
    several that share them. While Redis is away requests pass uncounted (``fail_open``) or are
    refused (``fail_closed``).
    """

    store: LimitsUrl = SecretStr("memory://")
    on_down: Literal["fail_open", "fail_closed"] = "fail_closed"


class AccountsSettings(Section):
    """The usage ledger, what things cost, and where limits are counted.

    Rows of the ledger are kept for ``retention_days``; when they are ``hourly_after_days`` old,
    those alike of an hour become one, and at ``daily_after_days`` those of a day. ``journal`` is
    the directory that rows are in until the database has them; left out, it is beside the SQLite
    database, or in the data directory. ``prices`` are by the endpoint's own name for a model, by
    ``endpoint/model``, or by pattern, and go before the list prices; of several that match, the
    last one counts. A model without any price counts as unpriced, and is alerted about, at
    endpoints on ``public`` hosts only, or at ``all``.
    """

    retention_days: DaysOrForever = 365.0
    hourly_after_days: DaysOrForever = None
    daily_after_days: DaysOrForever = None
    journal: Text | None = None
    list_prices: bool = True
    report_unpriced: Literal["public", "all"] = "public"
    prices: dict[Text, PriceSettings] = Field(default_factory=dict)
    tags: dict[Name, TagSettings] = Field(default_factory=dict)
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
