"""A server that cuts prompts without a word, over HTTP and through the whole chain."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from contextcliff_dagster.cli.commands.report import spent_lines
from contextcliff_dagster.contracts import EVAL_RECORDS, EngineError
from contextcliff_dagster.defs.asset_specs import RETRY_TAG
from contextcliff_dagster.run.study import profile_study, rebuild_report
from contextcliff_dagster.store import Store, read_table
from contextcliff_dagster.studies import Study
from contextcliff_dagster_tests.support.records.calls import unreliable_server
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call
from contextcliff_dagster_tests.support.tiny_study import Run

pytestmark = pytest.mark.usefixtures("unrecorded")

AT_MOST = 120
SERVED = ["served"]
OURS = "    tokenizer: reference\n"


def point_at(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch, more: str = OURS) -> None:
    """Model ``served`` is the server at ``url``."""
    path = folder / "models.yaml"
    path.write_text(
        "models:\n  served:\n    engine: openai\n    model_id: m\n    revision: r1\n"
        f"    base_url: {url}\n    window_tokens: 8192\n{more}"
    )
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(path))


def test_above_one_call_in_a_hundred_nothing_is_concluded(
    study: Study,
    store: Store,
    run: Run,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with unreliable_server(reads_at_most=AT_MOST, delay_ms=1) as url:
        point_at(tmp_path, url, monkeypatch)
        with pytest.raises(EngineError, match=r"read less than was sent in \d+ of 12 calls"):
            profile_study(study, models=SERVED, store=store, instance=instance)
    records = [
        row
        for path in sorted(store.root.glob("tiny/eval_records/**/*.parquet"))
        for row in read_table(path, EVAL_RECORDS).to_pylist()
    ]
    cut = {row["call_key"] for row in records if row["prompt_tokens"] == AT_MOST}
    marked = {row["call_key"] for row in records if row["failure"] == "invalid_truncated"}
    # Call by call, a few tokens are left for the template; over all calls the ceiling shows.
    assert 0 < len(marked) <= len(cut) < 12
    assert marked <= cut
    assert marked >= {row["call_key"] for row in records if row["own_prompt_tokens"] > AT_MOST + 15}
    assert all(row["score"] is None for row in records if row["call_key"] in marked)
    assert not (store.root / "tiny" / "profiles").exists()
    assert not (store.root / "tiny" / "report").exists()

    # In Dagster it is a check of its own, and what comes after the records does not run.
    served = study.with_models(SERVED)
    again = run(
        "eval_records", "metrics", "cliffs", of=served, first="served.b00", last="served.b02",
        raise_on_error=False,
    )  # fmt: skip
    (check,) = [
        c for c in again.get_asset_check_evaluations() if c.check_name == "no_silent_truncation"
    ]
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert check.description is not None
    assert f"{len(cut)} of 12 calls of study 'tiny'" in check.description
    assert not again.success
    done = {event.asset_key.path[-1] for event in again.get_asset_materialization_events()}
    assert done == {"eval_records"}
    ended = instance.get_run_by_id(again.run_id)
    assert ended is not None
    assert ended.tags[RETRY_TAG] == "false"  # it would be found again


def test_without_a_count_of_our_own_a_cut_at_one_length_is_still_found(
    study: Study, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unreliable_server(reads_at_most=AT_MOST, delay_ms=1) as url:
        point_at(tmp_path, url, monkeypatch, more="")
        with pytest.raises(EngineError, match="longer prompts are all read as 120 tokens"):
            profile_study(study, models=SERVED, store=store)
    assert not (store.root / "tiny" / "profiles").exists()


def test_taking_the_model_out_of_the_study_is_a_way_on(
    study: Study, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = study.with_models([*SERVED, "reference-short"])
    with unreliable_server(reads_at_most=AT_MOST, delay_ms=1) as url:
        point_at(tmp_path, url, monkeypatch)
        with pytest.raises(EngineError, match="'served'"):
            profile_study(both, store=store)
    done = rebuild_report(study, models=["reference-short"], store=store)
    assert "reference-short" in {cliffs.model for cliffs in done.cliffs}


def test_terminal_and_report_count_the_same_answers(
    study: Study, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = study.with_samples(2).changed(controls=["no_context"])
    with unreliable_server(usage=False, reads_at_most=AT_MOST, delay_ms=1) as url:
        point_at(tmp_path, url, monkeypatch)
        profile_study(few, models=SERVED, store=store)
        # Six answers are known before, and controls are no part of the curve.
        done = profile_study(study.changed(controls=["no_context"]), models=SERVED, store=store)
    assert done.calls["served"].unchecked_truncation == 12
    said = "The server of served reported no prompt tokens for 12 of 12 answers"
    assert any(said in warning for warning in done.cliffs[0].warnings)
    assert said in done.report.md.read_text(encoding="utf-8")
    assert done.unchecked == 12
    (line,) = [
        line
        for line in spent_lines(done.calls, "tiny", done.unchecked)
        if "Silent truncation" in line
    ]
    assert line.startswith("Silent truncation not checked for 12 answers: set `tokenizer`")


def test_a_server_that_reads_everything_passes_and_nothing_is_said(
    study: Study, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unreliable_server(delay_ms=1) as url:
        point_at(tmp_path, url, monkeypatch)
        done = profile_study(study, models=SERVED, store=store)
    assert not [w for w in done.cliffs[0].warnings if "prompt" in w or "count of our own" in w]


def test_the_command_line_says_it_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unreliable_server(reads_at_most=AT_MOST, delay_ms=1) as url:
        point_at(tmp_path, url, monkeypatch)
        ended = call("profile", "quick", "--model", "served", "--samples-per-bin", "3")
        assert_one_sentence(ended, "'served'", "without saying so", "campaign new quick")
        assert "window_tokens in models.yaml" in ended.err
        # Nothing is bought again to hear it a second time.
        again = call("report", "quick", "--model", "served")
        assert_one_sentence(again, "'served'", "without saying so")
