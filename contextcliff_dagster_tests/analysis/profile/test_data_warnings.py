"""What in the data limits a result is said, and nothing is said of ordinary data."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.profile import profile_model
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.reporting.terminal import risk_report
from contextcliff_dagster_tests.support.records.planted_curves import (
    bins_of,
    flat,
    plant,
    ramp,
    step,
)
from contextcliff_dagster_tests.support.records.profiles import CONTEXT, cliffs_of

WORDS = ("baseline region already", "a factor of", "was scored: a drop there", "copies")


def warned(records: pd.DataFrame) -> list[str]:
    text = " ".join(cliffs_of(records).warnings)
    return [words for words in WORDS if words in text]


@pytest.mark.parametrize("graded", [False, True])
def test_ordinary_samples_get_none(graded: bool) -> None:
    for seed, curve in enumerate((flat(0.7), flat(0.95), ramp(800), step(1_000, 0.9, 0.4))):
        assert warned(plant(curve, seed, graded=graded)) == []


def test_a_drop_within_the_baseline_region_is_no_silent_stability() -> None:
    found = [warned(plant(step(60, 0.95, 0.45), seed)) for seed in range(6)]
    assert sum(words == [WORDS[0]] for words in found) >= 4


def test_a_drop_is_visible_or_it_is_not() -> None:
    cliffs = cliffs_of(plant(step(80, 0.8, 0.58), 6, per_bin=25))
    assert cliffs.safe_cap_tokens is None
    assert "A drop with length is visible" in cliffs.verdict_note
    assert "No drop is visible" not in " ".join(cliffs.warnings)


def test_a_narrow_range_is_named() -> None:
    records = plant(flat(0.9), 1)
    records["length_tokens"] = np.linspace(2_000, 5_000, len(records)).astype(int)
    assert warned(records) == [WORDS[1]]


def test_a_gap_is_named_and_holds_no_cap() -> None:
    records = plant(flat(0.95), 1)
    records["length_tokens"] = np.where(
        records["length_tokens"] > 1_000, 30 * records["length_tokens"], records["length_tokens"]
    )
    assert warned(records) == [WORDS[2]]
    cap = cliffs_of(records).safe_cap_tokens
    assert cap in set(records["length_tokens"])


@pytest.mark.parametrize("times", [2, 5])
def test_documents_that_come_several_times_are_named(times: int) -> None:
    once = plant(flat(0.7), 2)
    copies = [once.assign(document_id=once["document_id"] + f"-{i}") for i in range(times)]
    assert WORDS[3] in warned(pd.concat(copies, ignore_index=True))


def test_lengths_that_are_rounded_are_no_copies() -> None:
    records = plant(flat(0.7), 2, per_bin=60)
    records["length_tokens"] = (records["length_tokens"] // 100 + 1) * 100
    assert warned(records) == []


def refusing(seed: int, others: float) -> pd.DataFrame:
    """Beyond 1,000 tokens, wrong answers are refusals but for a share of ``others``."""
    records = plant(step(1_000, 0.85, 0.3), seed)
    wrong = records["score"].eq(0)
    rest = np.random.default_rng(seed).random(len(records)) < others
    late = records["length_tokens"].gt(1_000) & ~rest
    records["failure"] = np.where(wrong, np.where(late, "refusal", "wrong_evidence"), None)
    return records


def test_refusals_in_the_place_of_wrong_answers_are_named() -> None:
    for seed in range(4):
        text = " ".join(cliffs_of(refusing(seed, others=0.0)).warnings)
        assert "Refusals and empty answers rise with length, from 0% of" in text
        assert "willingness" in text


def test_a_model_that_also_errs_more_is_not_merely_unwilling() -> None:
    for seed in range(4):
        assert "willingness" not in " ".join(cliffs_of(refusing(seed, others=0.6)).warnings)


def test_refusals_at_every_length_alike_are_not_named() -> None:
    for seed in range(4):
        records = plant(flat(0.7), seed)
        records["failure"] = np.where(records["score"].eq(0), "refusal", None)
        assert "willingness" not in " ".join(cliffs_of(records).warnings)


def test_zones_begin_where_measuring_did() -> None:
    records = plant(flat(0.9), 1)
    records["length_tokens"] += 5_000
    assert cliffs_of(records).zones[0].from_tokens == records["length_tokens"].min()


def test_a_score_that_judges_the_manner_of_speaking_is_in_doubt_above_the_cap() -> None:
    records = plant(step(1_000, 0.95, 0.3), 2)
    contained = records["score"].to_numpy()
    wordy = records.assign(em=0.0, f1=0.25, contained=contained, score=0.25, failed=True)
    context = replace(CONTEXT, primary="f1", study="fees")
    settings = AnalysisSettings(resamples=100, permutations=99)
    doubted = profile_model(wordy, bins_of(wordy), settings, context).cliffs
    assert f"{int(contained.sum())} of 200 wrong answers contain an accepted one" in str(
        doubted.score_doubt
    )
    assert "contextcliff report fees --score contained" in str(doubted.score_doubt)
    curve = re.search(
        r"it is 0\.25(?:, 0\.25){4}, containment ([\d., ]+)\.", str(doubted.score_doubt)
    )
    assert curve
    shares = [float(share) for share in curve[1].split(", ")]
    assert len(shares) == 5
    assert shares[0] > 0.85
    assert shares[-1] < 0.45
    lines = risk_report(doubted).splitlines()
    above = next(at for at, line in enumerate(lines) if line.startswith("Safe Cap"))
    assert doubted.score_doubt in lines[:above]
    terse = wordy.assign(em=contained, f1=contained, score=contained, failed=contained < 1)
    assert profile_model(terse, bins_of(terse), settings, context).cliffs.score_doubt is None
