"""`calibrate`: a design's error rates before anything is spent, kept and quoted while they hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.cli.study_selection import profiled_campaign
from contextcliff_dagster.experiments.common.preparation import load_frozen
from contextcliff_dagster.experiments.length_profile.profile_files import read_cliffs
from contextcliff_dagster.experiments.length_profile.simulated_design import (
    DesignOverrides,
    pilot_of,
    quoted,
    study_plan,
)
from contextcliff_dagster.sampling.manifest import Manifest
from contextcliff_dagster.store import Store
from contextcliff_dagster.studies import Study, find_study
from contextcliff_dagster_tests.support.terminal import assert_one_sentence, call

STUDY = """\
name: planned
corpus: {kind: reference, task: lookup, documents: 400}
tokenizer: reference
bins: {count: 4}
sampling: {samples_per_bin: 8, pilot_per_bin: 2}
prompt: {max_output_tokens: 12}
models: [reference-long]
analysis: {resamples: 100}
"""
FEW = ("--simulations", "20", "--jobs", "1")


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "studies"
    folder.mkdir()
    file = folder / "planned.yaml"
    file.write_text(STUDY)
    monkeypatch.setenv("CONTEXTCLIFF_STUDIES", str(folder))
    return file


def do(*args: str) -> str:
    ended = call(*args)
    assert ended.code == 0, ended.err
    return ended.out


def report(home: Path) -> str:
    (file,) = (home / "planned" / "report").glob("2*/report.md")
    return file.read_text("utf-8")


def test_a_design_is_judged_without_any_study(contextcliff_home: Path) -> None:
    options = ("calibrate", "--bins", "4", "--per-bin", "8", "--tolerance", "20%", *FEW)
    result = json.loads(do(*options, "--json"))
    assert (result["study"], result["kept"], result["tolerance"]) == (None, None, 0.2)
    assert (result["design"]["examples"], result["simulations"]) == (32, 20)
    assert sum(row["runs"] for row in result["planted"]) == 20
    # Power is stated for half as much again as is tolerated.
    out = do(*options)
    assert "step 30%" in out
    assert max(map(len, out.split("\n\n")[1].splitlines())) <= 100
    assert list(contextcliff_home.iterdir()) == []


def test_the_report_quotes_it_while_sample_tolerance_and_code_are_the_same(
    study: Path, contextcliff_home: Path
) -> None:
    file = contextcliff_home / "planned" / "calibration.json"
    before = do("calibrate", "planned", *FEW)
    assert "contextcliff prepare planned" in before
    assert "baseline: assumed" in before
    do("profile", "planned", "--yes")
    # What was simulated was not yet this sample.
    assert "By simulation" not in report(contextcliff_home)

    out = do("calibrate", "planned", *FEW)
    assert "the study's frozen sample" in out
    assert "estimated from 32 answers of reference-long" in out
    assert "quotes it" in out
    sentence = "By simulation of this design (20 runs; 4 bins x 8, 0/1 scores"
    # Nothing had to be measured, and yet the report is not the old one.
    assert sentence in do("profile", "planned")
    assert sentence in report(contextcliff_home)
    kept = json.loads(file.read_bytes())

    # Another design is shown and not kept.
    assert "Not kept" in do("calibrate", "planned", "--per-bin", "12", *FEW)
    assert "Not kept" in do("calibrate", "planned", "--tolerance", ".2", *FEW)
    assert json.loads(file.read_bytes()) == kept

    chosen, store = find_study("planned"), Store.default()
    sample = load_frozen(chosen, store)
    cliffs = read_cliffs(chosen, store, profiled_campaign(store, "planned"))

    def says(study: Study = chosen, n: int = 32) -> list[str]:
        return quoted(study, store, sample, [replace(of, n=n) for of in cliffs])

    assert says() == [line for line in says() if sentence in line] != []
    assert says(n=20) == []  # so few were measured that it is another design
    for name, value in (("tolerance", 0.2), ("versions", {}), ("design", {"per_bin": 8})):
        file.write_text(json.dumps({**kept, name: value}))
        assert says() == [], name
    file.write_text("not JSON")
    assert says() == []
    file.unlink()
    assert says() == []
    file.write_text(json.dumps(kept))
    assert says()
    study.write_text(STUDY.replace("resamples: 100", "resamples: 100, tolerance: 0.2"))
    assert says(find_study("planned")) == []


def test_more_examples_than_were_frozen_have_lengths_between(
    study: Path, contextcliff_home: Path
) -> None:
    do("prepare", "planned")
    chosen, store = find_study("planned"), Store.default()
    eight = study_plan(chosen, store, DesignOverrides())
    assert (eight.plan.examples, eight.own) == (32, True)
    two = study_plan(chosen, store, DesignOverrides(per_bin=2))
    assert (two.plan.examples, two.own) == (8, True)
    twenty = study_plan(chosen, store, DesignOverrides(per_bin=20))
    assert (twenty.plan.examples, twenty.own) == (80, False)
    assert twenty.plan.sample is not None
    assert eight.plan.sample is not None
    assert min(twenty.plan.sample[0]) == min(eight.plan.sample[0])
    assert max(twenty.plan.sample[0]) == max(eight.plan.sample[0])
    asked = study_plan(chosen, store, DesignOverrides(questions=(2, 4)))
    assert (asked.plan.sample, asked.own) == (None, False)


def test_a_pilot_tells_baseline_correlation_and_kind_of_scores() -> None:
    rng = np.random.default_rng(0)
    p = np.repeat(rng.beta(0.8 * 1.5, 0.2 * 1.5, 100), 4)  # correlation .4 around .8
    records = pd.DataFrame(
        {
            "model": "m",
            "document_id": np.repeat([f"d{i:03d}" for i in range(100)], 4),
            "example_id": [f"e{i:03d}" for i in range(400)],
            "length_tokens": np.repeat(np.arange(100, 200), 4),
            "score": (rng.random(400) < p).astype(float),
        }
    )
    nothing = pa.table({})
    manifest = Manifest({}, (), nothing, lambda: nothing)
    pilot = pilot_of(records, manifest, AnalysisSettings(), "2026-11-21")
    assert pilot is not None
    assert (pilot.examples, pilot.binary, pilot.models) == (400, True, ("m",))
    assert pilot.baseline == pytest.approx(0.8, abs=0.12)
    assert pilot.correlation == pytest.approx(0.4, abs=0.15)
    assert "100 documents" in pilot.correlation_words
    single = pilot_of(records.iloc[::4], manifest, AnalysisSettings(), "2026-11-21")
    assert single is not None
    assert single.correlation is None
    assert "assumed" in single.correlation_words
    unanswered = records.assign(score=None, failure="transport_error")
    assert pilot_of(unanswered, manifest, AnalysisSettings(), "2026-11-21") is None


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (("--questions", "0"), "--questions"),
        (("--questions", "5-2"), "--questions"),
        (("--tolerance", "much"), "--tolerance"),
        (("--tolerance", ".9"), "tolerance"),
        (("--baseline", "0"), "--baseline"),
        (("--correlation", "nan"), "--correlation"),
        (("nowhere",), "nowhere"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(wrong: tuple[str, ...], named: str) -> None:
    assert_one_sentence(call("calibrate", *wrong), named)
