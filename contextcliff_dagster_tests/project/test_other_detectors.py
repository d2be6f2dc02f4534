"""Other detectors: each sees a drop where its rule says, and none where nothing falls."""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.profile import profile_model
from contextcliff_dagster.analysis.records import Documents, clean_records
from contextcliff_dagster.contracts import Verdict
from contextcliff_dagster.contracts.results.cliffs import Baseline, Cliff, Detector
from contextcliff_dagster.contracts.results.json_form import BinResult
from contextcliff_dagster_tests.support.paths import CHECKOUT
from contextcliff_dagster_tests.support.records.planted_curves import bins_of, flat, plant, step
from contextcliff_dagster_tests.support.records.profiles import CONTEXT, QUICK, bin_of

_spec = spec_from_file_location("other_detectors", CHECKOUT / "benchmarks" / "other_detectors.py")
assert _spec
assert _spec.loader
_script = module_from_spec(_spec)
sys.modules[_spec.name] = _script
_spec.loader.exec_module(_script)
main, second_opinions = _script.main, _script.second_opinions

NAMES = (
    "gradient", "second_derivative", "binned_statistics", "percentile_threshold",
    "sliding_window", "ruptures",
)  # fmt: skip
BASELINE = Baseline(0.8, None, None, 15, 140)


CLIFF = Cliff(
    location_tokens=2_500,
    ci_low=2_000,
    ci_high=3_300,
    drop=0.6,
    drop_ci_low=0.5,
    drop_ci_high=0.7,
    p_value=0.001,
)


def exact(means: list[float]) -> tuple[Documents, list[BinResult]]:
    """Ten documents a bin, all with the bin's mean; bins double in length from 100 tokens on."""
    lengths = np.concatenate([100 * 2**k + 4 * 2**k * np.arange(10) for k in range(len(means))])
    scores = np.repeat(means, 10)
    rows = [
        bin_of(
            median_tokens=100 * 2**k,
            edge_low=90 * 2**k,
            mean=mean,
            ci_low=mean - 0.05,
            ci_high=mean + 0.05,
        )
        for k, mean in enumerate(means)
    ]
    return Documents(lengths, np.ones(len(lengths)), scores, False), rows


def opinions(means: list[float], cliff: Cliff | None, **how: Any) -> dict[str, Any]:
    documents, rows = exact(means)
    verdict = how.get("verdict", Verdict.CLIFF if cliff else Verdict.STABLE)
    places = second_opinions(documents, rows, BASELINE, 0.3, verdict, cliff)
    assert tuple(d.name for d in places) == NAMES
    return {d.name: (d.location_tokens, d.agrees) for d in places}


def test_every_detector_places_a_clean_step_by_its_own_rule() -> None:
    places = opinions([0.8] * 5 + [0.3] * 4, CLIFF)
    assert places["gradient"] == (round(np.sqrt(1_600 * 3_200)), True)
    assert places["second_derivative"] == (800, False)  # smoothing bends the bin before
    assert places["binned_statistics"] == (90 * 32, True)
    assert places["percentile_threshold"] == (3_200, True)
    assert places["ruptures"][0] == pytest.approx(np.sqrt((1_600 + 64 * 9) * 3_200), abs=1)
    place, agrees = places["sliding_window"]
    assert 2_000 <= place <= 3_400
    assert agrees == (place <= 3_300)


def test_a_flat_curve_gives_none_a_place_and_all_agree_with_stable() -> None:
    assert opinions([0.8] * 9, None) == dict.fromkeys(NAMES, (None, True))


def test_a_place_where_the_verdict_is_stable_is_disagreement() -> None:
    places = opinions([0.8] * 5 + [0.3] * 4, None)
    assert not any(agrees for _, agrees in places.values())


def test_nothing_to_agree_with_is_null() -> None:
    for verdict in (Verdict.FLOOR, Verdict.INSUFFICIENT_DATA):
        places = opinions([0.8] * 5 + [0.3] * 4, None, verdict=verdict)
        assert {agrees for _, agrees in places.values()} == {None}
    few = opinions([0.8, 0.3], None)
    assert few["gradient"] == (None, None)


def test_a_small_loss_is_below_every_rule() -> None:
    places = opinions([0.8] * 5 + [0.72] * 4, None)
    assert {place for place, _ in places.values()} == {None}


def seen(records: pd.DataFrame) -> list[Detector]:
    """What the detectors say of the records, next to the verdict on them."""
    bins = bins_of(records)
    cliffs = profile_model(records, bins, QUICK, CONTEXT).cliffs
    documents = clean_records(records, bins).documents()
    verdict, cliff = cliffs.verdict, cliffs.cliff
    return second_opinions(documents, cliffs.bins, cliffs.baseline, QUICK.tolerance, verdict, cliff)


def test_most_see_a_planted_cliff() -> None:
    agree = dict.fromkeys(NAMES, 0)
    for seed in range(4):
        for found in seen(plant(step(1_000, 0.8, 0.25), seed, graded=True)):
            at = found.location_tokens
            agree[found.name] += at is not None and 600 < at < 1_700
    assert agree["ruptures"] == 4
    assert sum(count >= 3 for count in agree.values()) >= 4
    assert sum(bool(d.agrees) for d in seen(plant(flat(0.8), 1, graded=True))) >= 5


def test_they_are_printed_for_a_file_of_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scores.csv"
    records = plant(step(1_000, 0.8, 0.25), 0, graded=True)
    records[["length_tokens", "score", "document_id"]].to_csv(file, index=False)
    assert main([str(file)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["verdict"] == "cliff"
    assert [found["name"] for found in printed["found"]] == list(NAMES)
    assert main([str(tmp_path / "none.csv")]) == 2
    assert "none.csv" in capsys.readouterr().err
