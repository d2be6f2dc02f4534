"""The in-process doors: what is reused, what is rebuilt, and that neither makes a call."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq
import pytest

from contextcliff_dagster.contracts import (
    BudgetError,
    CorpusError,
    EngineError,
    StoreError,
    StudyError,
)
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.experiments.common.study_run import open_ledger
from contextcliff_dagster.inference.ledger.campaigns import list_campaigns, new_campaign
from contextcliff_dagster.inference.telemetry import Progress
from contextcliff_dagster.run.study import prepare_study, profile_study, rebuild_report
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster_tests.support.held_calls import hold_until_halted
from contextcliff_dagster_tests.support.tiny_study import bin_after_bin, prompts_of

pytestmark = pytest.mark.usefixtures("unrecorded")

ONE_MODEL = ["reference-short"]

UNREACHABLE = (
    "models:\n  far: {engine: openai, base_url: 'http://127.0.0.1:9/v1', window_tokens: 8192}\n"
)

FILE_STUDY = """\
name: filed
corpus: {kind: file, path: corpus.jsonl, task: lookup}
tokenizer: reference
bins: {count: 2, starved_below: 2}
sampling: {samples_per_bin: 3, pilot_per_bin: 1}
prompt: {max_output_tokens: 12}
models: [reference-short]
analysis: {resamples: 100}
"""


@pytest.fixture
def filed(tmp_path: Path) -> Study:
    """A study over a file, as a user's would be."""
    from contextcliff_dagster.corpora.registry import open_corpus

    corpus = open_corpus("reference", {"documents": 40, "max_tokens": 200, "task": "lookup"})
    texts = {d.document_id: d.text for d in corpus.documents()}
    rows = [
        {"document": texts[e.document_id], "question": e.question, "answers": list(e.answers)}
        for e in corpus.examples()
    ]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    path = tmp_path / "filed.yaml"
    path.write_text(FILE_STUDY, encoding="utf-8")
    return load_study(path)


def records(store: Store, study: str) -> list[dict[str, object]]:
    """All evaluation records, times aside, in a fixed order."""
    rows = [
        row
        for path in (store.root / study / "eval_records").rglob("*.parquet")
        for row in pq.ParquetFile(path).read().to_pylist()
    ]
    timeless = ("ttft_ms", "duration_ms", "queue_ms", "loop_lag_ms", "finished_at")
    kept = [{k: v for k, v in row.items() if k not in timeless} for row in rows]
    return sorted(kept, key=lambda row: str(row["call_key"]))


def test_a_second_profile_makes_no_call_and_gives_the_same_records(
    study: Study, store: Store
) -> None:
    seen: list[tuple[str, Progress]] = []
    first = profile_study(study, on_progress=lambda model, p: seen.append((model, p)))
    assert {model for model, _ in seen} == set(study.models)
    assert {m: s.sent for m, s in first.calls.items()} == dict.fromkeys(study.models, 12)
    before = records(store, "tiny")

    second = profile_study(study)
    assert {m: s.sent for m, s in second.calls.items()} == dict.fromkeys(study.models, 0)
    assert records(store, "tiny") == before
    assert [c.safe_cap_tokens for c in first.cliffs] == [c.safe_cap_tokens for c in second.cliffs]


def test_everything_but_ledger_and_manifest_can_be_deleted(measured: Study, store: Store) -> None:
    before = records(store, "tiny")
    for name in ("predictions", "eval_records", "profiles", "report", "preparation"):
        shutil.rmtree(store.root / "tiny" / name)

    rebuilt = rebuild_report(measured)

    assert rebuilt.calls == {}
    assert records(store, "tiny") == before
    assert all(path.stat().st_size for path in rebuilt.report)


def test_a_sample_smaller_than_the_study_asks_for_is_reported_as_it_is(study: Study) -> None:
    profile_study(study, models=ONE_MODEL, samples_per_bin=2)
    rebuilt = rebuild_report(study, models=ONE_MODEL)
    assert rebuilt.cliffs[0].n == 6


def test_each_top_up_is_a_look_and_an_analysis_of_the_same_answers_is_not(study: Study) -> None:
    def looks(cliffs: Cliffs) -> list[tuple[int, int]]:
        return [(look.per_bin, look.n) for look in cliffs.looks]

    few = profile_study(study, models=ONE_MODEL, samples_per_bin=2).cliffs[0]
    assert looks(few) == [(2, 6)]
    assert looks(rebuild_report(study, models=ONE_MODEL).cliffs[0]) == [(2, 6)]
    more = profile_study(study, models=ONE_MODEL).cliffs[0]
    assert looks(more) == [(2, 6), (4, 12)]
    assert more.looks[-1].safe_cap_tokens == more.safe_cap_tokens
    assert looks(profile_study(study, models=ONE_MODEL).cliffs[0]) == [(2, 6), (4, 12)]
    # Another tolerance is another promise: its caps were not read before.
    stricter = study.changed(analysis=study.analysis.model_copy(update={"tolerance": 0.2}))
    assert looks(rebuild_report(stricter, models=ONE_MODEL).cliffs[0]) == [(4, 12)]


def test_neither_preparing_nor_a_run_that_makes_no_call_begins_a_campaign(
    study: Study, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models.yaml").write_text(UNREACHABLE)
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(tmp_path / "models.yaml"))
    prepare_study(study)
    with pytest.raises(EngineError):
        profile_study(study, models=["far"])
    with pytest.raises(StoreError):
        rebuild_report(study)
    with open_ledger(store) as ledger:
        assert list_campaigns(ledger) == []
    assert profile_study(study, models=ONE_MODEL).cliffs[0].n == 12


def test_the_estimate_is_an_asset_of_preparing_and_of_measuring(
    study: Study, store: Store, instance: dg.DagsterInstance
) -> None:
    def estimated() -> list[object]:
        key = dg.AssetKey(["tiny", "cost_estimate"])
        records = instance.fetch_materializations(key, limit=9).records
        found = [record.asset_materialization for record in reversed(records)]
        return [made.metadata["calls"].value for made in found if made is not None]

    prepare_study(study, models=ONE_MODEL, keep=False, instance=instance)
    assert estimated() == []
    prepare_study(study, models=ONE_MODEL, instance=instance)
    assert estimated() == [12]
    # Made before the calls, not after them.
    profile_study(study, models=ONE_MODEL, instance=instance)
    assert estimated() == [12, 12]
    assert instance.get_latest_materialization_event(dg.AssetKey(["tiny", "report"])) is not None
    profile_study(study, models=ONE_MODEL, instance=instance)
    assert estimated() == [12, 12, 0]
    # Of the campaign that is asked for, not of the newest.
    with open_ledger(store) as ledger:
        (first,) = list_campaigns(ledger, study.name)
        new_campaign(ledger, study.name)
    profile_study(study, models=ONE_MODEL, instance=instance, campaign=first.name)
    assert estimated() == [12, 12, 0, 0]


def test_a_deadline_ends_the_run(study: Study) -> None:
    with pytest.raises(BudgetError, match="deadline was reached"):
        profile_study(study, models=ONE_MODEL, deadline_s=1e-9)


def test_the_report_says_that_no_prefix_was_reused(study: Study) -> None:
    assert profile_study(study, models=ONE_MODEL).notes == ()
    prompt = study.prompt.model_copy(update={"prefix_cache": False})
    apart = study.model_copy(update={"prompt": prompt})
    (note,) = profile_study(apart, models=ONE_MODEL).notes
    assert "`prefix_cache: off`" in note


def test_rebuilding_needs_something_measured(study: Study) -> None:
    with pytest.raises(StudyError, match="does not exist yet"):
        rebuild_report(study)


def test_once_frozen_the_source_may_be_deleted(filed: Study, store: Store, tmp_path: Path) -> None:
    prepared = prepare_study(filed)
    assert prepared.estimate.calls == 6
    (tmp_path / "corpus.jsonl").unlink()
    shutil.rmtree(store.preparation_dir("filed"))
    done = profile_study(filed)
    assert done.calls["reference-short"].sent == 6
    assert prepare_study(filed).estimate.calls == 0


def test_a_changed_source_is_sampled_again_only_when_it_is_read_again(
    filed: Study, tmp_path: Path
) -> None:
    frozen = prepare_study(filed).manifest.sha256
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(corpus.read_text().splitlines()[:30]), encoding="utf-8")
    assert prepare_study(filed).manifest.sha256 == frozen
    assert prepare_study(filed, reread=True).manifest.sha256 != frozen


def test_reading_an_unchanged_source_again_keeps_the_manifest(filed: Study) -> None:
    frozen = prepare_study(filed).manifest.sha256
    assert prepare_study(filed, reread=True).manifest.sha256 == frozen


def test_another_seed_has_a_store_of_its_own(measured: Study, store: Store) -> None:
    before = records(store, "tiny")
    other = profile_study(measured, models=ONE_MODEL, seed=5)
    assert other.study.name == "tiny-seed-5"
    assert records(store, "tiny") == before
    documents = {row["document_id"] for row in before}
    assert not documents & {row["document_id"] for row in records(store, "tiny-seed-5")}


def test_a_corpus_of_one_length_is_refused_before_any_call(
    filed: Study, store: Store, tmp_path: Path
) -> None:
    row = {"document": "a b c d", "question": "which?", "answers": ["a"]}
    rows = [row | {"document": f"a b c {letter}"} for letter in "efghijklmn"]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.raises(CorpusError, match=r"is not measured: .*same length"):
        profile_study(filed)
    assert not (store.root / "filed" / "predictions").exists()


@pytest.mark.parametrize("starved", ["merge", "refuse"])
def test_a_starved_bin_is_merged_or_refused_as_the_study_says(
    tmp_path: Path, store: Store, starved: str
) -> None:
    path = tmp_path / "thin.yaml"
    text = FILE_STUDY.replace("name: filed", "name: thin")
    text = text.replace("starved_below: 2", f"starved_below: 5, starved: {starved}")
    text = text.replace("kind: file, path: corpus.jsonl", "kind: reference, documents: 8")
    path.write_text(text, encoding="utf-8")
    study = load_study(path)
    if starved == "refuse":
        with pytest.raises(CorpusError, match="starved_below"):
            profile_study(study)
        return
    done = profile_study(study)
    bins = prepare_study(study).manifest.bins
    assert [b.bin for b in bins] == ["b00", "b01"]
    assert [b.merged_into for b in bins].count(None) == 1
    assert done.cliffs[0].n == 3


def test_an_unknown_model_is_named_before_anything_is_made(study: Study, store: Store) -> None:
    with pytest.raises(StudyError, match="no model 'gpt-9'"):
        profile_study(study, models=["gpt-9"])
    assert not (store.root / "tiny").exists()


def test_an_unreachable_endpoint_is_one_sentence_and_loses_nothing(
    study: Study, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models.yaml").write_text(UNREACHABLE)
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(tmp_path / "models.yaml"))
    with pytest.raises(EngineError) as caught:
        profile_study(study, models=["reference-short", "far"])
    assert "\n" not in str(caught.value)
    assert rebuild_report(study).cliffs[0].n == 12


def test_a_run_that_is_asked_to_stop_keeps_what_it_has(
    study: Study, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    bigger = bin_after_bin(study.with_samples(15))
    first = prompts_of(bigger, "b00")
    hold_until_halted(monkeypatch, lambda model, prompt: prompt.hash not in first)

    def first_bin_is_done() -> bool:
        return any(store.root.rglob("predictions.parquet"))

    stopped = profile_study(bigger, models=ONE_MODEL, should_stop=first_bin_is_done)
    assert stopped.calls["reference-short"].stopped
    kept = stopped.cliffs[0].n
    assert 15 <= kept < 45
    asked: list[int] = []
    resumed = profile_study(bigger, models=ONE_MODEL, should_stop=lambda: bool(asked.append(1)))
    assert asked
    assert resumed.cliffs[0].n == 45
    assert 0 < resumed.calls["reference-short"].sent <= 45 - kept
