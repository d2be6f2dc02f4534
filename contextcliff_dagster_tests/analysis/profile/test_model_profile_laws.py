"""Laws of the analysis, for any records at all."""

from __future__ import annotations

import itertools
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from contextcliff_dagster.analysis.profile import AnalysisSettings, profile_model
from contextcliff_dagster.analysis.records import decile_bins
from contextcliff_dagster.contracts import LengthBin
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster_tests.support.examples import examples
from contextcliff_dagster_tests.support.records.profiles import CONTEXT, assert_conforms, changed

FAST = AnalysisSettings(resamples=100, permutations=99, second_opinions=False)
THOROUGH = AnalysisSettings(resamples=100, permutations=99)
DROPS = ("cliff", "dip", "gradual_decline", "decline")
UNSCORED = ("context_overflow", "transport_error", "invalid_truncated")
PATIENT = [Phase.explicit, Phase.reuse, Phase.generate]  # shrinking a profile takes minutes
patient = settings(phases=PATIENT)
simple = settings(examples(12), phases=PATIENT)  # laws that few shapes of data could break


@st.composite
def record_sets(draw: st.DrawFn, at_most: int = 120) -> pd.DataFrame:
    """Anything from nothing to a study: ties, clusters, replicates, holes, graded or 0/1 scores."""
    n = draw(st.integers(0, at_most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    graded, documents = draw(st.booleans()), draw(st.integers(1, 120))
    longest = draw(st.sampled_from([1, 3, 50, 5_000, 1_000_000]))
    by_document = rng.integers(0 if longest > 1 else 1, longest + 1, documents)
    document = rng.integers(0, documents, n)
    level = draw(st.sampled_from([0.0, 0.05, 0.5, 0.95, 1.0]))
    scores = rng.random(n) if graded else (rng.random(n) < level).astype(float)
    frame = pd.DataFrame(
        {
            "length_tokens": by_document[document],
            "score": scores,
            "document_id": [f"d{d}" for d in document],
            "example_id": [f"e{i}" for i in rng.integers(0, max(n, 1) * 2, n)],
            "replicate": rng.integers(0, 3, n),
            "failure": None,
            "ttft_ms": rng.exponential(100, n),
        }
    )
    if draw(st.booleans()) and n:
        lost = rng.random(n) < 0.2
        frame["failure"] = np.where(lost, rng.choice(UNSCORED, n), None)
        frame.loc[lost, ["score", "ttft_ms"]] = np.nan
    if draw(st.booleans()):
        frame.loc[rng.random(n) < 0.1, "score"] = np.nan
    dropped = draw(st.sets(st.sampled_from(["document_id", "example_id", "replicate", "ttft_ms"])))
    return frame.drop(columns=list(dropped))


def analysed(
    records: pd.DataFrame,
    bins: list[LengthBin] | None = None,
    settings: AnalysisSettings = FAST,
) -> Cliffs:
    profile = profile_model(records, bins or [], settings, CONTEXT)
    assert_conforms(profile)
    return profile.cliffs


@patient
@given(record_sets())
def test_any_records_give_a_result_that_meets_the_contract(records: pd.DataFrame) -> None:
    result = analysed(records)
    if result.safe_cap_tokens is None:
        assert result.safe_cap_reason
    else:
        scored = records[records["score"].notna()]
        assert result.safe_cap_tokens <= max(int(scored["length_tokens"].max()), 1)
        assert result.verdict not in ("floor", "insufficient_data")
    assert (result.cliff is not None) == (result.verdict in DROPS)
    for row in [*result.bins, *result.curve, result.baseline]:
        if row.mean is not None and row.ci_low is not None:
            assert row.ci_low - 1e-9 <= row.mean <= row.ci_high + 1e-9
    assert sum(b.n for b in result.bins) == result.n


@settings(examples(8), phases=PATIENT)
@given(record_sets())
def test_second_opinions_of_any_records_meet_the_contract_and_change_no_verdict(
    records: pd.DataFrame,
) -> None:
    plain, thorough = analysed(records), analysed(records, settings=THOROUGH)
    for key in ("verdict", "safe_cap_tokens", "cliff", "curve", "bins", "warnings"):
        assert getattr(thorough, key) == getattr(plain, key)
    rows = thorough.sensitivity
    assert bool(rows) == bool(plain.curve)
    longest = max((b.max_tokens or 0 for b in plain.bins), default=0)
    assert all((row.safe_cap_tokens or 0) <= max(longest, 1) for row in rows)


@simple
@given(record_sets())
def test_zones_are_half_open_and_gap_free(records: pd.DataFrame) -> None:
    result = analysed(records)
    zones = result.zones
    if not zones:
        assert result.verdict == "insufficient_data"
        return
    assert zones[0].from_tokens == min(b.min_tokens for b in result.bins if b.n)
    for before, after in itertools.pairwise(zones):
        assert before.to_tokens == after.from_tokens
    assert all(z.from_tokens < z.to_tokens for z in zones)
    assert zones[-1].to_tokens == max(b.max_tokens for b in result.bins if b.n) + 1


@simple
@given(record_sets(), st.integers(0, 2**32 - 1))
def test_the_order_of_the_records_does_not_matter(records: pd.DataFrame, seed: int) -> None:
    shuffled = records.sample(frac=1.0, random_state=seed)
    assert analysed(shuffled) == analysed(records)


_SPREADS = ("sd", "variance", "rolling_variance")
_COUNTS_AND_SPREADS = ("missing", "delivered_mean", "failures", *_SPREADS)


def _missing(result: Cliffs) -> int:
    return sum(asdict(result.missing).values())


@simple
@given(record_sets(at_most=90), st.integers(1, 30))
def test_calls_without_an_answer_change_no_number_but_the_missing_and_a_cap_they_limit(
    records: pd.DataFrame, extra: int
) -> None:
    scored = records.loc[records["score"].notna(), "length_tokens"]
    bins = decile_bins(scored.clip(lower=1).to_numpy(np.int64)) if len(scored) else []
    lost = pd.DataFrame(
        {
            "length_tokens": np.linspace(1, 2_000_000, extra).astype(int),
            "score": np.nan,
            "failure": UNSCORED[extra % 3],
        }
    )
    before, after = analysed(records, bins), analysed(pd.concat([records, lost]), bins)
    if before.missing_by_length is None and after.missing_by_length is None:
        assert after.safe_cap_tokens == before.safe_cap_tokens
        assert after.zones == before.zones
    for key in ("verdict", "cliff", "curve", "baseline", "n", "rules"):
        assert getattr(after, key) == getattr(before, key)
    for old, new in zip(before.bins, after.bins, strict=True):
        assert changed(new, old) <= {*_COUNTS_AND_SPREADS}
        # Sums over rows of one length depend on their order in the last digit.
        for spread in _SPREADS:
            assert getattr(new, spread) == pytest.approx(getattr(old, spread))
    assert _missing(after) == _missing(before) + extra
