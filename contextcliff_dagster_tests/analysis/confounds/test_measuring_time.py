"""Time that passes for length: order, bins measured apart, drift; and none of them by chance."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.confounds import length_time_correlation, time_warnings
from contextcliff_dagster.analysis.profile import ProfileContext, profile_model
from contextcliff_dagster.analysis.records import AnalysisSettings, clean_records
from contextcliff_dagster_tests.support.records.planted_curves import flat, plant, step
from contextcliff_dagster_tests.support.records.reports import page_of

SETTINGS = AnalysisSettings(permutations=199, resamples=100)
START = pd.Timestamp("2026-03-01 09:00", tz="UTC")


def timed(records: pd.DataFrame, order: np.ndarray) -> pd.DataFrame:
    """Answered one after the other, a second each: ``order`` has the row that came first, ..."""
    second = np.empty(len(order))
    second[order] = np.arange(len(order))
    return records.assign(finished_at=START + pd.to_timedelta(second, unit="s"))


def sentences(records: pd.DataFrame) -> list[str]:
    sample = clean_records(records, [])
    return time_warnings(sample, SETTINGS, length_time_correlation(sample))


def shuffled(seed: int, count: int = 200) -> np.ndarray:
    return np.random.default_rng((seed, 9)).permutation(count)


def test_answers_in_order_of_length_are_warned_of() -> None:
    records = plant(step(600, 0.9, 0.3), 0)
    by_length = np.argsort(records["length_tokens"].to_numpy(), kind="stable")
    (sentence,) = sentences(timed(records, by_length))
    assert "in order of length (rank correlation with time 1.00)" in sentence
    (sentence,) = sentences(timed(records, by_length[::-1]))
    assert "(rank correlation with time -1.00)" in sentence


def test_the_report_has_the_sentence() -> None:
    records = timed(plant(flat(0.7), 0), np.arange(200))
    cliffs = profile_model(records, [], SETTINGS, ProfileContext("m")).cliffs
    assert any("in order of length" in sentence for sentence in cliffs.warnings)
    assert cliffs.length_time_correlation > 0.9


def test_a_file_without_times_gets_no_warning_and_the_report_says_what_was_not_looked_at() -> None:
    records = plant(flat(0.7), 0).sort_values("length_tokens")
    without = profile_model(records, [], SETTINGS, ProfileContext("m")).cliffs
    assert without.length_time_correlation is None
    assert not any("order" in sentence for sentence in without.warnings)
    assert "their times are unknown" in page_of([without])
    shuffled_times = timed(records, shuffled(0))
    known = profile_model(shuffled_times, [], SETTINGS, ProfileContext("m")).cliffs
    assert abs(known.length_time_correlation) < 0.3
    assert "their times are unknown" not in page_of([known])


def test_a_cliff_in_random_order_is_no_drift() -> None:
    records = plant(step(600, 0.9, 0.3), 0)
    assert sentences(timed(records, shuffled(0))) == []


@pytest.mark.parametrize("seed", range(5))
def test_scores_that_change_over_the_run_are_warned_of(seed: int) -> None:
    records = timed(plant(flat(0.9), seed), shuffled(seed))
    late = (records["finished_at"] - START).dt.total_seconds() >= 120
    rng = np.random.default_rng(seed)
    records.loc[late, "score"] *= (rng.random(int(late.sum())) < 0.5).astype(float)
    (sentence,) = sentences(records)
    assert sentence.startswith("Scores changed over the run at equal length (p = 0.005): mean 0.")
    minute = int(sentence.split(" until 2026-03-01 09:")[1][:2])
    assert 1 <= minute <= 2


def test_without_a_change_there_is_hardly_ever_a_warning() -> None:
    found = [sentences(timed(plant(flat(0.7), seed), shuffled(seed))) for seed in range(100)]
    assert sum(map(bool, found)) <= 4  # 1% promised: more than 4 of 100 have a chance of .003


def test_bins_measured_later_are_named() -> None:
    records = plant(flat(0.7), 1)
    later = records["length_tokens"].rank(pct=True).between(0.4, 0.6).to_numpy()
    order = shuffled(1)
    order = np.concatenate([order[~later[order]], order[later[order]]])
    first, *_ = sentences(timed(records, order))
    assert first == (
        "Measured at another time than the other lengths: b04, b05. A difference may be one of "
        "time."
    )


def test_documents_of_one_length_have_no_order() -> None:
    records = timed(plant(flat(0.7), 0), shuffled(0)).assign(length_tokens=500)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sentences(records) == []


@pytest.mark.parametrize("times", ["none", "one moment", "unreadable", "few"])
def test_where_times_are_unknown_nothing_is_claimed(times: str) -> None:
    records = plant(flat(0.7), 0)
    if times == "one moment":
        records["finished_at"] = START
    elif times == "unreadable":
        records["finished_at"] = "yesterday"
    elif times == "few":
        records = timed(records, np.arange(200))
        records.loc[10:, "finished_at"] = pd.NaT
    assert sentences(records) == []


def test_a_hundred_thousand_answers_take_no_more_memory_than_a_thousand() -> None:
    count = 100_000
    rng = np.random.default_rng(0)
    records = pd.DataFrame(
        {
            "document_id": [f"d{number}" for number in range(count)],
            "length_tokens": rng.integers(100, 9_000, count),
            "score": (rng.random(count) < 0.7).astype(float),
        }
    )
    assert sentences(timed(records, np.arange(count))) == []
