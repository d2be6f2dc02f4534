"""A call whose prompt rests on earlier answers is claimed, priced, kept and resumed like any other.

The agent of these tests asks about a document in three steps, each question made from the answer
before it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from contextcliff_dagster.archive.results import export_results
from contextcliff_dagster.contracts import StoreError
from contextcliff_dagster.inference.engines.base import Delta, EngineSession
from contextcliff_dagster.inference.execution.measure import run_calls
from contextcliff_dagster.inference.execution.run_control import RunControl
from contextcliff_dagster.inference.ledger.ledger import Ledger, Scope
from contextcliff_dagster.inference.ledger.prune import prune
from contextcliff_dagster.inference.ledger.verify import verify
from contextcliff_dagster.inference.requests.call_plan import (
    PlannedCall,
    call_key,
    follow_up,
    plan_calls,
)
from contextcliff_dagster.inference.requests.recipe import Prompt, Recipe, Turn
from contextcliff_dagster.store import DatabaseUrl
from contextcliff_dagster_tests.support.records.calls import RECIPE, openai_entry
from contextcliff_dagster_tests.support.records.measured import PRICE, SAMPLE
from contextcliff_dagster_tests.support.scripted_engine import ScriptedEngine

ENTRY = openai_entry("http://127.0.0.1:9/v1", price=PRICE)
STEPS = 3


def tally(prompt: Prompt) -> Sequence[Delta]:
    """An answer that depends on all that was asked and answered before."""
    return [Delta(text=f"{len(prompt.messages)}:{prompt.hash[:6]}")]


def converse(
    ledger: Ledger,
    engine: ScriptedEngine,
    steps: int = STEPS,
    recipe: Recipe = RECIPE,
) -> list[PlannedCall]:
    """Work through the steps, each planned from the answers to the one before."""
    planned: list[PlannedCall] = []
    with EngineSession(ENTRY, engine) as session:
        identity = session.identity.hash
        scope = Scope("s", "c", ENTRY.name, identity)
        calls = plan_calls(SAMPLE, identity, recipe, "c", SAMPLE.bins, 2)
        for step in range(steps):
            if step:
                answers = ledger.outcomes(call.call_key for call in calls)
                calls = [
                    follow_up(call, said, f"Why {said}?", tool="search", step=step)
                    for call in calls
                    if (said := answers[call.call_key].raw_output) is not None
                ]
            run_calls(calls, session, ledger, scope, RunControl())
            planned += calls
    return planned


def test_a_conversation_is_kept_priced_and_resumed_step_by_step(
    ledger: Ledger, ledger_at: Path | DatabaseUrl
) -> None:
    first = ScriptedEngine(tally)
    converse(ledger, first, steps=2)
    ledger.close()
    with Ledger.open(ledger_at) as again:
        second = ScriptedEngine(tally)
        calls = converse(again, second)
        assert (len(first.asked), len(second.asked)) == (12, 6), "two steps were paid already"
        assert len({call.call_key for call in calls}) == 18
        third = ScriptedEngine(tally)
        assert converse(again, third) == calls
        assert third.asked == []
        outcomes = again.outcomes(call.call_key for call in calls)
        costs = [outcome.cost_usd for outcome in outcomes.values()]
        assert again.spent("s", "c").usd == pytest.approx(sum(cost for cost in costs if cost))
        for call in calls:
            assert again.prompt(call.call_key) == call.prompt()
        assert [message.role for message in calls[-1].prompt().messages] == (
            ["user", "assistant"] * 2 + ["user"]
        )
        verified = verify(again)
        assert (verified.prompts, verified.faults) == (18, ())
        (parts,) = again.read("SELECT parts FROM calls WHERE call_key = ?", (calls[-1].call_key,))[
            0
        ]
        assert json.loads(parts) == {
            "tool": "search", "step": 2, "after": [calls[5].call_key, calls[11].call_key],
        }  # fmt: skip


def test_another_answer_leads_to_another_call(sqlite_ledger: Ledger) -> None:
    calls = converse(sqlite_ledger, ScriptedEngine(tally), steps=1)
    one, two = (follow_up(calls[0], said, "Why?") for said in ("a", "b"))
    noted = follow_up(calls[0], "a", "Why?", tool="search")
    asked = follow_up(calls[0], "a", "Why not?")
    assert len({call.call_key for call in (calls[0], one, two, noted, asked)}) == 5
    assert follow_up(calls[0], "a", "Why?") == one


def test_calls_of_different_parts_are_never_one_call() -> None:
    example = SAMPLE.planned(SAMPLE.bins[0], 1)[0].example
    made = (
        {"after": ["k"]},
        {"after": ["k", "l"]},
        {"after": ["k"], "step": 1},
        {"tool": "\u00e9"},
    )
    plain, *others = [call_key("identity", RECIPE, example, 0, "c", p) for p in (None, *made)]
    # The key that version 5 of the ledger knew this call by: nothing is paid for twice.
    assert plain == "ee3fd27d28e8600a8840aae325347e579bfa4ba915079eeb00c48383a30a9a34"
    assert len({plain, *others}) == 5
    assert call_key("identity", RECIPE, example, 0, "c", {}) == plain


@pytest.mark.parametrize(
    ("recipe", "texts"),
    [
        (Recipe(instructions=("Say: {question}",)), ["D\nSay: q1", "a1", "q2", "a2", "q3"]),
        (Recipe(system="Be brief."), ["Be brief.", "D\nq1", "a1", "q2", "a2", "q3"]),
        (
            Recipe(mode="chat_prefill", answer_prefix="{question} is "),
            ["D\nq1", "q1 is a1", "q2", "q2 is a2", "q3", "q3 is "],
        ),
        (Recipe(mode="completion", answer_prefix=" A:"), ["D\nq1 A:a1\nq2 A:a2\nq3 A:"]),
    ],
)
def test_earlier_turns_come_first_in_every_mode(recipe: Recipe, texts: list[str]) -> None:
    prompt = recipe.render("D", "q3", turns=[Turn("q1", "a1"), Turn("q2", "a2")])
    assert list(prompt.contents()) == texts


def test_pruned_texts_of_a_conversation_are_gone_and_no_fault(
    ledger: Ledger, tmp_path: Path
) -> None:
    calls = converse(ledger, ScriptedEngine(tally))
    export_results(ledger, "s", None, tmp_path / "calls.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert sum(line["parts"] is not None for line in lines) == 12
    # Another campaign asks about the same documents, so that these stay.
    with EngineSession(ENTRY, ScriptedEngine(tally)) as session:
        other = plan_calls(SAMPLE, session.identity.hash, RECIPE, "d", SAMPLE.bins, 2)
        scope = Scope("s", "d", ENTRY.name, session.identity.hash)
        run_calls(other, session, ledger, scope, RunControl())
    prune(ledger, "s", "c", texts=True)
    answers = [line["raw_output"] for line in lines]
    left = ledger.read("SELECT question, parts FROM calls WHERE campaign = 'c'")
    assert not any(answer in f"{row}" for row in left for answer in answers)
    verified = verify(ledger)
    assert (verified.prompts, verified.pruned_prompts, verified.faults) == (12, 12, ())
    with pytest.raises(StoreError, match="were removed from the call ledger"):
        ledger.prompt(calls[-1].call_key)


def test_a_conversation_over_a_shared_document_hashes_as_a_whole_one() -> None:
    call = plan_calls(SAMPLE, "i", RECIPE, "c", SAMPLE.bins, 1)[0]
    later = follow_up(call, "first", "Second?")
    text = RECIPE.render(call.document, "Second?", turns=[Turn(call.example.question, "first")])
    assert later.prompt() == replace(text)
    assert later.prompt().hash == text.hash
