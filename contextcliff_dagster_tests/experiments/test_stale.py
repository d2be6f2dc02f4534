"""Which assets an edit of a study, of a model or of a method turns stale, key by key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from contextcliff_dagster.defs.studies import study_assets
from contextcliff_dagster.experiments.common import code_version
from contextcliff_dagster.experiments.length_profile.experiment import LengthProfile
from contextcliff_dagster.studies import Study, load_study
from contextcliff_dagster_tests.support.staleness import stale
from contextcliff_dagster_tests.support.tiny_study import TINY, Run

PREPARED = {"raw_corpus", "length_map", "distribution_audit", "manifest"}
JUDGED = {"eval_records", "metrics", "cliffs", "report"}
ASKED = {"predictions", "control_predictions", "cost_estimate"}
BASE = {**yaml.safe_load(TINY), "controls": ["no_context"], "schedule": {"cron": "0 3 * * 1"}}

OWN: dict[str, tuple[Mapping[str, Any], set[str]]] = {
    "description": ({"description": "Another."}, {"report"}),
    "corpus.task": ({"corpus": {**BASE["corpus"], "task": "two_hop"}}, {"raw_corpus"}),
    "corpus.seed": ({"corpus": {**BASE["corpus"], "seed": 4}}, {"raw_corpus"}),
    "tokenizer": ({"tokenizer": "cl100k_base"}, {"length_map"}),
    "bins.count": ({"bins": {"count": 4}}, {"distribution_audit", "manifest"}),
    "bins.starved_below": (
        {"bins": {"count": 3, "starved_below": 2}},
        {"distribution_audit", "manifest"},
    ),
    "target": (
        {"target": {"min_tokens": 10, "max_tokens": 100}},
        {"distribution_audit", "manifest"},
    ),
    "sampling.samples_per_bin": (
        {"sampling": {"samples_per_bin": 5, "pilot_per_bin": 2}},
        {"manifest", "cost_estimate"},
    ),
    "sampling.seed": (
        {"sampling": {"samples_per_bin": 4, "pilot_per_bin": 2, "seed": 1}},
        {"manifest"},
    ),
    "sampling.questions_per_document": (
        {"sampling": {"samples_per_bin": 4, "pilot_per_bin": 2, "questions_per_document": 2}},
        {"manifest"},
    ),
    "sampling.min_tokens": (
        {"sampling": {"samples_per_bin": 4, "pilot_per_bin": 2, "min_tokens": 9}},
        {"distribution_audit", "manifest"},
    ),
    "sampling.pilot_per_bin": ({"sampling": {"samples_per_bin": 4, "pilot_per_bin": 3}}, set()),
    "prompt.max_output_tokens": ({"prompt": {"max_output_tokens": 13}}, ASKED),
    "prompt.prefix_cache": (
        {"prompt": {"max_output_tokens": 12, "prefix_cache": False}},
        ASKED,
    ),
    "models": ({"models": ["reference-short"]}, {*ASKED, "distribution_audit"}),
    "scoring.primary": ({"scoring": {"primary": "f1"}}, {"eval_records"}),
    "scoring.scorer": ({"scoring": {"scorer": "numeric"}}, {"eval_records"}),
    "analysis.tolerance": (
        {"analysis": {"resamples": 100, "tolerance": 0.2}},
        {"metrics", "cliffs"},
    ),
    "analysis.confidence": (
        {"analysis": {"resamples": 100, "confidence": 0.9}},
        {"metrics", "cliffs"},
    ),
    "analysis.resamples": ({"analysis": {"resamples": 200}}, {"metrics", "cliffs"}),
    "latency": ({"latency": {"ttft_ms_p95": 2_000}}, {"metrics", "cliffs"}),
    "targeted": ({"targeted": {"pilot": 3}}, {"metrics", "cliffs"}),
    "regression": ({"regression": {"flip_rate": 0.1}}, {"metrics", "cliffs"}),
    "controls": (
        {"controls": ["no_context", "oracle"]},
        {"control_predictions", "cost_estimate"},
    ),
    "calls.concurrency": ({"calls": {"concurrency": 1}}, set()),
    "calls.deadline_s": ({"calls": {"deadline_s": 9.0}}, set()),
    "calls.order": ({"calls": {"order": "by_length"}}, set()),
    "budget": ({"budget": {"usd": 3.0}}, set()),
    "schedule": ({"schedule": {"cron": "0 4 * * 1"}}, set()),
    "sentinel": ({"sentinel": {"cron": "0 4 * * *"}}, set()),
    "alerts": ({"alerts": {"webhook_env": "HOOK"}}, set()),
    "assets": ({"assets": {"group": "team", "tags": {"a": "b"}}}, set()),
    "track": ({"track": "wandb"}, set()),
}
"""Key -> the edit, and the assets whose own code version changes with it."""


def study_of(tmp_path: Path, changes: Mapping[str, Any] | None = None) -> Study:
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump({**BASE, **(changes or {})}), encoding="utf-8")
    return load_study(file)


def versions(study: Study) -> dict[str, str]:
    """Asset -> code version, as Dagster compares it."""
    return {
        key.path[-1]: str(version)
        for asset in study_assets(study)
        for key, version in asset.code_versions_by_key.items()
    }


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def test_every_asset_has_a_code_version(tmp_path: Path) -> None:
    known = versions(study_of(tmp_path))
    assert known.keys() == PREPARED | JUDGED | ASKED
    assert all(known.values())
    assert "None" not in known.values()


@pytest.mark.parametrize("key", OWN)
def test_an_edited_key_changes_the_assets_that_depend_on_it(key: str, tmp_path: Path) -> None:
    edit, stale = OWN[key]
    assert changed(versions(study_of(tmp_path)), versions(study_of(tmp_path, edit))) == stale


def test_every_key_of_a_study_is_looked_at(tmp_path: Path) -> None:
    looked_at = {key.split(".")[0] for key in OWN}
    assert looked_at == {*Study.model_fields, "controls"} - {"name"}


def test_asking_for_attention_adds_an_asset_that_only_the_prompt_turns_stale(
    tmp_path: Path,
) -> None:
    asked = {"attention_entropy": True}
    plain, watched = versions(study_of(tmp_path)), versions(study_of(tmp_path, asked))
    assert watched.keys() - plain.keys() == {"attention_entropy"}
    assert changed(plain, {name: watched[name] for name in plain}) == {"cost_estimate"}
    longer = versions(study_of(tmp_path, {**asked, "prompt": {"max_output_tokens": 13}}))
    assert changed(watched, longer) == ASKED, "its own calls have one token of output"
    other = versions(study_of(tmp_path, {**asked, "prompt": {"template": "t.txt"}}))
    assert "attention_entropy" in changed(watched, other)


def test_an_edited_prompt_file_is_an_edited_prompt(tmp_path: Path) -> None:
    (tmp_path / "template.txt").write_text("{document}\n{question}", encoding="utf-8")
    edit = {"prompt": {"max_output_tokens": 12, "template": "template.txt"}}
    before = versions(study_of(tmp_path, edit))
    (tmp_path / "template.txt").write_text("{document}\n\n{question}", encoding="utf-8")
    assert changed(before, versions(study_of(tmp_path, edit))) == ASKED


@pytest.mark.parametrize(
    ("edit", "stale"),
    [
        ("revision: other", ASKED),
        ("dtype: float16", ASKED),
        ("window_tokens: 4096", {*ASKED, "distribution_audit"}),
        ("concurrency: 9", set()),
        ("price: {input_usd_per_mtok: 1, output_usd_per_mtok: 2}", set()),
        ("api_key_env: ANOTHER_KEY", set()),
        ("timeout_s: 9", set()),
    ],
)
def test_an_edited_model_changes_what_it_is_asked(
    edit: str, stale: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "models.yaml"
    monkeypatch.setenv("CONTEXTCLIFF_MODELS", str(models))
    entry = "engine: openai, model_id: m, base_url: 'http://127.0.0.1:9/v1'"
    models.write_text(f"models: {{mine: {{{entry}}}}}", encoding="utf-8")
    study = {"models": ["mine"]}
    before = versions(study_of(tmp_path, study))
    models.write_text(f"models: {{mine: {{{entry}, {edit}}}}}", encoding="utf-8")
    assert changed(before, versions(study_of(tmp_path, study))) == stale


def test_another_version_of_a_method_changes_what_it_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = versions(study_of(tmp_path))
    monkeypatch.setattr(LengthProfile, "version", "next")
    own = {"predictions", *JUDGED}
    assert changed(before, versions(study_of(tmp_path))) == own
    monkeypatch.undo()
    monkeypatch.setitem(code_version.METHODS, "manifest", "next")
    assert changed(before, versions(study_of(tmp_path))) == {"manifest"}


def test_dagster_shows_what_an_edit_turned_stale_and_then_what_is_made_of_it(
    study: Study, run: Run, instance: dg.DagsterInstance
) -> None:
    run()
    assert stale(study, instance) == set()
    partitions = {f"{model}.b0{n}" for model in study.models for n in range(3)}
    for edit, expected in (
        ({"analysis": {"resamples": 100, "tolerance": 0.2}}, {"metrics", "cliffs"}),
        ({"scoring": {"primary": "f1"}}, {"eval_records"}),
        ({"prompt": {"max_output_tokens": 13}}, {*partitions, "cost_estimate"}),
        ({"budget": {"usd": 1.0}}, set()),
        ({"description": "Another."}, {"report"}),
    ):
        assert stale(study.changed(**edit), instance) == expected, edit
    edited = study.changed(analysis={"resamples": 100, "tolerance": 0.2})
    run("metrics", "cliffs", of=edited)
    assert stale(edited, instance) == {"report"}
    run("report", of=edited)
    assert stale(edited, instance) == set()


def test_a_missing_prompt_file_hides_no_study(tmp_path: Path) -> None:
    edit = {"prompt": {"max_output_tokens": 12, "template": "gone.txt"}}
    assert versions(study_of(tmp_path, edit)).keys() == PREPARED | JUDGED | ASKED
