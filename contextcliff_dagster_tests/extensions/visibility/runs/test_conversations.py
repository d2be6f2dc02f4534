"""Runs through the ledger: what follows on a reply, what is resumed, what is recorded."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from contextcliff_dagster.archive.container import Allowance
from contextcliff_dagster.archive.results import pack, unpack
from contextcliff_dagster.contracts import BudgetError, DataError, conform
from contextcliff_dagster.extensions.visibility.experiment import VISIBILITY
from contextcliff_dagster.extensions.visibility.kept_landscapes import LANDSCAPES, grounds_of
from contextcliff_dagster.extensions.visibility.runs.traces import SCORING_VERSION
from contextcliff_dagster.extensions.visibility.runs.trainings import Trainings, trainings_file
from contextcliff_dagster.extensions.visibility.runs.tuning import Bench, Benches
from contextcliff_dagster.extensions.visibility.section import runs_of, section_of
from contextcliff_dagster.extensions.visibility.tasks.catalogue import task_named
from contextcliff_dagster.extensions.visibility.tasks.task import Task
from contextcliff_dagster.inference.engines.base import Delta, TransportError
from contextcliff_dagster.inference.requests.recipe import Prompt
from contextcliff_dagster.store import Store
from contextcliff_dagster_tests.extensions.visibility.runs.small_study import (
    SMALL,
    ask,
    drawn_reply,
    opened,
    plans,
    records,
    small_landscapes,
    small_study,
)
from contextcliff_dagster_tests.support.scripted_engine import ScriptedEngine


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_landscapes(monkeypatch)


def test_each_prompt_is_whole_and_rests_on_the_replies_before(tmp_path: Path) -> None:
    engine = ScriptedEngine(drawn_reply)
    with opened(small_study(tmp_path)) as run:
        done = ask(run, engine)
        assert done.answered == done.sent == len(engine.asked)
        assert {len(prompt.messages) for prompt in engine.asked} == {2}, "no chat memory"
        made = records(run)
        conform(made, VISIBILITY.records)
    assert Counter(one["bin"] for one in made) == dict.fromkeys(VISIBILITY.cells(run.study), 4)
    assert [one["step"] for one in made] == [1, 2, 3, 4] * 8
    assert {one["scorer_version"] for one in made} == {SCORING_VERSION}
    for before, after in pairwise(made):
        if after["step"] > 1:
            assert after["base_config"] == before["config"]
            read = next(p for p in engine.asked if p.hash == after["prompt_hash"])
            shown = f"{before['validation']:.4f}"
            assert shown in read.messages[-1].content


def test_a_run_goes_on_at_its_step_and_gets_what_an_unbroken_one_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small_study(tmp_path)
    whole = ScriptedEngine(drawn_reply)
    with opened(study) as run:
        ask(run, whole)
        expected = records(run)
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(tmp_path / "other"))
    asked = []
    for limit in (5, 10, 15, 20, 1000):  # of all calls of the campaign
        engine = ScriptedEngine(drawn_reply)
        with opened(study) as run:
            if limit < 1000:
                with pytest.raises(BudgetError):
                    ask(run, engine, calls=limit)
            else:
                ask(run, engine)
        asked += [prompt.hash for prompt in engine.asked]
    with opened(study) as run:
        resumed = records(run)
    assert sorted(asked) == sorted(prompt.hash for prompt in whole.asked), (
        "nothing twice, none lost"
    )
    changing = {"ttft_ms", "duration_ms", "finished_at", "loop_lag_ms", "attempts"}
    for one, other in zip(expected, resumed, strict=True):
        assert {k: v for k, v in one.items() if k not in changing} == {
            k: v for k, v in other.items() if k not in changing
        }


def test_what_cannot_be_read_leaves_the_configuration_and_is_not_the_models(tmp_path: Path) -> None:
    replies = iter(["gibberish", '{"C": "abc"}', '{"gamma": 1}', '<think>{"C": 9}</think>{"C": 2}'])
    one_run = SMALL.replace("[hidden, shown]", "[hidden]").replace("[0, 2]", "[2]")
    with opened(small_study(tmp_path, one_run.replace("seeds: 2", "seeds: 1"))) as run:
        ask(run, ScriptedEngine(lambda _: [Delta(text=next(replies))]))
        first, second, third, fourth = records(run)
    assert first["config"] == second["config"] == third["config"] == first["start_config"]
    assert [one["chosen_by"] for one in (first, second, third, fourth)] == [
        *["fallback"] * 3,
        "model",
    ]
    assert [one["unparsable"] for one in (first, second, third, fourth)] == [True] + [False] * 3
    assert first["failure"] == "schema_violation"
    assert second["failure"] == third["failure"] == "instruction_drift"
    assert fourth["failure"] is None
    assert json.loads(fourth["config"])["C"] == 2
    assert json.loads(second["events"])[0]["reason"] == "not_a_number"


def test_an_error_of_the_transport_is_no_step(tmp_path: Path) -> None:
    class Broken(ScriptedEngine):
        async def stream(self, prompt, decoding):  # type: ignore[no-untyped-def]
            if len(self.asked) >= 10:
                raise TransportError("drop", "the line is dead")
            async for piece in super().stream(prompt, decoding):
                yield piece

    study = small_study(tmp_path)
    with opened(study) as run:
        broken = ask(run, Broken(drawn_reply))
        assert broken.transport_errors > 0
        before = records(run)
        assert {one["failure"] for one in before} <= {
            None,
            "schema_violation",
            "instruction_drift",
        }
        engine = ScriptedEngine(drawn_reply)
        ask(run, engine)
        after = records(run)
    assert len(after) == 32
    later = {one["call_key"]: one["config"] for one in after}
    assert all(later[one["call_key"]] == one["config"] for one in before)


def test_from_the_best_configuration(tmp_path: Path) -> None:
    best = SMALL.replace("seeds: 2", "seeds: 2\n  base: [best]")
    with opened(small_study(tmp_path, best)) as run:
        ask(run, ScriptedEngine(drawn_reply))
        made = records(run)
    for cell in VISIBILITY.cells(run.study):
        own = [one for one in made if one["bin"] == cell]
        known = [(own[0]["start_validation"], own[0]["start_config"])]
        for one in own:
            top = max(score for score, _ in known)
            assert one["base_config"] == next(config for score, config in known if score == top)
            known.append((one["validation"], one["config"]))


def test_seeds_draw_at_a_temperature(tmp_path: Path) -> None:
    hot = SMALL.replace("seeds: 2", "seeds: 2\n  temperature: 0.7")
    with opened(small_study(tmp_path, hot)) as run:
        made = plans(run)
        assert [plan.recipe.sampling.seed for plan in made if plan.recipe.sampling] == [0, 1]
        assert {plan.recipe.temperature for plan in made} == {0.7}


def test_the_same_prompt_is_asked_once(tmp_path: Path) -> None:
    def read(prompt: Prompt) -> list[Delta]:
        return [Delta(text='{"C": 1}')]

    with opened(small_study(tmp_path)) as run:
        engine = ScriptedEngine(read)
        ask(run, engine)
    first = Counter(prompt.hash for prompt in engine.asked)
    # Without a history the second step's prompt depends on the configuration alone.
    assert max(first.values()) <= 4


def test_a_study_keeps_the_scores_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small_study(tmp_path)
    with opened(study) as run:
        ask(run, ScriptedEngine(drawn_reply))
        before = records(run)

    def other(*_: object, **__: object) -> float:  # as another scikit-learn might score
        return 0.5

    monkeypatch.setattr("sklearn.linear_model.LogisticRegression.fit", other)
    with opened(study) as run:
        engine = ScriptedEngine(drawn_reply)
        ask(run, engine)
        assert records(run) == before
    assert not engine.asked


def test_an_archive_takes_the_scores_with_the_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small_study(tmp_path)
    with opened(study) as run:
        ask(run, ScriptedEngine(drawn_reply))
        held = LANDSCAPES.archived(study, run.store)
    assert held is not None
    assert [row["kind"] for row in held.rows] == ["landscape", "trainings"]
    lists = unpack(pack({"visibility": held}), Allowance(tmp_path / "a.zip", 1 << 30))
    elsewhere = Store(tmp_path / "elsewhere")
    monkeypatch.setattr(Task, "evaluate", None)
    LANDSCAPES.restore(study, elsewhere, lists["visibility"], tmp_path / "a.zip")()
    bench = Benches(elsewhere, grounds_of(study, elsewhere))["toy"]
    for planned in runs_of(section_of(study)):
        bench.begin(planned)  # trained in the first store


def test_other_data_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = small_study(tmp_path)
    with opened(study) as run:
        grounds_of(study, run.store)
        store = run.store
    trainings_file(store).unlink(missing_ok=True)
    other = replace(task_named("toy"), load=task_named("toy-flat").load)
    bench = Bench(other, Trainings(other, store, grounds_of(study, store)["toy"].data_sha256), None)
    with pytest.raises(DataError, match="changed since this study began"):
        bench.trainings.evaluation(other.space.start, 0)


def test_an_empty_reply_is_a_fallback_and_not_unparsable(tmp_path: Path) -> None:
    with opened(small_study(tmp_path)) as run:
        ask(run, ScriptedEngine(lambda _: [Delta(text=" \n")]))
        made = records(run)
    assert {(one["chosen_by"], one["unparsable"], one["failure"]) for one in made} == {
        ("fallback", False, "empty")
    }
