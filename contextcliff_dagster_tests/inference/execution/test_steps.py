"""Calls that rest on earlier answers: planned step by step, with one start of the engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contextcliff_dagster.contracts import BudgetError
from contextcliff_dagster.inference.engines.base import Delta
from contextcliff_dagster.inference.execution.cost_estimate import estimate
from contextcliff_dagster.inference.execution.measure import finished, measure
from contextcliff_dagster.inference.execution.prediction_rows import prediction_rows
from contextcliff_dagster.inference.execution.run_control import RunControl
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.requests.call_plan import Outcome, PlannedCall, follow_up
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster_tests.support.records.calls import openai_entry, plan_of
from contextcliff_dagster_tests.support.records.measured import PRICE, SAMPLE
from contextcliff_dagster_tests.support.scripted_engine import ScriptedEngine

ENTRY = openai_entry("http://127.0.0.1:9/v1", price=PRICE)
STEPS = 3


def ask_why(call: PlannedCall, outcome: Outcome) -> PlannedCall | None:
    """Three questions: the second and the third ask why the answer before was given."""
    if len(call.turns) + 1 == STEPS or outcome.raw_output is None:
        return None
    return follow_up(call, outcome.raw_output, f"Why {outcome.raw_output}?")


PLAN = replace(plan_of(SAMPLE, 2), follow_up=ask_why)


def engine() -> ScriptedEngine:
    return ScriptedEngine(lambda prompt: [Delta(text=f"{len(prompt.contents())}")])


def test_every_step_is_asked_kept_and_never_asked_again(ledger: Ledger) -> None:
    first, bins = engine(), list[str]()
    summary = measure(PLAN, ENTRY, ledger, on_bin=bins.append, engine=first)
    assert (summary.planned, summary.sent, len(first.asked)) == (18, 18, 18)
    assert bins == SAMPLE.bins, "a bin ends once, with its last step"
    rows = prediction_rows(PLAN, ENTRY.name, ledger)
    assert len({row["call_key"] for row in rows}) == len(rows) == 18
    assert [row["raw_output"] for row in rows] == ["1"] * 6 + ["3"] * 6 + ["5"] * 6
    again = engine()
    summary = measure(PLAN, ENTRY, ledger, engine=again)
    assert (summary.cached, summary.sent, again.asked) == (18, 0, [])


def test_a_budget_ends_it_between_two_calls_and_it_goes_on_there(ledger: Ledger) -> None:
    with pytest.raises(BudgetError):
        measure(PLAN, ENTRY, ledger, RunControl(Budget(calls=8)), engine=engine())
    assert finished(PLAN, ENTRY.name, ledger) is None
    assert ledger.spent(PLAN.study, PLAN.campaign).calls == 8
    rest = engine()
    assert measure(PLAN, ENTRY, ledger, engine=rest).sent == len(rest.asked) == 10
    done = finished(PLAN, ENTRY.name, ledger)
    assert done is not None
    assert done[1] == 18


def test_a_run_that_is_stopped_ends_with_the_step_it_is_in(ledger: Ledger) -> None:
    first = engine()
    control = RunControl(should_stop=lambda: bool(first.asked))
    assert measure(PLAN, ENTRY, ledger, control, engine=first).stopped
    assert 1 <= len(first.asked) <= 6
    assert measure(PLAN, ENTRY, ledger, engine=engine()).sent == 18 - len(first.asked)


def test_the_estimate_counts_what_can_be_known(ledger: Ledger) -> None:
    entry = openai_entry("http://127.0.0.1:9/v1", price=PRICE)
    one, whole = (
        estimate([(None, replace(PLAN, steps=steps))], [entry], ledger) for steps in (1, STEPS)
    )
    assert (one.calls, whole.calls) == (6, 18)
    assert (whole.usd, whole.usd_at_most) == pytest.approx((3 * one.usd, 3 * one.usd_at_most))
    assert one.usd > 0
    with pytest.raises(BudgetError):
        measure(PLAN, entry, ledger, RunControl(Budget(calls=6)), engine=engine())
    assert estimate([(None, PLAN)], [entry], ledger).calls == 6, "the second step is known now"
