"""What more data would buy: what is expected of a larger n is what a larger n gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contextcliff_dagster.analysis.cliff import Conclusion, Finding, baseline_of, conclude
from contextcliff_dagster.analysis.profile import AnalysisSettings, profile_model
from contextcliff_dagster.analysis.records import Documents, clean_records
from contextcliff_dagster.analysis.sample_size import _Expected, required_sample_size
from contextcliff_dagster.contracts.results import Cliffs
from contextcliff_dagster.contracts.results.cliffs import Certify
from contextcliff_dagster.reporting.length_profile.scope import more_data_sections
from contextcliff_dagster.reporting.markdown import as_markdown
from contextcliff_dagster.reporting.wording import certify_sentence
from contextcliff_dagster_tests.support.records.planted_curves import (
    Curve,
    bins_of,
    flat,
    plant,
    ramp,
    step,
)
from contextcliff_dagster_tests.support.records.profiles import CONTEXT, assert_conforms, cliffs_of

SETTINGS = AnalysisSettings(resamples=100, permutations=99)


def concluded(documents: Documents) -> Conclusion:
    return conclude(documents, SETTINGS, baseline_of(documents, SETTINGS))


def certified(curve: Curve, seed: int, per_bin: int = 20, **how: Any) -> Certify:
    records = plant(curve, seed, per_bin=per_bin).assign(**how)
    sample = clean_records(records, bins_of(records))
    documents = sample.documents()
    finding = concluded(documents).finding
    return required_sample_size(sample, documents, finding, SETTINGS)


def expected(curve: Curve, seed: int, per_bin: int = 20) -> tuple[_Expected, Finding]:
    records = plant(curve, seed, per_bin=per_bin)
    documents = clean_records(records, []).documents()
    finding = concluded(documents).finding
    return _Expected(documents, finding, SETTINGS), finding


def test_the_examples_that_are_needed_certify_nine_tenths_of_the_lengths() -> None:
    further = [certified(flat(0.5), seed).further.examples for seed in range(3)]
    assert all(examples is not None for examples in further)
    per_bin = 20 + round(np.median(further) / 10)
    reached = []
    for seed in range(4):
        records = plant(flat(0.5), 100 + seed, per_bin=min(per_bin, 300))
        documents = clean_records(records, []).documents()
        many = 1 + (per_bin - 1) // 300  # the generator's pool ends at 300 a bin
        sums = documents.__class__(
            documents.length_tokens, many * documents.n, many * documents.s, True
        )
        cap = concluded(sums).cap.tokens
        reached.append((cap or 0) >= np.quantile(documents.length_tokens, 0.9))
    assert sum(reached) >= 3


def test_the_expected_cap_is_near_the_median_of_data_sets_of_that_size() -> None:
    curve = step(1_500, 0.8, 0.3)
    predicted = [expected(curve, seed)[0] for seed in range(1, 5)]
    for times in (1.0, 3.0):
        caps = []
        for seed in range(9):
            records = plant(curve, 50 + seed, per_bin=int(20 * times))
            documents = clean_records(records, []).documents()
            caps.append(concluded(documents).cap.tokens or 0)
        middle = np.median([one.median_cap(times) or 0 for one in predicted])
        # A fitted step is less sharp than the true one, and what it lets expect somewhat short.
        assert 0.6 * np.median(caps) <= middle <= 1.1 * np.median(caps)


def test_where_the_curve_itself_falls_no_n_is_named() -> None:
    estimate = certified(ramp(800), 1)
    assert estimate.further.examples is None
    assert "More data cannot lift the cap past" in estimate.reason
    assert estimate.assumes == "fitted"


def test_flat_data_are_taken_for_flat_and_a_cliff_is_not() -> None:
    assert certified(flat(0.8), 2).assumes == "flat"
    assert certified(step(1_500, 0.8, 0.3), 2).assumes == "fitted"


def test_a_null_cap_comes_with_the_n_for_one() -> None:
    for seed in range(8, 20):
        records = plant(flat(0.45), seed, per_bin=5)
        profile = profile_model(records, bins_of(records), SETTINGS, CONTEXT)
        assert_conforms(profile)
        cliffs = profile.cliffs
        if cliffs.safe_cap_tokens is None and cliffs.verdict == "stable":
            break
    else:
        pytest.fail("no data set without a cap")
    assert cliffs.certify.n_for_a_cap > 5
    assert "per bin would give a cap" in str(certify_sentence(cliffs))


def test_budgets_are_examples_at_their_measured_cost() -> None:
    estimate = certified(flat(0.9), 1, cost_usd=0.02, prompt_tokens=2_000)
    tokens, usd = sorted(estimate.more, key=lambda m: m.usd == 10.0)
    assert (tokens.tokens, tokens.examples) == (1_000_000, 500)
    assert tokens.usd == pytest.approx(10.0)
    assert (usd.tokens, usd.examples, usd.usd) == (1_000_000, 500, 10.0)
    assert tokens.per_bin == 50
    cheap, dear = certified(flat(0.9), 1, cost_usd=0.002, prompt_tokens=2_000).more
    assert cheap.examples < dear.examples
    assert 0 < (cheap.expected_cap_tokens or 0) <= (dear.expected_cap_tokens or 0)
    (only,) = certified(flat(0.9), 1, cost_usd=0.0).more
    assert only.usd is None


def test_a_cap_at_the_90th_percentile_has_its_examples_documents_tokens_and_price() -> None:
    further = certified(flat(0.5), 4, 10, cost_usd=0.02, prompt_tokens=2_000).further
    assert further.goal == "p90_cap"
    assert further.examples > 0
    assert further.documents == further.examples
    assert further.tokens == 2_000 * further.examples
    assert further.usd == pytest.approx(0.02 * further.examples)
    lengths = np.sort(plant(flat(0.5), 4, per_bin=10)["length_tokens"])
    assert (lengths <= further.goal_tokens).mean() == pytest.approx(0.9, abs=0.02)
    assert certified(flat(0.5), 4, 10).further.usd is None


def test_that_many_further_examples_reach_the_90th_percentile() -> None:
    further = certified(flat(0.5), 4, 10).further
    per_bin = 10 + further.examples // 10
    reached = 0
    for seed in range(8):
        documents = clean_records(plant(flat(0.5), 60 + seed, per_bin=per_bin), []).documents()
        reached += (concluded(documents).cap.tokens or 0) >= 0.9 * further.goal_tokens
    assert reached >= 5


def test_a_cap_that_reaches_the_90th_percentile_needs_nothing_further() -> None:
    further = certified(flat(0.95), 1).further
    assert (further.examples, further.tokens, further.reason) == (0, 0, None)


def test_a_drop_before_the_90th_percentile_leaves_no_number() -> None:
    further = certified(step(600, 0.9, 0.3), 1).further
    assert further.examples is None
    assert "More data cannot lift the cap past" in further.reason


def test_where_another_look_takes_more_certainty_no_fewer_examples_will_do() -> None:
    records = plant(flat(0.5), 4, per_bin=10)
    sample = clean_records(records, [])
    documents = sample.documents()
    finding = concluded(documents).finding
    once, again = (
        required_sample_size(sample, documents, finding, SETTINGS, looks=looks).further
        for looks in (None, ())
    )
    assert again.examples > once.examples


def test_too_few_examples_have_the_number_that_a_verdict_needs() -> None:
    def needed(examples: int, documents: int) -> Cliffs:
        records = plant(flat(0.8), 3).head(examples).assign(prompt_tokens=1_000, cost_usd=0.01)
        records["document_id"] = [f"d{i % documents}" for i in range(examples)]
        records["length_tokens"] = 100 * (1 + np.arange(examples) % documents)
        return cliffs_of(records)

    for examples, documents, more in ((12, 12, (18, 8)), (42, 19, (1, 1)), (25, 22, (5, 0))):
        cliffs = needed(examples, documents)
        further = cliffs.certify.further
        assert (further.examples, further.documents) == more
        assert further.tokens == 1_000 * more[0]
        assert further.usd == pytest.approx(0.01 * more[0])
        assert "A verdict needs " in str(certify_sentence(cliffs))
    assert "needs 5 further examples (about 5,000 tokens, 0.05 USD)" in str(
        certify_sentence(cliffs)
    )
    assert needed(42, 19).safe_cap_reason.startswith("Too few documents for a verdict: 42 ")


def test_the_report_says_what_the_next_million_tokens_buys() -> None:
    records = plant(flat(0.9), 1)
    cliffs = profile_model(records, bins_of(records), SETTINGS, CONTEXT).cliffs
    page = "\n".join(as_markdown(more_data_sections(cliffs)))
    assert "1,000,000 tokens" in page
    assert "expected cap, tokens" in page
    assert cliffs.safe_cap_tokens >= np.quantile(records["length_tokens"], 0.9)
    assert certify_sentence(cliffs) is None
    assert not more_data_sections(replace(cliffs, certify=Certify()))
