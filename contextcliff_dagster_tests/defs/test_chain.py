"""The whole chain of a study, and what the UI is told of it."""

from __future__ import annotations

import base64
import io
import json
from collections import Counter

import dagster as dg
import pyarrow.parquet as pq
import pytest
from PIL import Image

from contextcliff_dagster.contracts import EVAL_RECORDS, PREDICTIONS, StoreError
from contextcliff_dagster.defs.ui.rendering import INLINE_MARKDOWN_LIMIT
from contextcliff_dagster.store import Store, read_table
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.staleness import stale
from contextcliff_dagster_tests.support.tiny_study import Run


@pytest.fixture
def _small_pictures() -> None:
    """Pictures as users get them: how wide they are is looked at here."""


def materialized(result: dg.ExecuteInProcessResult) -> Counter[tuple[str, str | None]]:
    """How often each (asset, partition) was materialized."""
    found: Counter[tuple[str, str | None]] = Counter()
    for event in result.get_asset_materialization_events():
        found[event.asset_key.path[-1], event.partition] += 1
    return found


def metadata(result: dg.ExecuteInProcessResult, name: str) -> dict[str, object]:
    for event in result.get_asset_materialization_events():
        if event.asset_key.path[-1] == name:
            shown = event.step_materialization_data.materialization.metadata
            return {key: getattr(value, "value", value) for key, value in shown.items()}
    raise AssertionError(name)


def test_one_run_takes_a_study_from_corpus_to_report(
    run: Run, study: Study, store: Store, instance: dg.DagsterInstance
) -> None:
    result = run()

    assert result.success
    (campaign,) = [p.name for p in (store.root / "tiny" / "profiles").iterdir()]
    bins = {(f"{campaign}|{m}.{b}") for m in study.models for b in study.bin_keys}
    expected = dict.fromkeys(
        [
            *[(name, None) for name in ("raw_corpus", "length_map", "distribution_audit")],
            *[(name, None) for name in ("manifest", "cost_estimate")],
            *[(name, campaign) for name in ("eval_records", "metrics", "cliffs", "report")],
            *[("predictions", key) for key in bins],
        ],
        1,
    )
    # Exactly once each: a bin that is logged and returned too would count twice.
    assert materialized(result) == Counter(expected)

    checks = {e.check_name: e for e in result.get_asset_check_evaluations()}
    assert set(checks) == {
        "starved_bins",
        "target_range",
        "manifest_hash",
        "missing_share",
        "no_transport_error_scored",
        "no_silent_truncation",
        "plateau",
    }  # no_shrink is skipped: there is no baseline
    assert all(check.passed for check in checks.values())

    for model in study.models:
        for bin in study.bin_keys:
            rows = read_table(
                store.table_file("predictions", "tiny", campaign, model, bin), PREDICTIONS
            )
            scored = read_table(
                store.table_file("eval_records", "tiny", campaign, model, bin), EVAL_RECORDS
            )
            assert rows.num_rows == scored.num_rows == 4
            assert set(rows["model"].to_pylist()) == {model}
        cliffs = json.loads(
            (store.profile_dir("tiny", campaign, model) / "cliffs.json").read_text()
        )
        assert (cliffs["model"], cliffs["n"]) == (model, 12)
        made_from = cliffs["provenance"]
        assert set(made_from["hashes"]) == {"manifest", "manifest_spec", "recipe"}
        assert set(made_from["seeds"]) == {"sampling", "analysis"}
        assert made_from["times"]["measured_from"] <= made_from["times"]["measured_to"]
    report = store.report_dir("tiny", campaign)
    assert {"report.md", "report.json", "report.png"} <= {p.name for p in report.iterdir()}
    assert (report.parent / "latest").resolve() == report.resolve()

    # What the UI shows of the report: verdicts in place, a picture that fits the dialog.
    shown = metadata(result, "report")
    assert len(str(shown["summary"])) < INLINE_MARKDOWN_LIMIT
    assert all(model in str(shown["summary"]) for model in study.models)
    width, _ = picture_size(str(shown["picture"]))
    assert 600 <= width <= 1_200
    assert {"bins"} <= set(metadata(result, "metrics"))
    assert {"verdicts", "summary"} <= set(metadata(result, "cliffs"))
    assert metadata(result, "eval_records")["dagster/row_count"] == 24
    assert metadata(result, "predictions")["dagster/row_count"] == 4
    assert metadata(result, "manifest")["dagster/row_count"] == 12


def picture_size(markdown: str) -> tuple[int, int]:
    data = base64.b64decode(markdown.split("base64,")[1].rstrip(")"))
    with Image.open(io.BytesIO(data)) as image:
        assert image.format == "WEBP"
        return image.size


def test_the_manifest_keeps_its_data_version(
    run: Run, prepared: None, instance: dg.DagsterInstance
) -> None:
    key = dg.AssetKey(["tiny", "manifest"])

    def version() -> str | None:
        event = instance.get_latest_materialization_event(key)
        assert event is not None
        assert event.asset_materialization is not None
        return (event.asset_materialization.tags or {}).get("dagster/data_version")

    first = version()
    run("raw_corpus", "length_map", "distribution_audit", "manifest")
    assert version() == first is not None


def test_an_identical_rerun_turns_nothing_stale_and_a_new_sample_does(
    run: Run, study: Study, store: Store, instance: dg.DagsterInstance
) -> None:
    preparation = ("raw_corpus", "length_map", "distribution_audit", "manifest")
    run()
    assert stale(study, instance) == set()
    run(*preparation)
    assert stale(study, instance) == set()

    bigger = study.with_samples(5)
    run(*preparation, of=bigger)
    assert {"reference-short.b00", "reference-long.b02"} <= stale(bigger, instance)
    run(of=bigger)
    assert stale(bigger, instance) == set()


def test_a_damaged_manifest_stops_the_chain_with_a_sentence(
    run: Run, prepared: None, store: Store
) -> None:
    path = store.manifest_dir("tiny") / "examples.parquet"
    examples = pq.read_table(path)
    pq.write_table(examples.slice(1), path)
    with pytest.raises(StoreError, match="damaged"):
        run("predictions")
