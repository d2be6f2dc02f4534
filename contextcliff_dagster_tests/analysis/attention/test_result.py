"""What attention says of a model, on data with a planted relation; the verdict never uses it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from contextcliff_dagster.analysis.attention import AttentionSample
from contextcliff_dagster.analysis.bin_statistics import ProfileContext
from contextcliff_dagster.analysis.profile import profile_model
from contextcliff_dagster.analysis.records import AnalysisSettings
from contextcliff_dagster.contracts.results import Cliffs, from_json, to_json
from contextcliff_dagster.contracts.results.attention import AttentionResult
from contextcliff_dagster_tests.support.drawn_attention import Planted, draw

SETTINGS = AnalysisSettings(second_opinions=False, permutations=499)
CONTEXT = ProfileContext("m", window_tokens=16_384, created_at="2026-01-01T00:00:00")


def _profile(records: pd.DataFrame, attention: AttentionSample | None) -> Cliffs:
    return profile_model(records, [], SETTINGS, replace(CONTEXT, attention=attention)).cliffs


def _judge(planted: Planted, seed: int = 0) -> AttentionResult:
    result = _profile(*draw(planted, seed)).attention
    assert result is not None
    return result


def test_every_other_field_is_the_same_without_attention() -> None:
    records, attention = draw(Planted(jump=3_000, link=1.5))
    plain, full = (to_json(_profile(records, one)) for one in (None, attention))
    assert plain.pop("attention") is None
    assert full.pop("attention")["says"]
    assert plain == full


def test_a_result_is_read_as_it_was_written_and_older_files_have_none() -> None:
    full = _profile(*draw(Planted()))
    data = to_json(full)
    assert to_json(from_json(Cliffs, data)) == data
    del data["attention"]
    assert from_json(Cliffs, data).attention is None


def test_means_of_bins_and_layers() -> None:
    records, attention = draw(Planted())
    result = _profile(records, attention).attention
    assert result is not None
    assert (result.n, result.n_all, result.layers, result.heads) == (200, 200, 3, 2)
    assert sum(b.entropy.n for b in result.bins) == 200
    for b in result.bins:
        assert b.entropy.mean == pytest.approx(np.mean(b.entropy_by_layer))
        assert b.entropy.ci_low < b.entropy.mean < b.entropy.ci_high  # type: ignore[operator]
        assert b.sinks.mean == pytest.approx(0.3)


def test_layers_without_attention_are_counted_and_heads_weigh_alike() -> None:
    records, attention = draw(Planted())
    ragged = [np.insert(of, 1, np.nan, axis=1) for of in (attention.entropy, attention.sinks)]
    evidence = np.insert(attention.evidence, 1, np.nan, axis=1)
    for values in (*ragged, evidence):
        values[:, 3, 1] = np.nan
    full = replace(attention, entropy=ragged[0], sinks=ragged[1], evidence=evidence)
    result = _profile(records, full).attention
    assert result is not None
    assert (result.layers, result.layers_without, result.heads) == (3, 1, 2)
    assert "1 of the model's 4 layers have no attention weights" in result.says[-1]
    for b in result.bins:
        one, two, three = b.entropy_by_layer
        assert b.entropy.mean == pytest.approx((2 * one + 2 * two + three) / 5)
        assert len(b.evidence_by_layer) == 3


def test_entropy_that_differs_at_equal_length_foretells() -> None:
    entropy, evidence = _judge(Planted(link=1.5)).wrong_answers
    assert entropy.auc is not None
    assert entropy.auc > 0.75
    assert entropy.p_value is not None
    assert entropy.p_value <= 0.05
    assert evidence.p_value is not None
    assert evidence.p_value > 0.05


def test_entropy_that_only_grows_with_length_foretells_nothing() -> None:
    result = _judge(Planted(), seed=4)
    assert [one.p_value > 0.05 for one in result.wrong_answers if one.p_value] == [True, True]
    assert "is not shown to foretell" in result.says[0]
    assert "is not shown to foretell" in result.says[1]
    assert result.threshold is not None
    assert not result.threshold.supported


def test_lower_entropy_of_wrong_answers_is_named_so() -> None:
    result = _judge(Planted(link=-1.5))
    assert result.says[0].startswith("At equal length, wrong answers have lower entropy")


def test_unknown_evidence_is_refused_and_counts_for_nothing() -> None:
    entropy, evidence = _judge(Planted(link=1.5, evidence=False)).wrong_answers
    assert evidence.auc is None
    assert evidence.p_value is None
    assert "unknown" in str(evidence.refused_because)
    assert entropy.p_value == pytest.approx(1 / 500, abs=1e-9)  # not doubled


def test_answers_that_are_all_right_are_not_estimable() -> None:
    records, attention = draw(Planted())
    result = _profile(records.assign(score=1.0), attention).attention
    assert result is not None
    assert "not estimable: no length bin has right and wrong answers" in result.says[0]
    assert result.threshold is None
    assert "no degraded region was found" in result.says[2]


def test_bins_with_one_class_are_named() -> None:
    records, attention = draw(Planted())
    short = records["length_tokens"] < 1_000
    result = _profile(records.assign(score=records["score"].where(~short, 1.0)), attention)
    assert result.attention is not None
    first = result.attention.wrong_answers[0]
    assert first.one_class_bins[:2] == ["b00", "b01"]
    assert "with right or wrong answers alone: b00, b01" in result.attention.says[0]


def test_a_threshold_that_beats_length_is_supported() -> None:
    result = _judge(Planted(link=8.0, count=300))
    threshold = result.threshold
    assert threshold is not None
    assert threshold.supported
    assert threshold.side == "above"
    assert threshold.error is not None
    assert threshold.error.ci_high < 0.3
    assert f"above {threshold.value:.3f}; balanced error of" in result.says[2]


def test_rope_is_predicted_where_drop_and_entropy_agree_beyond_the_training() -> None:
    result = _judge(Planted(fall=5_000, jump=5_000, count=300))
    assert result.rope is not None
    assert result.rope.ci_low < 5_040 / 16_384 < result.rope.ci_high


@pytest.mark.parametrize(
    "planted",
    [
        Planted(fall=5_000, jump=5_000, count=300, trained=None),
        Planted(fall=5_000, jump=5_000, count=300, trained=32_000),  # not approached
        Planted(fall=900, jump=900, count=300, trained=8_000),  # falls within the training
        Planted(fall=5_000, jump=600, count=300),  # elsewhere
        Planted(fall=5_000, count=300),  # entropy does not change
        Planted(fall=1e9, jump=5_000, count=300),  # no drop
    ],
)
def test_else_nothing_is_said_of_rope(planted: Planted) -> None:
    result = _judge(planted)
    assert result.rope is None


def test_examples_without_attention_are_left_out() -> None:
    records, attention = draw(Planted())
    half = AttentionSample(
        attention.example_ids[::2],
        *(getattr(attention, name)[::2] for name in ("tokens", "entropy", "sinks", "evidence")),
        trained_tokens=None,
    )
    result = _profile(records, half).attention
    assert result is not None
    assert (result.n, result.n_all) == (100, 200)
    other = replace(attention, example_ids=tuple(f"x{i}" for i in range(200)))
    assert _profile(records, other).attention is None
