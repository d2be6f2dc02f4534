"""The verdict and the cap on curves of known truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.profile import AnalysisSettings
from contextcliff_dagster_tests.support.records.planted_curves import flat, plant, ramp, shelf, step
from contextcliff_dagster_tests.support.records.profiles import QUICK, cliffs_of


@pytest.mark.parametrize("seed", range(3))
def test_curves_a_factor_four_apart_get_caps_below_their_truth_and_in_order(seed: int) -> None:
    caps = []
    for scale in (1.0, 4.0):
        result = cliffs_of(plant(shelf(scale), seed))
        assert result.verdict in ("cliff", "decline", "gradual_decline")
        assert 0.5 * 391 * scale < result.safe_cap_tokens <= 391 * scale
        caps.append(result.safe_cap_tokens)
    assert caps[0] < caps[1]


def test_a_slow_ramp_gets_a_short_cap_rather_than_an_unsafe_one() -> None:
    truth = 512 * (2.25 ** (np.log(0.3 / 0.7) / np.log(0.98 / 0.1 - 1)))
    for seed in range(3):
        cap = cliffs_of(plant(ramp(512), seed)).safe_cap_tokens
        assert 0.25 * truth < cap <= truth


def test_shuffled_lengths_show_no_cliff() -> None:
    rng = np.random.default_rng(0)
    verdicts = []
    for seed in range(6):
        records = plant(ramp(512), seed)
        records["score"] = rng.permutation(records["score"])
        verdicts.append(cliffs_of(records).verdict)
    assert verdicts.count("stable") >= 5


@pytest.mark.parametrize("level", [0.55, 0.95])
@pytest.mark.parametrize("graded", [False, True])
def test_a_flat_curve_is_stable(level: float, graded: bool) -> None:
    verdicts = [cliffs_of(plant(flat(level), s, graded=graded)).verdict for s in range(4)]
    assert verdicts.count("stable") >= 3


def test_a_step_is_a_cliff_located_where_it_was_planted() -> None:
    result = cliffs_of(plant(step(1_000, 0.8, 0.2), 3, per_bin=40))
    assert result.verdict == "cliff"
    assert result.cliff.ci_low <= 1_000
    assert result.cliff.ci_high >= 0.98 * 1_000
    assert result.cliff.drop == pytest.approx(0.75, abs=0.15)
    assert result.safe_cap_tokens < 1_000
    assert result.critical_threshold.tokens == result.cliff.location_tokens
    share = result.cliff.location_tokens / 8_192
    assert result.critical_threshold.share == pytest.approx(share)


def test_a_straight_slope_is_a_gradual_decline_and_a_step_of_any_depth_a_cliff() -> None:
    def slope(tokens: np.ndarray) -> np.ndarray:
        return 0.9 - 0.6 * (np.log(tokens) - np.log(40)) / np.log(6_000 / 40)

    curves = {"gradual_decline": slope, "cliff": step(700, 0.9, 0.6)}
    for verdict, curve in curves.items():
        found = [cliffs_of(plant(curve, seed, per_bin=40)).verdict for seed in range(8)]
        assert found.count(verdict) >= 7


def test_a_drop_inside_the_baseline_region_has_no_interval() -> None:
    early, later = (
        [cliffs_of(plant(step(at, 0.9, 0.25), s)).cliff for s in range(6)] for at in (70, 300)
    )
    assert all(cliff.ci_high is None for cliff in early if cliff is not None)
    assert sum(cliff is not None for cliff in early) >= 5
    assert all(cliff.ci_low <= 300 <= cliff.ci_high for cliff in later)


def test_a_dip_that_recovers_is_a_dip_and_bounds_the_cap() -> None:
    def dip(tokens: np.ndarray) -> np.ndarray:
        return np.where((tokens > 400) & (tokens < 1_200), 0.2, 0.9)

    result = cliffs_of(plant(dip, 2, per_bin=40))
    assert result.verdict == "dip"
    assert result.cliff is not None
    assert (result.safe_cap_tokens or 0) < result.cliff.ci_low <= 401
    assert [z.name for z in result.zones][-1] == "not_shown"


def test_without_the_assumption_the_cap_is_shorter_and_holds_for_narrow_dips() -> None:
    def dip(tokens: np.ndarray) -> np.ndarray:
        return np.where((tokens > 400) & (tokens < 650), 0.45, 0.95)

    unsafe = {"falling": 0, "any": 0}
    for seed in range(8):
        records = plant(dip, seed)
        usual = cliffs_of(records)
        anyhow = cliffs_of(records, replace(QUICK, assumption="any"))
        assert anyhow.safe_cap_tokens == usual.recovery.cap_tokens
        assert (anyhow.safe_cap_tokens or 0) <= (usual.safe_cap_tokens or 0)
        assert anyhow.recovery.assumption == "any"
        unsafe["falling"] += (usual.safe_cap_tokens or 0) > 400
        unsafe["any"] += (anyhow.safe_cap_tokens or 0) > 400
    assert unsafe["any"] <= 1 < unsafe["falling"]


def test_flat_scores_exclude_deep_dips_and_few_scores_only_deeper_ones() -> None:
    few, many = (cliffs_of(plant(flat(0.9), 3, per_bin=n)).recovery for n in (10, 80))
    assert many.excluded_drop <= 0.3
    assert few.excluded_drop > many.excluded_drop
    assert many.share == 0.1


def test_a_cliff_of_less_than_the_tolerance_says_so() -> None:
    found = [cliffs_of(plant(step(700, 0.9, 0.675), s, per_bin=60)) for s in range(8)]
    cliffs = [result for result in found if result.verdict == "cliff"]
    assert len(cliffs) >= 4
    for result in cliffs:
        assert result.verdict_note.startswith("A drop of 30% is not certain: ")


def test_a_model_at_the_floor_has_no_safe_length_and_a_reason() -> None:
    result = cliffs_of(plant(flat(0.03), 1))
    assert result.verdict == "floor"
    assert result.safe_cap_tokens is None
    assert "below 0.10" in result.safe_cap_reason


def test_a_rising_curve_is_stable_with_a_warning() -> None:
    result = cliffs_of(plant(step(500, 0.3, 0.8), 1))
    assert result.verdict == "stable"
    assert "rises with length" in result.verdict_note


def test_a_loss_within_the_tolerance_is_stable() -> None:
    result = cliffs_of(plant(step(500, 0.95, 0.85), 1, per_bin=100))
    assert result.verdict == "stable"
    assert "drop with length is visible" in result.verdict_note


def test_a_tighter_tolerance_or_more_confidence_never_lengthens_the_cap() -> None:
    records = plant(ramp(2_048), 7)
    caps = [c.safe_cap_tokens or 0 for c in cliffs_of(records).caps_by_tolerance]
    assert caps == sorted(caps)
    sure = cliffs_of(records, AnalysisSettings(confidence=0.99, resamples=200, permutations=199))
    assert sure.safe_cap_tokens <= cliffs_of(records).safe_cap_tokens


def test_more_data_certifies_more_of_a_flat_curve() -> None:
    caps = [cliffs_of(plant(flat(0.95), 5, per_bin=n)).safe_cap_tokens for n in (10, 50)]
    assert caps[0] < caps[1]


@pytest.mark.parametrize("records", [4, 29])
def test_too_few_records_support_no_verdict(records: int) -> None:
    result = cliffs_of(plant(ramp(512), 1).iloc[:records])
    assert result.verdict == "insufficient_data"
    assert result.safe_cap_tokens is None
    assert "30" in result.safe_cap_reason


def test_one_length_supports_no_verdict() -> None:
    records = plant(flat(0.5), 1).assign(length_tokens=700)
    result = cliffs_of(records)
    assert result.verdict == "insufficient_data"
    assert "different lengths" in result.safe_cap_reason


def test_many_questions_on_few_documents_support_no_verdict() -> None:
    records = plant(ramp(512), 1, questions=20)
    assert records["document_id"].nunique() == 10
    assert cliffs_of(records).verdict == "insufficient_data"


def test_perfect_and_hopeless_scores_are_handled() -> None:
    perfect = cliffs_of(plant(flat(1.0), 1))
    assert perfect.verdict == "stable"
    assert perfect.safe_cap_tokens > 2_500
    assert cliffs_of(plant(flat(0.0), 1)).verdict == "floor"
    half = cliffs_of(plant(flat(0.5), 1).assign(score=0.5))
    assert half.verdict == "stable"


def test_the_cap_in_prompt_tokens_adds_the_scaffold() -> None:
    result = cliffs_of(plant(ramp(2_048), 3))
    assert result.cap_prompt_tokens == pytest.approx(result.safe_cap_tokens + 11, abs=1)


def test_replicates_of_an_example_do_not_count_as_examples() -> None:
    once = plant(ramp(512), 4)
    again = pd.concat([once.assign(replicate=r) for r in range(3)])
    a, b = cliffs_of(once), cliffs_of(again)
    assert b.n == a.n == 200
    for key in ("verdict", "safe_cap_tokens", "cliff", "curve", "baseline", "zones"):
        assert getattr(a, key) == getattr(b, key)


def test_confidence_and_seed_are_recorded() -> None:
    result = cliffs_of(plant(ramp(512), 4))
    assert (result.confidence, result.tolerance) == (QUICK.confidence, QUICK.tolerance)
    assert result.provenance["seeds"]["analysis"] == QUICK.seed


def test_without_a_loss_no_curve_falls_at_its_end() -> None:
    # Three wrong answers at the longest lengths: the likeliest member is a step down to nothing.
    records = plant(flat(0.5), 3)
    longest = records["length_tokens"].nlargest(3).index
    records.loc[longest, "score"] = 0.0
    result = cliffs_of(records)
    assert result.verdict == "stable"
    means = [point.mean for point in result.curve]
    assert min(means) >= 0.9 * max(means)


def test_a_sharp_loss_lies_between_the_scored_lengths_around_it() -> None:
    held = []
    for seed in range(8):
        records = plant(step(801, 0.95, 0.2), seed, per_bin=40, graded=True)
        lengths = np.sort(records["length_tokens"])
        cliff = cliffs_of(records).cliff
        before, after = lengths[lengths < 801].max(), lengths[lengths >= 801].min()
        held.append(cliff.ci_low <= before and after <= cliff.ci_high)
        assert 0.95 * 801 <= cliff.location_tokens <= 1.05 * 801
    assert sum(held) >= 7


def test_a_baseline_that_reaches_the_longest_length_supports_no_verdict() -> None:
    records = plant(flat(0.7), 0)
    records["length_tokens"] = np.where(np.arange(len(records)) < 40, 100, 2_000)
    assert cliffs_of(records).verdict == "stable"
    quarter = cliffs_of(records, replace(QUICK, baseline_share=0.25))
    assert quarter.verdict == "insufficient_data"
    assert "the longest length" in quarter.safe_cap_reason
    thorough = cliffs_of(records, replace(QUICK, second_opinions=True))
    assert "insufficient_data" in {row.verdict for row in thorough.sensitivity}


def test_examples_at_nearly_one_length_are_not_called_too_few() -> None:
    records = plant(flat(0.9), 0)
    records["length_tokens"] = np.where(np.arange(len(records)) < 195, 4_000, 8_000)
    result = cliffs_of(records)
    assert result.verdict == "insufficient_data"
    assert "Nearly all examples have one length" in result.safe_cap_reason
