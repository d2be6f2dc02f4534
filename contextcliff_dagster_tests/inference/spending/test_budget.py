"""What may be spent: by a campaign, and by a day over all studies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextcliff_dagster.contracts import BudgetError, StudyError
from contextcliff_dagster.inference.execution.measure import measure
from contextcliff_dagster.inference.execution.run_control import RunControl
from contextcliff_dagster.inference.ledger import ledger as ledger_module
from contextcliff_dagster.inference.ledger.ledger import Begun, Ledger, Scope
from contextcliff_dagster.inference.requests.call_plan import Outcome, plan_calls, utc_now
from contextcliff_dagster.inference.spending import DAY_VARIABLE, Budget, Spend, with_day_limit
from contextcliff_dagster_tests.support.records.calls import (
    RECIPE,
    LedgerSample,
    openai_entry,
    plan_of,
    reference_entry,
    unreliable_server,
)

SAMPLE = LedgerSample(1, 8, max_tokens=200)
CALLS = plan_calls(SAMPLE, "identity", RECIPE, "c", SAMPLE.bins, 8)
DAY = Budget(usd_per_day=1.0)
PRICE = {"input_usd_per_mtok": 100, "output_usd_per_mtok": 100}


def begin(ledger: Ledger, index: int, usd: float, study: str, budget: Budget = DAY) -> Begun:
    scope, call = Scope(study, "c", "m", "identity"), CALLS[index]
    return ledger.begin(call, call.prompt(), scope, Spend(usd, 10, 1), budget).result()


def spent_usd_on(ledger: Ledger, day: str) -> float:
    """Money of all studies for requests that began on the day (UTC, as 2026-01-31)."""
    rows = ledger.read("SELECT usd FROM spend_days WHERE day = ?", (day,))
    return float(rows[0][0]) if rows else 0.0


def test_all_studies_share_the_budget_of_the_day(
    sqlite_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(sqlite_ledger, 0, 0.6, "one")
    with pytest.raises(BudgetError, match=r"Today's budget of \$1.*go on tomorrow \(UTC\)"):
        begin(sqlite_ledger, 1, 0.6, "two")
    begun = begin(sqlite_ledger, 1, 0.4, "two")
    tomorrow = utc_now().replace(utc_now()[:10], "2999-01-01")
    monkeypatch.setattr(ledger_module, "utc_now", lambda: tomorrow)
    begin(sqlite_ledger, 2, 0.9, "two")
    # An answer that comes after midnight settles the day on which it was asked for.
    monkeypatch.undo()
    outcome = Outcome(raw_output="a", attempts=1, finished_at=utc_now())
    sqlite_ledger.finish(begun.attempt_id, CALLS[1].call_key, outcome, Spend(0.1, 1, 1)).result()
    assert spent_usd_on(sqlite_ledger, utc_now()[:10]) == pytest.approx(0.7)
    assert spent_usd_on(sqlite_ledger, "2999-01-01") == pytest.approx(0.9)
    assert spent_usd_on(sqlite_ledger, "1999-01-01") == 0


@pytest.mark.parametrize("limit", ["usd", "tokens", "calls", "usd_per_day"])
@pytest.mark.parametrize("amount", [float("nan"), -1])
def test_what_is_no_amount_is_no_budget(limit: str, amount: float) -> None:
    with pytest.raises(BudgetError, match="is invalid"):
        Budget(**{limit: amount})


def test_the_day_is_asked_for_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DAY_VARIABLE, raising=False)
    assert with_day_limit(Budget(usd=3)) == Budget(usd=3)
    monkeypatch.setenv(DAY_VARIABLE, "2.5")
    assert with_day_limit(Budget(usd=3)) == Budget(usd=3, usd_per_day=2.5)
    assert with_day_limit(DAY) == DAY
    for nonsense in ("much", "-1", "nan", "inf"):
        monkeypatch.setenv(DAY_VARIABLE, nonsense)
        with pytest.raises(StudyError, match=f"{DAY_VARIABLE} is '{nonsense}'; set it"):
            with_day_limit(Budget())


def run(ledger: Ledger, url: str, study: str = "s", **more: Any) -> float:
    """Measure eight calls; what the day has cost so far."""
    entry = openai_entry(url, price=more.pop("price", PRICE), tokenizer="reference", revision="1")
    plan = plan_of(SAMPLE, 8, bins=["b00"], study=study)
    measure(plan, entry, ledger, RunControl(**more))
    return spent_usd_on(ledger, utc_now()[:10])


def test_a_day_ends_a_study_in_the_middle_and_another_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unreliable_server() as url, Ledger.open(tmp_path / "state.db") as ledger:
        whole = run(ledger, url)
        spent = whole + 0.5 * whole
        monkeypatch.setenv(DAY_VARIABLE, str(spent))
        with pytest.raises(BudgetError, match="Today's budget"):
            measure_other = replace(RECIPE, max_output_tokens=9)
            entry = openai_entry(url, price=PRICE, tokenizer="reference", revision="1")
            other = plan_of(SAMPLE, 8, bins=["b00"], study="t", recipe=measure_other)
            measure(other, entry, ledger)
        assert whole < spent_usd_on(ledger, utc_now()[:10]) <= spent
        assert run(ledger, url) <= spent, "what is measured can still be had"


def test_money_cannot_be_limited_where_nobody_knows_the_price(tmp_path: Path) -> None:
    with unreliable_server() as url, Ledger.open(tmp_path / "state.db") as ledger:
        with pytest.raises(BudgetError, match=r"'remote' has no price.*models\.yaml"):
            run(ledger, url, price=None, budget=Budget(usd=1))
        assert ledger.stats()["attempts"] == 0
        run(ledger, url, price=None)
    with Ledger.open(tmp_path / "own.db") as ledger:
        plan, nothing = plan_of(SAMPLE, 2, bins=["b00"]), RunControl(Budget(usd=0.0))
        summary = measure(plan, reference_entry(), ledger, nothing)
    assert summary.answered == 2, "what runs in this process costs nothing"
