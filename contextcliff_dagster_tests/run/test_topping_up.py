"""Partitions: backfills touch what they name, topping up asks what is new, crashes lose nothing."""

from __future__ import annotations

import json

import dagster as dg
import pytest
from dagster._core.definitions.partitions.context import partition_loading_context

from contextcliff_dagster.contracts import (
    EVAL_RECORDS,
    PREDICTIONS,
    BudgetError,
    EngineError,
    StudyError,
)
from contextcliff_dagster.defs.alerts import failure_of
from contextcliff_dagster.defs.asset_specs import advised
from contextcliff_dagster.defs.partitions import add_campaign, experiment_partitions
from contextcliff_dagster.defs.resources import Watch, run_resources
from contextcliff_dagster.defs.studies import study_assets, study_jobs
from contextcliff_dagster.experiments.common.study_run import open_ledger
from contextcliff_dagster.experiments.length_profile.experiment import LENGTH_PROFILE
from contextcliff_dagster.inference.ledger.campaigns import current_campaign, new_campaign
from contextcliff_dagster.run.study import profile_study
from contextcliff_dagster.store import Store, read_table
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.held_calls import hold_until_halted
from contextcliff_dagster_tests.support.tiny_study import Run, bin_after_bin, prompts_of

pytestmark = pytest.mark.usefixtures("unrecorded")

PREDICTED = dg.AssetKey(["tiny", "predictions"])
JUDGED = ("eval_records", "metrics", "cliffs", "report")


def rows_per_bin(store: Store) -> dict[str, int]:
    """model.bin -> rows of predictions on disk."""
    folder = store.root / "tiny" / "predictions"
    found = {}
    for path in sorted(folder.glob("campaign=*/model=*/bin=*/*.parquet")):
        rows = read_table(path, PREDICTIONS)
        found[f"{rows['model'][0]}.{rows['bin'][0]}"] = rows.num_rows
    return found


def cell_of(partition: str | None) -> str:
    return str(partition).partition("|")[2]


def calls_sent(watch: Watch) -> dict[str, int]:
    return {model: summary.sent for model, summary in watch.calls.items()}


def test_a_backfill_of_two_bins_leaves_the_others_untouched(
    run: Run, measured: Study, store: Store
) -> None:
    files = {p: p.stat().st_mtime_ns for p in (store.root / "tiny").rglob("predictions.parquet")}

    result = run("predictions", first="reference-long.b01", last="reference-long.b02")

    touched = {cell_of(e.partition) for e in result.get_asset_materialization_events()}
    assert touched == {"reference-long.b01", "reference-long.b02"}
    changed = {p for p, at in files.items() if p.stat().st_mtime_ns != at}
    assert {p.parent.name for p in changed} == {"bin=b01", "bin=b02"}
    assert {p.parent.parent.name for p in changed} == {"model=reference-long"}


def test_only_the_named_bins_are_measured(
    run: Run, prepared: None, store: Store, instance: dg.DagsterInstance
) -> None:
    watch = Watch()
    run("predictions", first="reference-long.b01", last="reference-long.b02", watch=watch)
    assert rows_per_bin(store) == {"reference-long.b01": 4, "reference-long.b02": 4}
    assert calls_sent(watch) == {"reference-long": 8}
    made = instance.get_materialized_partitions(PREDICTED)
    assert {*map(cell_of, made)} == {"reference-long.b01", "reference-long.b02"}


def test_a_job_backfill_tags_no_run_with_the_partition_of_another(study: Study) -> None:
    """Dagster gives every run of it the tags of the first partition, but not its name."""
    resources = run_resources()
    definitions = dg.Definitions(study_assets(study), jobs=study_jobs(study), resources=resources)
    job = definitions.resolve_job_def("profile_tiny")
    first = job.get_tags_for_partition_key("c|reference-short.b00", selected_asset_keys=None)
    assert [tag for tag in first if tag.startswith("dagster/partition/")] == []


def test_topping_up_asks_only_what_is_new(run: Run, prepared: None, store: Store) -> None:
    pilot, more, again = Watch(), Watch(), Watch()
    run("predictions", config={"predictions": {"samples_per_bin": 1}}, watch=pilot)
    assert calls_sent(pilot) == {"reference-short": 3, "reference-long": 3}

    done = run("predictions", watch=more)
    partitions = [e.partition for e in done.get_asset_materialization_events()]
    assert len(partitions) == len(set(partitions)) == 6, "a bin is materialized once per run"
    assert calls_sent(more) == {"reference-short": 9, "reference-long": 9}

    run("predictions", watch=again)
    assert calls_sent(again) == {"reference-short": 0, "reference-long": 0}
    assert set(rows_per_bin(store).values()) == {4}


def judged(store: Store) -> dict[str, int]:
    """model -> scored examples in its `cliffs.json`; model.bin -> rows of its records."""
    folder = store.root / "tiny"
    found = {}
    for path in folder.glob("profiles/*/*/cliffs.json"):
        cliffs = json.loads(path.read_bytes())
        found[cliffs["model"]] = cliffs["n"]
    for path in folder.glob("eval_records/campaign=*/model=*/bin=*/*.parquet"):
        rows = read_table(path, EVAL_RECORDS)
        found[f"{rows['model'][0]}.{rows['bin'][0]}"] = rows.num_rows
    return found


def test_a_pilot_after_a_full_run_shrinks_nothing(run: Run, measured: Study, store: Store) -> None:
    full = judged(store)
    assert {full["reference-short"], full["reference-long"]} == {12}
    assert len(full) == 2 + 6
    run("predictions", *JUDGED, config={"predictions": {"samples_per_bin": 1}})
    assert set(rows_per_bin(store).values()) == {4}
    assert judged(store) == full


@pytest.mark.parametrize("asked", ["reference-short", "reference-long"])
def test_a_smaller_study_after_a_full_run_shrinks_nothing(
    measured: Study, store: Store, asked: str
) -> None:
    """As the command line asks with ``--model`` and ``--samples-per-bin``."""
    full = judged(store)
    done = profile_study(measured, models=[asked], samples_per_bin=2)
    assert (done.calls[asked].planned, done.calls[asked].sent) == (6, 0)
    (other,) = {*measured.models} - {asked}
    assert [(cliffs.model, cliffs.n) for cliffs in done.cliffs] == [(asked, 12), (other, 12)]
    assert set(rows_per_bin(store).values()) == {4}
    assert judged(store) == full


def test_more_than_the_manifest_holds_is_refused_with_a_sentence(run: Run, prepared: None) -> None:
    with pytest.raises(StudyError, match=r"9 examples per bin .* sampled with 4"):
        run("predictions", config={"predictions": {"samples_per_bin": 9}})


def test_a_bigger_sample_contains_the_smaller_one(
    run: Run, prepared: None, study: Study, store: Store
) -> None:
    run("predictions")
    bigger, watch = study.with_samples(6), Watch()
    run("raw_corpus", "length_map", "distribution_audit", "manifest", of=bigger)
    run("predictions", of=bigger, watch=watch)
    assert calls_sent(watch) == {"reference-short": 6, "reference-long": 6}
    assert set(rows_per_bin(store).values()) == {6}


def test_missing_bins_are_judged_as_what_they_are(run: Run, prepared: None, store: Store) -> None:
    run("predictions", first="reference-short.b00", last="reference-short.b01")
    result = run(*JUDGED)
    assert result.success
    judged = [
        read_table(p, EVAL_RECORDS) for p in (store.root / "tiny").rglob("eval_records.parquet")
    ]
    assert sorted(str(t["bin"][0]) for t in judged) == ["b00", "b01"]


class Crash(Exception):
    pass


def test_a_crash_in_the_middle_keeps_the_finished_bins(
    run: Run,
    study: Study,
    store: Store,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bigger = bin_after_bin(study.with_samples(15))
    run("raw_corpus", "length_map", "distribution_audit", "manifest", of=bigger)
    first = prompts_of(bigger, "b00")
    hold_until_halted(
        monkeypatch,
        lambda model, prompt: model == "reference-long" and prompt.hash not in first,
    )

    def crash_in_the_second_model() -> bool:
        if "reference-long.b00" in rows_per_bin(store):
            raise Crash
        return False

    with pytest.raises(Crash):
        run("predictions", of=bigger, watch=Watch(should_stop=crash_in_the_second_model))
    kept = {*map(cell_of, instance.get_materialized_partitions(PREDICTED))}
    assert {f"reference-short.{bin}" for bin in study.bin_keys} <= kept
    assert "reference-long.b02" not in kept
    assert set(rows_per_bin(store)) == kept

    resumed = Watch()
    run("predictions", of=bigger, watch=resumed)
    assert len(instance.get_materialized_partitions(PREDICTED)) == 6
    assert calls_sent(resumed)["reference-short"] == 0
    # Those of the finished bin and those in flight had their answers; none is asked again.
    assert 0 < calls_sent(resumed)["reference-long"] < 30


def test_a_new_campaign_measures_again(run: Run, prepared: None, store: Store) -> None:
    run("predictions", first="reference-short.b00", last="reference-short.b00")
    with open_ledger(store) as ledger:
        name = new_campaign(ledger, "tiny")
    watch = Watch()
    run("predictions", first="reference-short.b00", last="reference-short.b00", watch=watch)
    assert calls_sent(watch) == {"reference-short": 4}
    assert (store.campaign_dir("predictions", "tiny", name)).is_dir()


def test_an_unknown_campaign_is_refused(run: Run, prepared: None) -> None:
    with pytest.raises(StudyError, match="no campaign '1999-01-01'"):
        run("cost_estimate", config={"cost_estimate": {"campaign": "1999-01-01"}})


@pytest.mark.parametrize("first", ["reference-short|b00", "2026-11-23|reference-short.b99"])
def test_a_run_by_keys_of_an_earlier_version_is_refused(
    run: Run, prepared: None, instance: dg.DagsterInstance, study: Study, first: str
) -> None:
    add_campaign(instance, study, first.partition("|")[0])
    with pytest.raises(
        StudyError, match=r"is no partition of study 'tiny'.* 2026-11-23\|reference-short.b00"
    ):
        run("predictions", tags={"dagster/partition": first}, ranged=False)


def test_what_is_of_one_campaign_says_so_where_none_is_named(
    study: Study, store: Store, instance: dg.DagsterInstance
) -> None:
    done = dg.materialize(
        study_assets(study),
        selection=["tiny/report"],
        resources=run_resources(store.root),
        instance=instance,
        raise_on_error=False,
    )
    sentence, _ = failure_of(instance, done.run_id)
    assert sentence.startswith("What is made of answers is of one campaign: launch it with a part")


def test_tables_are_written_again_from_the_ledger_alone(
    run: Run, prepared: None, store: Store
) -> None:
    run("predictions", first="reference-short.b00", last="reference-short.b01")
    kept = rows_per_bin(store)
    for path in (store.root / "tiny").rglob("predictions.parquet"):
        path.unlink()
    run("predictions", config={"predictions": {"from_ledger_only": True}})
    assert rows_per_bin(store) == kept


def test_changed_weights_are_not_pooled(
    run: Run, prepared: None, store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    import shutil
    from pathlib import Path

    from contextcliff_dagster.reference.card import weights_path

    run("predictions", first="reference-short.b00", last="reference-short.b00")
    folder = Path(str(tmp_path)) / "swapped"
    shutil.copytree(weights_path("reference-long"), folder)
    models = Path(str(tmp_path)) / "models.yaml"
    models.write_text(
        f"models:\n  reference-short: {{engine: reference, weights: {folder}, "
        "tokenizer: reference, window_tokens: 8192}\n"
    )
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(models))
    with pytest.raises(EngineError, match="has changed since"):
        run("predictions", first="reference-short.b00", last="reference-short.b01")


def statuses(instance: dg.DagsterInstance, study: Study) -> dict[str, str]:
    partitions = experiment_partitions(study, LENGTH_PROFILE)
    with partition_loading_context(dynamic_partitions_store=instance):
        keys = partitions.get_partition_keys()
        known = instance.get_status_by_partition(PREDICTED, keys, partitions) or {}
    return {key.partition("|")[2]: of.value for key, of in known.items() if of is not None}


def test_a_refused_top_up_leaves_good_partitions_good(
    run: Run, prepared: None, study: Study, store: Store, instance: dg.DagsterInstance
) -> None:
    pilot = {"predictions": {"samples_per_bin": 2}}
    run("predictions", last="reference-short.b01", config=pilot)
    before = rows_per_bin(store)
    with pytest.raises(BudgetError, match="deadline"):
        run("predictions", config={"predictions": {"deadline_s": 1e-9}})
    assert rows_per_bin(store) == before
    good = {"reference-short.b00": "MATERIALIZED", "reference-short.b01": "MATERIALIZED"}
    assert statuses(instance, study) == good | dict.fromkeys(
        ["reference-short.b02", *(f"reference-long.{bin}" for bin in study.bin_keys)], "FAILED"
    )
    # What is stale is not passed off as measured by today's code.
    other = study.changed(prompt={**dict(study.prompt), "max_output_tokens": 13})
    with pytest.raises(BudgetError, match="deadline"):
        run("predictions", of=other, config={"predictions": {"deadline_s": 1e-9}})
    assert set(statuses(instance, study).values()) == {"FAILED"}


def test_a_refusal_is_a_failure_with_its_sentence_first(
    run: Run, prepared: None, instance: dg.DagsterInstance
) -> None:
    config = {"cost_estimate": {"campaign": "1999-01-01"}}
    (done,) = run("cost_estimate", config=config, raise_on_error=False).runs
    (event,) = done.get_step_failure_events()
    data = event.step_failure_data
    assert data.user_failure_data is not None
    assert str(data.user_failure_data.description).startswith("Study 'tiny' has no campaign")
    assert str(data.user_failure_data.description).endswith(
        " In Dagster: launch the job `begin_campaign_tiny`."
    )
    assert data.error is not None
    assert data.error.message.startswith("dagster._core.definitions.events.Failure: Study 'tiny'")
    assert data.error.cause is not None
    assert "campaign_of" in "".join(data.error.cause.stack)
    sentence, step = failure_of(instance, done.run_id)
    assert (sentence[:12], step) == ("Study 'tiny'", "tiny__cost_estimate")


def test_advice_of_the_shell_is_followed_by_that_of_the_ui(
    run: Run, instance: dg.DagsterInstance
) -> None:
    (done,) = run("predictions", raise_on_error=False).runs
    sentence, _ = failure_of(instance, done.run_id)
    assert sentence == (
        "The manifest of study 'tiny' does not exist yet; run `contextcliff prepare tiny`. In "
        "Dagster: materialize `tiny/manifest` and what is before it."
    )
    both = "Run `contextcliff profile a-b`, or `contextcliff report a-b --campaign c`."
    assert advised(both).endswith(
        "launch the job `profile_a_b`, or launch the job `report_a_b` for partitions of campaign c."
    )
    alone = advised(
        "Run `contextcliff prepare utilization` and `contextcliff profile utilization`."
    )
    assert alone.endswith(
        " In Dagster: materialize `utilization/utilization_manifest` and what is before it, or "
        "launch the job `utilization_utilization`."
    )
    assert advised("Run `contextcliff doctor`.") == "Run `contextcliff doctor`."


def test_every_run_says_what_it_is_for(
    run: Run, prepared: None, store: Store, instance: dg.DagsterInstance
) -> None:
    backfill = {"dagster/backfill": "abc"}
    first = run("cost_estimate", "predictions", last="reference-short.b01", tags=backfill)
    report = run("eval_records", "metrics", "cliffs", "report")
    with open_ledger(store) as ledger:
        campaign = current_campaign(ledger, "tiny")
    for result, cause, models in (
        (first, "backfill", "reference-short"),
        (report, "launch", "reference-short, reference-long"),
    ):
        recorded = instance.get_run_by_id(result.run_id)
        assert recorded is not None
        tags = {k: v for k, v in recorded.tags.items() if k.startswith("contextcliff/")}
        assert tags == {
            "contextcliff/study": "tiny",
            "contextcliff/models": models,
            "contextcliff/campaign": campaign,
            "contextcliff/cause": cause,
        }
