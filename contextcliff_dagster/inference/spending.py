"""Prices of calls, and limits on a study's spending, checked before each call.

A call costs the entry's own price, else that of a kept-up table. The table is the library
genai-prices (MIT, extra ``prices``): it knows public endpoints by their address, so that a server
of one's own never gets a price by the name of its model.
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

from contextcliff_dagster.contracts import BudgetError, EngineError, StudyError
from contextcliff_dagster.inference.models.models_file import ModelEntry, Price
from contextcliff_dagster.redaction import public_url

_TABLE = "genai-prices "
STALE_DAYS = 180
"""A price of this age should be checked."""


def priced(entry: ModelEntry) -> ModelEntry:
    """``entry`` with the table's price, where it has none itself and the table knows its endpoint.

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


def price_unknown(entry: ModelEntry) -> bool:
    """Whether calls of ``entry`` (see :func:`priced`) may cost an unknown sum.

    That is a server without a price, unless it is on this machine.
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
    """Sentences about a price that should be checked before it is trusted."""
    price = entry.price
    if price is None or not price.as_of:
        return []
    try:
        seen = date.fromisoformat(price.as_of[:10])
    except ValueError:
        return [f"The price of model {entry.name!r} is as of {price.as_of!r}, which is no date."]
    days = ((today or datetime.now(UTC).date()) - seen).days
    if days <= STALE_DAYS:
        return []
    if (price.source or "").startswith(_TABLE):
        return [
            f"The price of model {entry.name!r} is from a table ({price.source}) whose latest "
            f"change is of {seen}, {days} days ago; bring it up to date with `pip install "
            "--upgrade genai-prices`, or give `price` in models.yaml."
        ]
    return [
        f"The price of model {entry.name!r} was last looked at on {seen}, {days} days ago; check "
        "the provider's list and correct `price` and its `as_of` in models.yaml."
    ]


def require_price(entry: ModelEntry, budget: Budget) -> None:
    """Refuse a limit in money that cannot be kept.

    Raises:
        BudgetError: money is limited, and ``entry`` is a server without a price.
    """
    if budget.limits_money and entry.price is None and entry.spec.remote:
        raise BudgetError(
            f"Model {entry.name!r} has no price, so a budget in USD cannot be kept; give it "
            "`price: {input_usd_per_mtok: ..., output_usd_per_mtok: ...}` in models.yaml (zeros "
            'where it is free), or install the extra "prices" for those of public endpoints.'
        )


@cache
def _listed(model_id: str, url: str) -> Price | None:
    """The table's price, at the dearest of its steps and hours: a reservation must not be too
    small."""
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
    into, out, cached = (
        _dearest(getattr(price, name) for price in by_hour)
        for name in ("input_mtok", "output_mtok", "cache_read_mtok")
    )
    if into is None or out is None:
        return None
    return Price(
        input_usd_per_mtok=into,
        output_usd_per_mtok=out,
        cached_input_usd_per_mtok=cached,
        as_of=_table_as_of(midnight.date()),
        source=f"{_TABLE}{__version__}",
    )


def _table_as_of(today: date) -> str | None:
    """The latest change of a price that the table knows: it is at least as new as that.

    The table itself has no date. Changes announced for later are left out.
    """
    from genai_prices.data_snapshot import get_snapshot

    dated = (
        getattr(price.constraint, "start_date", None)
        for provider in get_snapshot().providers
        for model in provider.models
        if isinstance(model.prices, list)
        for price in model.prices
    )
    known = max((day for day in dated if isinstance(day, date) and day <= today), default=None)
    return known.isoformat() if known else None


def _dearest(rates: Iterable[Any]) -> float | None:
    """USD per million tokens; of prices with steps over the prompt's length, the highest."""
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

    The most that a call may cost is reserved in the ledger before it is sent and settled after it,
    so that several processes share one budget, and a call whose process died stays charged.

    A limit is never exceeded where the reservations cover the bill: an exact count of the
    prompt, or `prompt_tokens_estimate`, and the whole output limit. A server that bills more
    than that (its tokenizer makes far more of a text, or output beyond the limit) exceeds it at
    most by the excess of the calls in flight when the limit was reached, concurrency x processes of
    them, and by the excess of each attempt whose usage is unknown (cut streams, killed processes):
    they are charged as reserved. An answer's own usage is charged, so that the next call knows: its
    output up to the limit or, if more, what came; one that is more than ten times our own count, or
    less than the text can have, is charged as reserved (`execution.checks`).
    (Measured by ``benchmarks/budget_trials.py``.)

    Raises:
        BudgetError: a limit is negative, or no number (which nothing would exceed).
    """

    usd: float | None = None
    tokens: int | None = None
    calls: int | None = None
    usd_per_day: float | None = None

    def __post_init__(self) -> None:
        for limit in (self.usd, self.tokens, self.calls, self.usd_per_day):
            if limit is not None and not limit >= 0:
                raise BudgetError(f"A budget of {limit} cannot be kept; give an amount from 0 on.")

    @property
    def limits_money(self) -> bool:
        """Whether prices must be known to keep to it."""
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
                    f"{what} of {shown.format(limit)} is used up: {shown.format(used)} are spent "
                    f"or reserved and the next call may take {shown.format(more)}; everything "
                    f"measured is kept, so {way_out} and run the same command to go on."
                )


@dataclass(frozen=True, slots=True)
class Spend:
    """Money, tokens (in and out) and calls."""

    usd: float = 0.0
    tokens: int = 0
    calls: int = 0


def prompt_tokens_estimate(length_tokens: int, document_chars: int, prompt_chars: int) -> int:
    """Prompt tokens where the model's own tokenizer is not known: an estimate, mostly high.

    A quarter above the study's count of the document, and two characters a token for the rest. A
    model with another vocabulary may count more.
    """
    return math.ceil(1.25 * length_tokens) + math.ceil(max(prompt_chars - document_chars, 0) / 2)


def with_day_limit(budget: Budget) -> Budget:
    """``budget`` with the limit of ``CONTEXTCLIFF_BUDGET_USD_PER_DAY``, where it has none.

    Raises:
        StudyError: the variable holds no amount of money.
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
