"""Prices of calls, and limits on a study's spending, checked before each call.

A call costs the entry's own price, else the price in a maintained table, the library genai-prices
(MIT, extra ``prices``). It knows public endpoints by their address, so your own server never gets a
price by its model's name.
"""

from __future__ import annotations

import ipaddress
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from contextcliff_dagster.contracts import BudgetError, EngineError, StudyError, pip_install
from contextcliff_dagster.inference.models.models_file import ModelEntry, Price
from contextcliff_dagster.redaction import public_url

_TABLE = "genai-prices "
STALE_DAYS = 180
"""Age in days after which a price should be checked."""


def priced(entry: ModelEntry) -> ModelEntry:
    """Return ``entry``, with the table's price if it has none and the table knows its endpoint.

    Prices are not part of the serving identity.
    """
    if entry.price is not None or not entry.spec.remote:
        return entry
    try:
        url = public_url(entry.resolved_base_url())
    except EngineError:
        return entry
    if _on_this_machine(url):
        return entry  # the table has no such endpoint, and takes 22 MB
    price = _listed(entry.model_id, url)
    return entry if price is None else entry.model_copy(update={"price": price})


def in_batches(entry: ModelEntry) -> ModelEntry:
    """Return ``entry`` (see :func:`priced`) with the price of calls in batches.

    Raises:
        EngineError: the entry has no batches.
    """
    if not entry.spec.remote:
        raise EngineError(
            f"Model {entry.name!r} runs in engine {entry.engine!r}, and only engine 'openai' has "
            "batches; choose another with --model, or leave out --batch (`calls: {batch: true}`)."
        )
    if entry.batch is None:
        raise EngineError(
            f"Model {entry.name!r} has no `batch` block in models.yaml, so what its provider takes "
            "for a batch is not known; add `batch: {discount: 0.5}` with the provider's discount, "
            "or leave --batch or `calls: {batch: true}` out."
        )
    price = entry.price and entry.price.discounted(entry.batch.discount)
    return entry.model_copy(update={"price": price})


def price_unknown(entry: ModelEntry) -> bool:
    """Return whether calls of ``entry`` (see :func:`priced`) may cost an unknown sum.

    They may if the entry is for a server without a price that is not on this machine.
    """
    if entry.price is not None or not entry.spec.remote:
        return False
    try:
        return not _on_this_machine(entry.resolved_base_url())
    except EngineError:
        return False  # nothing can be sent there


def _on_this_machine(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return True  # nothing can be sent there
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def price_notes(entry: ModelEntry, today: date | None = None) -> list[str]:
    """Return sentences about a price that should be checked before it is trusted."""
    price = entry.price
    if price is None or not price.as_of:
        return []
    try:
        checked_on = date.fromisoformat(price.as_of[:10])
    except ValueError:
        return [f"The price of model {entry.name!r} has `as_of: {price.as_of}`, not a date."]
    days = ((today or datetime.now(UTC).date()) - checked_on).days
    if days <= STALE_DAYS:
        return []
    if (price.source or "").startswith(_TABLE):
        return [
            f"The price of model {entry.name!r} is from a table ({price.source}) whose latest "
            f"change was on {checked_on}, {days} days ago; run "
            f"{pip_install('--upgrade', 'genai-prices')}, or set `price` in models.yaml."
        ]
    return [
        f"The price of model {entry.name!r} was last checked on {checked_on}, {days} days ago; "
        "compare the provider's list and correct `price` and its `as_of` in models.yaml."
    ]


def require_price(entry: ModelEntry, budget: Budget) -> None:
    """Raise an error if a limit in money cannot be enforced.

    Raises:
        BudgetError: money is limited, and ``entry`` is a server without a price.
    """
    if budget.limits_money and entry.price is None and entry.spec.remote:
        raise BudgetError(
            f"Model {entry.name!r} has no price, so a budget in USD cannot be enforced; give it "
            "`price: {input_usd_per_mtok: ..., output_usd_per_mtok: ...}` in models.yaml (zeros if "
            f"it is free), or run {pip_install('--upgrade', 'genai-prices')} for public endpoints."
        )


@cache
def _listed(model_id: str, url: str) -> Price | None:
    """Return the table's price at its highest tier and hour, so that reservations suffice."""
    try:
        from genai_prices import Usage, __version__, calc_price
    except ImportError:
        return None
    midnight = datetime.now(UTC).replace(hour=0, minute=0)
    try:
        by_hour = [
            calc_price(
                Usage(input_tokens=1, output_tokens=1),
                model_id,
                provider_api_url=url,
                genai_request_timestamp=midnight + half_hour * timedelta(minutes=30),
            ).model_price
            for half_hour in range(48)
        ]
    except LookupError:
        return None
    prompt_usd, output_usd, cached_usd = (
        _dearest(getattr(price, name) for price in by_hour)
        for name in ("input_mtok", "output_mtok", "cache_read_mtok")
    )
    if prompt_usd is None or output_usd is None:
        return None
    return Price(
        input_usd_per_mtok=prompt_usd,
        output_usd_per_mtok=output_usd,
        cached_input_usd_per_mtok=cached_usd,
        as_of=_table_as_of(midnight.date()),
        source=f"{_TABLE}{__version__}",
    )


def _table_as_of(today: date) -> str | None:
    """Return the date of the table's latest price change; the table is at least as new as that.

    The table itself has no date. Changes announced for later are left out.
    """
    from genai_prices.data_snapshot import get_snapshot

    dates = (
        getattr(price.constraint, "start_date", None)
        for provider in get_snapshot().providers
        for model in provider.models
        if isinstance(model.prices, list)
        for price in model.prices
    )
    latest = max((day for day in dates if isinstance(day, date) and day <= today), default=None)
    return latest.isoformat() if latest else None


def _dearest(rates: Iterable[Any]) -> float | None:
    """Return the highest USD per million tokens, over all tiers of prompt length."""
    rates_usd: list[float] = []
    for rate in rates:
        if rate is not None:
            tiers = [tier.price for tier in getattr(rate, "tiers", ())]
            rates_usd += map(float, [getattr(rate, "base", rate), *tiers])
    return max(rates_usd, default=None)


DAY_VARIABLE = "CONTEXTCLIFF_BUDGET_USD_PER_DAY"


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits for one campaign of one study, over all its models and runs; None means no limit.

    ``usd_per_day`` is a limit for all studies of one ledger together, by the day in UTC on which a
    request begins.

    The most that a call may cost is reserved in the ledger before it is sent and settled after it
    (`execution.checks.charge`), so that several processes share one budget, and a call whose
    process died stays charged. A limit is never exceeded where the reservations cover the bill. A
    server that bills more (its tokenizer makes far more of a text, or output goes beyond the limit)
    exceeds it at most by the excess of the calls in flight when the limit was reached, and of
    attempts whose usage is unknown (measured by ``benchmarks/budget_trials.py``).

    Raises:
        BudgetError: a limit is negative or NaN (which nothing would exceed).
    """

    usd: float | None = None
    tokens: int | None = None
    calls: int | None = None
    usd_per_day: float | None = None

    def __post_init__(self) -> None:
        for limit in (self.usd, self.tokens, self.calls, self.usd_per_day):
            if limit is not None and not limit >= 0:
                raise BudgetError(f"A budget of {limit} is invalid; give an amount of at least 0.")

    @property
    def limits_money(self) -> bool:
        """Whether enforcing the budget needs prices."""
        return self.usd is not None or self.usd_per_day is not None

    def check(self, spent: Spend, reserve: Spend, today_usd: float = 0.0) -> None:
        """
        Args:
            spent: by the campaign so far, reservations included.
            today_usd: by all studies today, reservations included.

        Raises:
            BudgetError: spending and ``reserve`` together exceed a limit.
        """
        campaign = ("The budget", "raise --budget")
        day = ("Today's budget", f"go on tomorrow (UTC), or raise {DAY_VARIABLE}")
        for limit, used, more, shown, (what, way_out) in (
            (self.usd, spent.usd, reserve.usd, "${:,.4f}", campaign),
            (self.usd_per_day, today_usd, reserve.usd, "${:,.4f}", day),
            (self.tokens, spent.tokens, reserve.tokens, "{:,.0f} tokens", campaign),
            (self.calls, spent.calls, reserve.calls, "{:,.0f} calls", campaign),
        ):
            # The small slack is for sums of floats: ten times 0.1 fits into 1.0.
            if limit is not None and used + more > limit * (1 + 1e-9):
                raise BudgetError(
                    f"{what} of {shown.format(limit)} has no room for the next call: "
                    f"{shown.format(used)} are spent or reserved and it may take "
                    f"{shown.format(more)}; everything measured is kept, so {way_out} and run the "
                    "same command to go on."
                )


@dataclass(frozen=True, slots=True)
class Spend:
    """Amounts of money, tokens (input and output) and calls."""

    usd: float = 0.0
    tokens: int = 0
    calls: int = 0


def prompt_tokens_estimate(length_tokens: int, document_chars: int, prompt_chars: int) -> int:
    """Return an estimate, usually too high, of prompt tokens under an unknown tokenizer.

    It is a quarter above the study's count of the document, plus one token per two other
    characters. A model with another vocabulary may count more.
    """
    return math.ceil(1.25 * length_tokens) + math.ceil(max(prompt_chars - document_chars, 0) / 2)


def with_day_limit(budget: Budget) -> Budget:
    """Return ``budget`` with the limit of ``CONTEXTCLIFF_BUDGET_USD_PER_DAY`` if it has none.

    Raises:
        StudyError: the variable is not an amount of money.
    """
    text = os.environ.get(DAY_VARIABLE, "").strip()
    if budget.usd_per_day is not None or not text:
        return budget
    try:
        usd = float(text)
    except ValueError:
        usd = math.nan
    if not 0 <= usd < math.inf:
        raise StudyError(f"{DAY_VARIABLE} is {text!r}; set it to an amount in USD, such as 25.")
    return replace(budget, usd_per_day=usd)


def out_of_time(open_calls: int) -> BudgetError:
    """Return the error for a run that is ended by its deadline."""
    return BudgetError(
        f"The deadline was reached with some of {open_calls:,} calls still open; everything "
        "measured is kept, so run it again to go on, or raise the deadline: --deadline on "
        "the command line, else deadline_s (of the run's config, or of the study's `calls`)."
    )
