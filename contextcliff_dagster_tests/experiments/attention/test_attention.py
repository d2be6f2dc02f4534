"""Attention in the chain: only where a study asks, of models that show it, by example and head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contextcliff_dagster.analysis.attention import AttentionSample
from contextcliff_dagster.archive.rename import prune_store
from contextcliff_dagster.cli import main
from contextcliff_dagster.contracts import ATTENTION_RECORDS, EVAL_RECORDS, BudgetError, StudyError
from contextcliff_dagster.defs.studies import study_assets
from contextcliff_dagster.experiments.attention import ATTENTION
from contextcliff_dagster.experiments.common.study_run import StudyRun
from contextcliff_dagster.experiments.lookup import experiment_tables
from contextcliff_dagster.experiments.restore import restore_study
from contextcliff_dagster.inference.ledger.ledger import Ledger
from contextcliff_dagster.inference.models.models_file import ModelEntry
from contextcliff_dagster.inference.spending import Budget
from contextcliff_dagster.inference.weights import trained_tokens
from contextcliff_dagster.reference.card import weights_path
from contextcliff_dagster.run.study import prepare_study, profile_study, rebuild_report
from contextcliff_dagster.store import Store, read_table, write_table
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster_tests.support.measured_stores import measured_copy
from contextcliff_dagster_tests.support.records.profiles import changed

pytestmark = pytest.mark.usefixtures("unrecorded")

MODEL = "reference-short"
REMOTE = "models: {far: {engine: openai, model_id: m, base_url: 'http://127.0.0.1:9/v1'}}"


@pytest.fixture
def watched(study: Study) -> Study:
    return study.with_models([MODEL]).changed(attention_entropy=True)


@pytest.fixture
def told(watched: Study, store: Store, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The study, with its attention measured in the test's own store."""
    return measured_copy(watched, "attention", store, tmp_path_factory)


def sample_of(study: Study, store: Store, model: str = MODEL) -> AttentionSample | None:
    with StudyRun.open(study, store) as run:
        return ATTENTION.contribution(run, model)


def rows_of(study: Study, store: Store, table: Any = ATTENTION_RECORDS) -> list[dict[str, Any]]:
    files = sorted((store.root / study.name / table.name).rglob("*.parquet"))
    return [row for file in files for row in read_table(file, table).to_pylist()]


def test_a_study_that_does_not_ask_has_no_such_asset(study: Study) -> None:
    def names(of: Study) -> set[str]:
        return {key.path[-1] for asset in study_assets(of) for key in asset.keys}

    assert "attention_entropy" not in names(study.changed(attention_entropy=False))
    assert names(study.changed(attention_entropy=True)) - names(study) == {"attention_entropy"}
    with pytest.raises(Exception, match="attention_entropy"):
        study.changed(attention_entropy="often")


def test_it_is_measured_by_example_and_head_next_to_the_curve(watched: Study, store: Store) -> None:
    plain = profile_study(watched.changed(attention_entropy=False))
    assert sample_of(watched, store) is None
    with pytest.raises(BudgetError):
        profile_study(watched, budget=Budget(calls=5 + 12))
    done = profile_study(watched)
    assert (done.calls[MODEL].planned, done.calls[MODEL].sent) == (24, 7), "five were known"
    known = {"attention", "created_at", "warnings"}
    assert changed(done.cliffs[0], plain.cliffs[0]) <= known

    sample = sample_of(watched, store)
    assert sample is not None
    assert sample.entropy.shape == (12, 2, 4)
    assert sample.trained_tokens == 256
    assert not np.isnan(sample.evidence).any()
    assert (sample.sinks + sample.evidence).max() <= 1 + 1e-5
    # On documents that it reads without an error the model looks at the evidence.
    assert np.median(sample.evidence.max(axis=(1, 2))) > 0.9
    measured = {row["example_id"]: row for row in rows_of(watched, store, EVAL_RECORDS)}
    records = rows_of(watched, store)
    assert {row["example_id"] for row in records} == measured.keys() == {*sample.example_ids}
    for row in records:
        same = measured[row["example_id"]]
        for name in ("document_id", "length_tokens", "bin", "prompt_hash", "prompt_tokens"):
            assert row[name] == same[name]
        assert row["call_key"] != same["call_key"]
        assert len(row["entropy"]) == row["layers"] * row["heads"] == 8

    # What was measured under one prompt is not set beside the scores of another.
    other = watched.changed(prompt={"mode": "completion", "max_output_tokens": 12})
    assert sample_of(other, store) is None

    # A report of the study as it is written still has what was measured.
    rebuild_report(watched.changed(attention_entropy=False))
    assert rows_of(watched, store) == records


def test_it_is_priced_on_lines_of_its_own(watched: Study) -> None:
    lines = prepare_study(watched).estimate.lines
    calls: dict[str | None, list[int]] = {}
    for line in lines:
        calls.setdefault(line.control, []).append(line.calls)
        assert line.output_tokens == line.calls * (1 if line.control else 12)
    assert calls == {None: [4, 4, 4], "attention_entropy": [4, 4, 4]}


def test_models_that_show_no_attention_are_named_and_not_asked(
    study: Study, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models.yaml").write_text(REMOTE)
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(tmp_path / "models.yaml"))
    alone = study.with_models(["far"]).changed(attention_entropy=True)
    with pytest.raises(StudyError, match=r"none of its models shows its attention.*openai"):
        prepare_study(alone)
    both = study.with_models([MODEL, "far"]).changed(attention_entropy=True)
    lines = prepare_study(both).estimate.lines
    assert {line.model for line in lines if line.control} == {MODEL}
    with StudyRun.open(both, store) as run:
        from contextcliff_dagster.experiments.common.measurement import (
            Asked,
            measure_cells,
            models_left,
        )
        from contextcliff_dagster.inference.execution.run_control import RunControl

        cells = dict.fromkeys(both.models, both.bin_keys)
        assert models_left(run, ATTENTION, cells) == [MODEL]
        notes: list[str] = []
        control = RunControl(on_wait=notes.append)
        summary = measure_cells(run, ATTENTION, Asked("far", both.bin_keys), control)
    assert summary.planned == 0
    assert notes == [
        "Model far is not asked for attention_entropy: engine openai does not show attention."
    ]


def test_the_option_is_refused_where_there_is_no_whole_curve(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["profile", "quick", "--pilot", "2", "--attention"]) == 2
    said = capsys.readouterr().err
    assert "--attention goes with a" in said
    assert said.count("\n") == 1


def test_a_measurement_that_is_none_makes_no_record(watched: Study, store: Store) -> None:
    row = dict.fromkeys(ATTENTION_RECORDS.column_names)
    row |= {"no_answer": None, "prompt_tokens": 9}
    good = {"entropy": [[0.5, 1]], "sinks": [[0, 0.1]], "evidence": None}
    bad: list[Any] = [
        {**good, "entropy": [[0.5], [1, 1]]},
        {**good, "entropy": [[0.5, float("nan")]]},
        {"entropy": [[]], "sinks": [[]], "evidence": None},
        {**good, "sinks": [[0.1]]},
        {**good, "evidence": [[0.1, 1.2]]},
        {**good, "entropy": [["a", 1]]},
        {"entropy": [[1]]},
        [],
        "x",
    ]
    told = [json.dumps({"attention": json.dumps(one)}) for one in (good, *bad)]
    extras = [*told, "{}", None]
    with StudyRun.open(watched, store) as run:
        source: Any = None
        made = ATTENTION.score(run, source, [{**row, "extra": extra} for extra in extras])
    assert [(one["layers"], one["heads"], one["evidence"]) for one in made] == [(1, 2, None)]


def test_layers_may_differ_in_heads_or_have_none(told: Study, store: Store) -> None:
    values = [[0.5, 0.1], [], [0.2]]
    shown = {"entropy": values, "sinks": values, "evidence": values}
    extra = json.dumps({"attention": json.dumps(shown)})
    given = rows_of(told, store)
    own = dict.fromkeys(("layers", "heads", "entropy", "sinks", "evidence"))
    with StudyRun.open(told, store) as run:
        source: Any = None
        rows = [{**row, **own, "no_answer": None, "extra": extra} for row in given]
        made = ATTENTION.score(run, source, rows)
        assert made[0]["entropy"] == [0.5, 0.1, None, None, 0.2, None]
        for file in (store.root / told.name / ATTENTION_RECORDS.name).rglob("*.parquet"):
            write_table(file, [row for row in made if row["bin"] in str(file)], ATTENTION_RECORDS)
    sample = sample_of(told, store)
    assert sample is not None
    assert sample.entropy.shape == (12, 3, 2)
    assert np.isnan(sample.entropy[0]).tolist() == [[False] * 2, [True] * 2, [False, True]]
    np.testing.assert_allclose(np.nanmean(sample.evidence, axis=(1, 2)), 0.8 / 3)


def test_it_goes_with_archives_is_restored_and_pruned(
    told: Study, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows_of(told, store)
    file = tmp_path / "tiny.zip"
    study_file = tmp_path / "studies" / "tiny.yaml"
    study_file.write_text(study_file.read_text() + "attention_entropy: true\n")
    asked = load_study(study_file).with_models([MODEL])
    assert main(["export", str(study_file), str(file)]) == 0
    monkeypatch.setenv("CONTEXTCLIFF_HOME", str(tmp_path / "elsewhere"))
    assert main(["import", str(file), "--adopt"]) == 0
    there = Store(tmp_path / "elsewhere")
    assert profile_study(asked, store=there).calls[MODEL].sent == 0
    assert rows_of(asked, there) == before

    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (there.root / name).unlink(missing_ok=True)
    with Ledger.open(there.root / "state.db") as ledger:
        assert restore_study(asked, there, ledger).answers == 24
    rebuild_report(asked, store=there)
    assert rows_of(asked, there) == before

    with Ledger.open(there.root / "state.db") as ledger:
        prune_store(there, ledger, "tiny", tables=experiment_tables())
    assert rows_of(asked, there) == []


def test_the_trained_length_is_what_the_weights_say(tmp_path: Path) -> None:
    def entry(**fields: Any) -> ModelEntry:
        values = {"name": "m", "engine": "transformers", "weights": str(tmp_path), **fields}
        return ModelEntry.model_validate(values)

    assert trained_tokens(entry()) is None
    config = tmp_path / "config.json"
    for text, expected in (
        ('{"max_position_embeddings": 2048}', 2048),
        ('{"max_position_embeddings": 9, "rope_scaling": {"type": "linear"}}', 9),
        (
            '{"max_position_embeddings": 131072, '
            '"rope_parameters": {"original_max_position_embeddings": 8192}}',
            8192,
        ),
        ('{"max_position_embeddings": 9, "original_max_position_embeddings": 4}', 4),
        ('{"text_config": {"max_position_embeddings": 7}}', 7),
        ('{"max_position_embeddings": "many"}', None),
        ("[]", None),
        ("{", None),
    ):
        config.write_text(text)
        assert trained_tokens(entry()) == expected, text
    assert trained_tokens(entry(weights=str(weights_path("reference-long")))) == 1024
    assert trained_tokens(entry(name="reference-long", engine="reference", weights=None)) == 1024
    far = entry(engine="openai", weights=None, base_url="http://127.0.0.1:9/v1")
    assert trained_tokens(far) is None
